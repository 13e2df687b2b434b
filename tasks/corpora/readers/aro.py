"""ARO: Attribution, Relation and Order (Yuksekgonul et al. 2023, https://arxiv.org/abs/2210.01936), as pairs.

Relation and attribution: ``visual_genome_relation.json`` and ``visual_genome_attribution.json``; the image is the box
of the Visual Genome photograph that the caption is about. Order: a caption against four orders of its words that make
no sense; the four pairs of a caption share its ``caption_id``, so "all four won" (the paper's figure, chance 20 %) can
be told from the pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from store.errors import RequestError
from store.types import Corpus, ImageSource
from tasks.corpora import CORPORA
from tasks.corpora.build import build_corpus
from tasks.corpora.files import field, read_json, require_folder
from tasks.corpora.images.crops import Crops, crop_key
from tasks.corpora.images.image_files import Missing, present
from tasks.corpora.images.source import Folder
from tasks.corpora.readers.hub import load_split
from tasks.corpora.readers.negatives import negative_captions, negative_pairs
from tasks.corpora.rows import ImageRow, SkippedRow

PARTS = ("relation", "attribution", "coco-order", "flickr-order")
HUB = {
    "relation": "mteb/ARO-Visual-Relation",
    "attribution": "mteb/ARO-Visual-Attribution",
    "coco-order": "mteb/ARO-COCO-order",
    "flickr-order": "mteb/ARO-Flickr-Order",
}
_HARD_TEXTS = tuple(f"hard_text_{i}" for i in range(1, 5))


class _Item(NamedTuple):
    """One image with a caption and its negatives, each under a category."""

    id: str
    image: ImageRow
    caption: str
    negatives: tuple[tuple[str, str], ...]


def read_aro(
    root: str | Path | None = None,
    *,
    part: str = "relation",
    images: str | Path | None = None,
    missing: Missing = "error",
    split: str = "test",
    revision: str | None = None,
) -> Corpus:
    """One part of ARO; category is the relation, the pair of attributes, or the kind of shuffling.

    Args:
        root: Folder with the part's ``visual_genome_*.json`` (relation and attribution alone have files); from the
            hub unless given.
        part: ``relation``, ``attribution``, ``coco-order`` or ``flickr-order``.
        images: Folder of Visual Genome images; ``root/images`` where there is one. Without one, texts and ids alone.
        missing: ``error``, or ``skip`` to leave out items whose image is not there.
        split: Of the hub data set.
        revision: Of the hub data set.

    Raises:
        RequestError: The part is unknown, or a file, image or field is missing.
    """
    if part not in PARTS:
        raise RequestError(f"aro: part {part!r} is unknown; known: {', '.join(PARTS)}")
    skipped: list[SkippedRow] = []
    source: ImageSource | None
    if root is None:
        loaded = load_split(HUB[part], split=split, revision=revision)
        column = next((name for name in ("image", "images") if name in loaded.images), None)
        if column is None:
            raise RequestError(f"{loaded.name}: no column 'image' or 'images' with images")
        items = [_hub_item(i, row, f"{column}/{i}", loaded.name) for i, row in enumerate(loaded.rows())]
        source, origin = loaded.source, f"https://huggingface.co/datasets/{HUB[part]}"
    else:
        folder = require_folder(root, "aro folder")
        items, origin = list(_file_items(folder, part)), "https://github.com/mertyg/vision-language-models-are-bows"
        pictures = require_folder(images, "image folder") if images is not None else folder / "images"
        source = None
        if pictures.is_dir():
            kept, skipped = present(
                (ImageRow(item.id, item.image.key.partition("@")[2]) for item in items),
                (Folder(pictures),),
                missing=missing,
                origin=folder,
            )
            there = {row.id for row in kept}
            items, source = [item for item in items if item.id in there], Crops(Folder(pictures))
    return build_corpus(
        f"aro-{part}",
        (item.image for item in items),
        negative_captions(items),
        source=source,
        pairs=negative_pairs(items),
        skipped=skipped,
        licence=CORPORA["aro"].licence,
        origin=origin,
    )


def _category(row: Mapping[str, Any]) -> str:
    attributes = row.get("attributes")
    if isinstance(attributes, Sequence) and not isinstance(attributes, str):
        return "_".join(str(attribute) for attribute in attributes)
    return str(row.get("relation_name") or "all")


def _file_items(folder: Path, part: str) -> Iterator[_Item]:
    file = folder / f"visual_genome_{part}.json"
    if not file.is_file():
        raise RequestError(
            f"{folder}: no {file.name} in it; it is linked from github.com/mertyg/vision-language-models-are-bows"
            if part in ("relation", "attribution")
            else f"aro: {part} has no files of its own (its negatives are drawn at random); leave root out for the hub"
        )
    for position, row in enumerate(read_json(file)):
        where = f"{file}: item {position}"
        box = [int(field(row, f"bbox_{side}", int | float, where)) for side in ("x", "y", "w", "h")]
        key = crop_key(field(row, "image_path", str, where), *box)
        negative = (_category(row), field(row, "false_caption", str, where))
        yield _Item(str(position), ImageRow(str(position), key), field(row, "true_caption", str, where), (negative,))


def _hub_item(position: int, row: Mapping[str, Any], key: str, origin: str) -> _Item:
    where = f"{origin}: row {position}"
    image = ImageRow(str(position), key)
    if "true_caption" in row:
        negative = (_category(row), field(row, "false_caption", str, where))
        return _Item(str(position), image, field(row, "true_caption", str, where), (negative,))
    kinds = ("shuffle_nouns_and_adj", "shuffle_allbut_nouns_and_adj", "shuffle_within_trigrams", "shuffle_trigrams")
    texts = (field(row, column, str, where) for column in _HARD_TEXTS)
    negatives = tuple(zip(kinds, texts, strict=True))
    return _Item(str(position), image, field(row, "correct_caption", str, where), negatives)
