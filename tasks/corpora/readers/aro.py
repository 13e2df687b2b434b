"""ARO: Attribution, Relation and Order (Yuksekgonul et al. 2023, https://arxiv.org/abs/2210.01936), as pairs.

In relation and attribution, the image is the box of a Visual Genome photograph that the caption describes. In order,
each caption has four negatives, which are shuffles of its words; the paper counts a caption as correct if it wins
against all four (chance 20 %).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.build import ImageRow
from capim.tasks.corpora.files import field, folder_in, read_json, require_folder, require_match
from capim.tasks.corpora.images.image_files import Missing
from capim.tasks.corpora.readers.hub import load_split
from capim.tasks.corpora.readers.published import HardNegativeItem, hard_negatives, published_corpus

Part: TypeAlias = Literal["relation", "attribution", "coco-order", "flickr-order"]
HUB: dict[Part, str] = {
    "relation": CORPORA["aro"].hub,
    "attribution": "mteb/ARO-Visual-Attribution",
    "coco-order": "mteb/ARO-COCO-order",
    "flickr-order": "mteb/ARO-Flickr-Order",
}
_SHUFFLES = ("shuffle_nouns_and_adj", "shuffle_allbut_nouns_and_adj", "shuffle_within_trigrams", "shuffle_trigrams")


def read_aro(
    root: str | Path | None = None,
    *,
    part: Part = "relation",
    images: str | Path | None = None,
    missing: Missing = "error",
    split: str = "test",
    revision: str | None = None,
) -> Corpus:
    """One part of ARO; the category is the relation, the pair of attributes, or the kind of shuffling.

    Args:
        root: Folder with the part's ``visual_genome_*.json`` (only relation and attribution have files); from the
            hub unless given.
        part: ``relation``, ``attribution``, ``coco-order`` or ``flickr-order``.
        images: Folder of Visual Genome images; ``root/images`` by default. Without one, texts and ids only.

    Raises:
        RequestError: A file, image or field is missing.
    """
    source, origin = None, ""
    if root is None:
        loaded = load_split(HUB[part], split=split, revision=revision)
        column = next((name for name in ("image", "images") if name in loaded.images), None)
        if column is None:
            raise RequestError(f"{loaded.name}: no column 'image' or 'images' with images")
        items = [
            _item(position, row, ImageRow(str(position), f"{column}/{position}"), loaded.name)
            for position, row in enumerate(loaded.rows())
        ]
        source, origin = loaded.source, f"https://huggingface.co/datasets/{HUB[part]}"
    else:
        folder = require_folder(root, "aro folder")
        items = list(_file_items(folder, part))
        images = images or folder_in(folder, "images")
    images = None if root is None else images
    contents = hard_negatives(items)
    return published_corpus("aro", contents, part=part, images=images, missing=missing, source=source, origin=origin)


def _file_items(folder: Path, part: Part) -> Iterator[HardNegativeItem]:
    if part not in ("relation", "attribution"):
        raise RequestError(
            f"aro: {part} has no files (its negatives are drawn at random); leave out root to read the hub"
        )
    file = require_match(
        folder, f"visual_genome_{part}.json", hint="it is linked from github.com/mertyg/vision-language-models-are-bows"
    )
    for position, row in enumerate(read_json(file)):
        where = f"{file}: item {position}"
        x, y, width, height = (int(field(row, f"bbox_{side}", int | float, where)) for side in ("x", "y", "w", "h"))
        image = ImageRow(str(position), field(row, "image_path", str, where))
        yield _item(position, row, image, str(file))._replace(box=(x, y, width, height))


def _item(position: int, row: Mapping[str, Any], image: ImageRow, origin: str) -> HardNegativeItem:
    where = f"{origin}: item {position}"
    if "true_caption" in row:
        caption, negatives = "true_caption", [(_category(row), field(row, "false_caption", str, where))]
    else:
        texts = [field(row, f"hard_text_{n}", str, where) for n in range(1, 5)]
        caption, negatives = "correct_caption", list(zip(_SHUFFLES, texts, strict=True))
    return HardNegativeItem(str(position), image, field(row, caption, str, where), negatives)


def _category(row: Mapping[str, Any]) -> str:
    attributes = row.get("attributes")
    if isinstance(attributes, Sequence) and not isinstance(attributes, str):
        return "_".join(str(attribute) for attribute in attributes)
    return str(row.get("relation_name") or "all")
