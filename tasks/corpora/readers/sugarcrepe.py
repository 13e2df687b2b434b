"""SugarCrepe: a caption of a COCO val2017 image against a fluent hard negative, in seven categories.

Hsieh et al. 2023, https://arxiv.org/abs/2306.14610; 7,511 items.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from capim.store.types import Corpus
from capim.tasks.corpora.build import ImageRow
from capim.tasks.corpora.files import field, read_json, require_files, require_folder
from capim.tasks.corpora.images.image_files import Missing, image_id_of
from capim.tasks.corpora.readers.published import HardNegativeItem, hard_negatives, published_corpus

Category: TypeAlias = Literal[
    "add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj"
]  # fmt: skip
CATEGORIES: tuple[Category, ...] = get_args(Category)


def read_sugarcrepe(
    root: str | Path,
    *,
    images: str | Path | None = None,
    categories: Sequence[Category] = CATEGORIES,
    missing: Missing = "error",
) -> Corpus:
    """All items, category by category in the order of the files; images are those that items use, by COCO id.

    A pair's id is ``category/number``.

    Args:
        root: Folder with ``add_att.json`` … ``swap_obj.json``.

    Raises:
        RequestError: A file, image or field is missing.
    """
    folder = require_folder(root, "sugarcrepe folder")
    items = []
    hint = "download from github.com/RAIVNLab/sugar-crepe"
    files = require_files(folder, [f"{category}.json" for category in categories], hint=hint)
    for category, file in zip(categories, files, strict=True):
        for number, entry in read_json(file).items():
            where = f"{file}: item {number}"
            name = field(entry, "filename", str, where)
            caption, negative = field(entry, "caption", str, where), field(entry, "negative_caption", str, where)
            image = ImageRow(image_id_of(name), name)
            items.append(HardNegativeItem(f"{category}/{number}", image, caption, [(category, negative)]))
    return published_corpus("sugarcrepe", hard_negatives(items, numbered=False), images=images, missing=missing)
