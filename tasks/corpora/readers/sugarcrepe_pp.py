"""SugarCrepe++: two captions of a COCO val2017 image against one hard negative, in five categories.

Dumpala et al. 2024, https://arxiv.org/abs/2406.11171; 4,757 items. An item is right where both captions score higher
than the negative, the paper's image-to-text accuracy. Its text-only accuracy compares captions with captions, which no
scorer here does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.build import ImageRow
from capim.tasks.corpora.files import field, read_json, require_files, require_folder
from capim.tasks.corpora.images.image_files import Missing, image_id_of
from capim.tasks.corpora.readers.hub import load_split
from capim.tasks.corpora.readers.published import HardNegativeItem, hard_negatives, published_corpus

Category: TypeAlias = Literal["replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj"]
CATEGORIES: tuple[Category, ...] = get_args(Category)
HUB = CORPORA["sugarcrepe-pp"].hub
_CONFIGS: dict[Category, str] = {  # as the hub's data set spells them
    "replace_att": "replace_attribute",
    "replace_obj": "replace_object",
    "replace_rel": "replace_relation",
    "swap_att": "swap_atribute",
    "swap_obj": "swap_object",
}


def read_sugarcrepe_pp(
    root: str | Path | None = None,
    *,
    images: str | Path | None = None,
    categories: Sequence[Category] = CATEGORIES,
    missing: Missing = "error",
    dataset: str = HUB,
    revision: str | None = None,
) -> Corpus:
    """All items, category by category in the order of the files; images are those that items use, by COCO id.

    An item's id is ``category/number``; its second caption is ``category/number/2``.

    Args:
        root: Folder with ``replace_att.json`` … ``swap_obj.json``; from the hub unless given.
        images: Folder with COCO val2017 images; without one, texts and ids only.

    Raises:
        RequestError: A file, image or field is missing.
    """
    items = []
    for category, entries, origin in _read(root, categories, dataset, revision):
        for number, entry in enumerate(entries):
            where = f"{origin}: item {number}"
            name, caption, further, negative = (
                field(entry, key, str, where) for key in ("filename", "caption", "caption2", "negative_caption")
            )
            image = ImageRow(image_id_of(name), name)
            identifier = f"{category}/{entry.get('id', number)}"
            items.append(HardNegativeItem(identifier, image, caption, [(category, negative)], further=[further]))
    contents = hard_negatives(items, numbered=False)
    origin = f"https://huggingface.co/datasets/{dataset}" if root is None else ""
    return published_corpus("sugarcrepe-pp", contents, images=images, missing=missing, origin=origin)


def _read(
    root: str | Path | None, categories: Sequence[Category], dataset: str, revision: str | None
) -> Iterable[tuple[Category, Iterable[Mapping[str, Any]], object]]:
    """Category, entries, and the file or split that they come from."""
    if root is None:
        for category in categories:
            split = load_split(dataset, split="train", config=_CONFIGS[category], revision=revision)
            yield category, split.rows(), split.name
        return
    folder = require_folder(root, "sugarcrepe-pp folder")
    hint = "download data/ of github.com/Sri-Harsha/scpp, or name the files that you have with categories"
    files = require_files(folder, [f"{category}.json" for category in categories], hint=hint)
    for category, file in zip(categories, files, strict=True):
        if not isinstance(content := read_json(file), list):
            raise RequestError(f"{file}: expected a list of items, got {type(content).__name__}")
        yield category, content, file
