"""SugarCrepe: a caption of a COCO val2017 image against a fluent hard negative, in seven categories.

Hsieh et al. 2023, https://arxiv.org/abs/2306.14610; 7,511 items.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from store.errors import RequestError
from store.types import Corpus
from tasks.corpora import CORPORA
from tasks.corpora.build import build_corpus
from tasks.corpora.files import field, read_json, require_folder
from tasks.corpora.images.image_files import Missing, coco_id, located
from tasks.corpora.rows import CaptionRow, ImageRow, PairRow

CATEGORIES = ("add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj")


def read_sugarcrepe(
    root: str | Path,
    *,
    images: str | Path | None = None,
    categories: Sequence[str] = CATEGORIES,
    missing: Missing = "error",
) -> Corpus:
    """All items, category by category in the order of the files; images are those that items use, by COCO id.

    A pair's id is ``category/number``; its negative describes no image.

    Args:
        root: Folder with ``add_att.json`` … ``swap_obj.json``.
        images: Folder with COCO images under any of their names; without one, texts and ids alone.
        categories: Which of the seven.
        missing: ``error``, or ``skip`` to leave out the items whose image is not there (their images are listed).

    Raises:
        RequestError: A file or field is missing, or images are.
    """
    folder = require_folder(root, "sugarcrepe folder")
    if unknown := sorted(set(categories) - set(CATEGORIES)):
        raise RequestError(f"sugarcrepe: unknown categories {', '.join(unknown)}; known: {', '.join(CATEGORIES)}")
    if absent := [f"{category}.json" for category in categories if not (folder / f"{category}.json").is_file()]:
        raise RequestError(f"{folder}: {', '.join(absent)} not in it; they are at github.com/RAIVNLab/sugar-crepe")
    items = []
    files: dict[str, str] = {}
    for category in categories:
        file = folder / f"{category}.json"
        for number, entry in read_json(file).items():
            where = f"{file}: item {number}"
            name = field(entry, "filename", str, where)
            image = coco_id(name) or Path(name).stem
            files.setdefault(image, name)
            texts = field(entry, "caption", str, where), field(entry, "negative_caption", str, where)
            items.append((f"{category}/{number}", image, *texts, category))
    there = located((ImageRow(image, name) for image, name in files.items()), images, missing=missing, origin=folder)
    usable = {row.id for row in there.rows}
    kept = [item for item in items if item[1] in usable]
    return build_corpus(
        "sugarcrepe",
        there.rows,
        [
            *(CaptionRow(item, image, caption) for item, image, caption, _, _ in kept),
            *(CaptionRow(f"{item}/negative", None, negative) for item, _, _, negative, _ in kept),
        ],
        source=there.source,
        pairs=(PairRow(item, image, item, f"{item}/negative", category) for item, image, _, _, category in kept),
        skipped=there.skipped,
        licence=CORPORA["sugarcrepe"].licence,
        origin="https://github.com/RAIVNLab/sugar-crepe",
    )
