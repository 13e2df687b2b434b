"""COCO's Karpathy split: test 5K (25,010 captions) and val 5K, with CxC and ECCV Caption positives.

From ``yerevann/coco-karpathy`` on the hub (images from images.cocodataset.org), or from a local captions file in any
form of :mod:`tasks.corpora.readers.karpathy` with a folder of COCO images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from store.errors import RequestError
from store.types import Corpus, ImageSource
from tasks.corpora import CORPORA
from tasks.corpora.build import build_corpus
from tasks.corpora.files import field, first_existing, read_json, require_file
from tasks.corpora.images.downloads import CACHE, Downloads
from tasks.corpora.images.image_files import Missing, located
from tasks.corpora.readers.coco_captions import read_objects
from tasks.corpora.readers.ground_truths import (
    GROUND_TRUTHS,
    SIXTH_CAPTIONS,
    extra_positives,
    karpathy_test_annotation_ids,
)
from tasks.corpora.readers.hub import load_split
from tasks.corpora.readers.karpathy import FIVE, KarpathyEntry, entries_of_rows, read_karpathy_file
from tasks.corpora.rows import CaptionRow, ImageRow, RelevanceRow, SkippedRow

HUB = CORPORA["coco-karpathy"].hub
IMAGES = "http://images.cocodataset.org"
_HUB_SPLITS = {"test": "test", "val": "validation"}


@dataclass(frozen=True)
class _Split:
    """Entries of a split, their images, and where these are read from (None: texts and ids alone)."""

    entries: Sequence[KarpathyEntry]
    images: Sequence[ImageRow]
    source: ImageSource | None
    skipped: Sequence[SkippedRow]
    origin: str


def read_coco_karpathy(
    root: str | Path | None = None,
    *,
    images: str | Path | None = None,
    split: str = "test",
    dataset: str = HUB,
    revision: str | None = None,
    objects: str | Path | None = None,
    ground_truths: Sequence[str] = GROUND_TRUTHS,
    missing: Missing = "error",
    cache: str | Path = CACHE,
) -> Corpus:
    """The split in Karpathy's order; image ids are COCO's, annotation ids those of captions 0 to 4.

    Args:
        root: Captions file, or the folder with it; from the hub unless given.
        images: Folder with COCO images under any of their names (2014, 2017, with or without ``val2014/``). Without
            one, a local captions file gives texts and ids alone, and the hub's rows fetch their images.
        split: ``test`` or ``val``.
        dataset: Hub id, where no ``root`` is given.
        revision: Of the hub data set.
        objects: Objects per image, where the captions file has none: a COCO boxes file, or a list of
            ``{"image_id", "objects"}``.
        ground_truths: Of ``cxc`` and ``eccv``, for the test split.
        missing: ``error``, or ``skip`` to list images that are not in ``images`` as skipped.
        cache: Folder for fetched images.

    Raises:
        RequestError: A file, folder, split or package is missing, or a file is of none of the known forms.
    """
    if split not in _HUB_SPLITS:
        raise RequestError(f"coco-karpathy: split {split!r} is unknown; known: {', '.join(_HUB_SPLITS)}")
    if root is not None:
        read = _from_file(Path(root), split, images, missing)
    else:
        read = _from_hub(dataset, revision, split, images, missing, Path(cache))
    labels = {} if objects is None else _objects(require_file(objects, "objects file"))
    image_rows = [row if row.id not in labels else row._replace(objects=labels[row.id]) for row in read.images]
    kept = {row.id for row in image_rows}
    known = karpathy_test_annotation_ids() if split == "test" and ground_truths else {}
    captions = [
        CaptionRow(
            f"{entry.id}#{ordinal}",
            entry.id,
            text,
            ordinal,
            annotation_id=_annotation_id(entry, ordinal, known),
        )
        for entry in read.entries
        if entry.id in kept
        for ordinal, text in enumerate(entry.captions)
    ]
    positives: tuple[RelevanceRow, ...] = ()
    if split == "test":
        caption_of = {row.annotation_id: row.id for row in captions if row.annotation_id is not None}
        positives = tuple(extra_positives(caption_of, kept, truths=ground_truths))
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


def _annotation_id(entry: KarpathyEntry, ordinal: int, known: Mapping[str, Sequence[str]]) -> str | None:
    """Of captions 0 to 4, from the file or else from the ground truths; of a sixth where these name it.

    The same whatever the file tells of sixth captions, so that all forms of the split have one fingerprint.
    """
    if ordinal == FIVE:
        return SIXTH_CAPTIONS.get(entry.id) if known else None
    ids = entry.annotation_ids or known.get(entry.id, ())
    return ids[ordinal] if ordinal < len(ids) else None


def _from_file(root: Path, split: str, images: str | Path | None, missing: Missing) -> _Split:
    if root.is_dir():
        file = first_existing(None, root, "dataset_coco.json", f"coco_karpathy_{split}.json", f"{split}_*.json")
        if file is None:
            raise RequestError(
                f"{root}: no captions file in it; looked for dataset_coco.json, coco_karpathy_{split}.json "
                f"and {split}_*.json"
            )
    else:
        file = require_file(root, "captions file")
    entries = read_karpathy_file(file, split=split)
    rows = [ImageRow(entry.id, entry.file_name, objects=entry.objects) for entry in entries]
    return _Split(entries, *located(rows, images, missing=missing, origin=file), str(file))


def _from_hub(
    dataset: str, revision: str | None, split: str, images: str | Path | None, missing: Missing, cache: Path
) -> _Split:
    loaded = load_split(dataset, split=_HUB_SPLITS[split], revision=revision)
    entries = list(entries_of_rows(loaded.rows(), loaded.name))
    rows = [ImageRow(entry.id, entry.file_name, objects=entry.objects) for entry in entries]
    origin = f"https://huggingface.co/datasets/{dataset}"
    if images is not None:
        return _Split(entries, *located(rows, images, missing=missing, origin=loaded.name), origin)
    if loaded.images:
        rows = [row._replace(key=f"{loaded.images[0]}/{position}") for position, row in enumerate(rows)]
        return _Split(entries, rows, loaded.source, (), origin)
    return _Split(entries, rows, Downloads(IMAGES, cache), (), origin)


def _objects(file: Path) -> dict[str, list[str]]:
    content = read_json(file)
    if isinstance(content, dict):
        return read_objects(file)
    return {
        str(field(entry, "image_id", int | str, f"{file}: entry {position}")): field(
            entry, "objects", list, f"{file}: entry {position}"
        )
        for position, entry in enumerate(content)
    }
