"""COCO's Karpathy split: test 5K (25,010 captions) and val 5K, with CxC and ECCV Caption positives.

From ``yerevann/coco-karpathy`` on the hub (images from images.cocodataset.org), or from a local captions file in any
form of :mod:`tasks.corpora.readers.karpathy` with a folder of COCO images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.build import CaptionRow, RelevanceRow, build_corpus
from capim.tasks.corpora.files import field, read_json, require_file
from capim.tasks.corpora.images.image_files import Missing
from capim.tasks.corpora.images.source import CACHE, Downloads
from capim.tasks.corpora.readers.coco_captions import read_objects
from capim.tasks.corpora.readers.ground_truths import (
    GROUND_TRUTHS,
    SIXTH_CAPTIONS,
    GroundTruth,
    extra_positives,
    karpathy_test_annotation_ids,
)
from capim.tasks.corpora.readers.karpathy import FIVE, KarpathyEntry, split_from_file, split_from_hub

HUB = CORPORA["coco-karpathy"].hub
IMAGES = "http://images.cocodataset.org"
_HUB_SPLITS = {"test": "test", "val": "validation"}


def read_coco_karpathy(
    root: str | Path | None = None,
    *,
    images: str | Path | None = None,
    split: Literal["test", "val"] = "test",
    dataset: str = HUB,
    revision: str | None = None,
    objects: str | Path | None = None,
    ground_truths: Sequence[GroundTruth] = GROUND_TRUTHS,
    missing: Missing = "error",
    cache: str | Path = CACHE,
) -> Corpus:
    """The split in Karpathy's order; image ids are COCO's, annotation ids those of captions 0 to 4.

    Args:
        root: Captions file, or the folder with it; from the hub unless given.
        images: Folder with COCO images under any of their names (2014, 2017, with or without ``val2014/``). Without
            one, a local captions file gives texts and ids only, and images of the hub's rows are downloaded.
        objects: Objects per image, if the captions file has none: a COCO boxes file, or a list of
            ``{"image_id", "objects"}``.
        ground_truths: ``cxc``, ``eccv``, both or none; they exist for the test split only.
        cache: Folder for downloaded images.

    Raises:
        RequestError: A file, folder, split or package is missing, or a file is in none of the known forms.
    """
    if root is not None:
        patterns = ("dataset_coco.json", f"coco_karpathy_{split}.json", f"{split}_*.json")
        read = split_from_file(Path(root), *patterns, split=split, images=images, missing=missing)
    else:
        read = split_from_hub(
            dataset,
            split=_HUB_SPLITS[split],
            revision=revision,
            images=images,
            missing=missing,
            downloads=Downloads(IMAGES, Path(cache)),
        )
    labels = {} if objects is None else _objects(require_file(objects, "objects file"))
    image_rows = [row if row.id not in labels else row._replace(objects=labels[row.id]) for row in read.images]
    published_ids = karpathy_test_annotation_ids() if split == "test" and ground_truths else {}
    captions = [
        CaptionRow(f"{entry.id}#{n}", entry.id, text, n, annotation_id=_annotation_id(entry, n, published_ids))
        for entry in read.entries
        for n, text in enumerate(entry.captions)
    ]
    positives: tuple[RelevanceRow, ...] = ()
    if split == "test":
        present = {row.id for row in image_rows}
        caption_of = {row.annotation_id: row.id for row in captions if row.annotation_id and row.image_id in present}
        positives = tuple(extra_positives(caption_of, present, truths=ground_truths))
    return build_corpus(
        "coco-karpathy" if split == "test" else f"coco-karpathy-{split}",
        image_rows,
        captions,
        source=read.source,
        relevance=positives,
        skipped=read.skipped,
        licence=CORPORA["coco-karpathy"].licence,
        origin=read.origin,
    )


def _annotation_id(entry: KarpathyEntry, ordinal: int, published_ids: Mapping[str, Sequence[str]]) -> str | None:
    """The annotation id of captions 0 to 4, from the file or else from the ground truths; of a sixth from the latter.

    What the file holds of sixth captions is ignored, so that all forms of the split have the same fingerprint.
    """
    if ordinal == FIVE:
        return SIXTH_CAPTIONS.get(entry.id) if published_ids else None
    ids = entry.annotation_ids or published_ids.get(entry.id, ())
    return ids[ordinal] if ordinal < len(ids) else None


def _objects(file: Path) -> dict[str, list[str]]:
    content = read_json(file)
    if isinstance(content, dict):
        return read_objects(file)
    placed = [(f"{file}: entry {position}", entry) for position, entry in enumerate(content)]
    return {str(field(row, "image_id", int | str, at)): field(row, "objects", list, at) for at, row in placed}
