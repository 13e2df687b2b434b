"""Karpathy's splits of COCO and Flickr30k, in the four forms in which they are distributed.

* Karpathy's own ``dataset_coco.json`` and ``dataset_flickr30k.json`` (Karpathy and Fei-Fei 2015,
  https://cs.stanford.edu/people/karpathy/deepimagesent/): ``{"images": [{"filename", "sentences": [{"raw"}] …}]}``;
* the ALBEF form, ``coco_karpathy_test.json``: ``[{"image": "val2014/…jpg", "caption": ["…", …]}]``;
* one object per image with ``file_name``, ``captions``, ``annotation_ids`` and ``objects``;
* rows of ``yerevann/coco-karpathy`` on the hub: ``filename``, ``sentences``, ``sentids``, ``cocoid``.

All forms give the same entries, so the same images have the same fingerprint whatever form they were read from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from capim.store.errors import RequestError
from capim.store.types import ImageSource
from capim.tasks.corpora.build import ImageRow, SkippedRow
from capim.tasks.corpora.files import field, read_json, require_file, require_match
from capim.tasks.corpora.images.image_files import Missing, coco_id, image_id_of, locate_images
from capim.tasks.corpora.readers.hub import load_split

FIVE = 5  # the published annotation ids are those of captions 0 to 4


class KarpathyEntry(NamedTuple):
    """One image of a split: its file, captions, and what some of the forms hold in addition."""

    id: str
    file_name: str
    captions: Sequence[str]
    annotation_ids: Sequence[str] = ()
    objects: Sequence[str] | None = None


class KarpathySplit(NamedTuple):
    """Entries of a split, its images with a file, their source (None: texts and ids only), and images left out."""

    entries: Sequence[KarpathyEntry]
    images: Sequence[ImageRow]
    source: ImageSource | None
    skipped: Sequence[SkippedRow]
    origin: str


def split_from_file(
    root: Path, *patterns: str, split: str, images: str | Path | None, missing: Missing
) -> KarpathySplit:
    """A split from a local captions file, or from the first file of a folder that matches one of the patterns.

    Raises:
        RequestError: The file or its images are missing, or it is in none of the known forms.
    """
    file = require_match(root, *patterns) if root.is_dir() else require_file(root, "captions file")
    entries = _read_file(file, split=split)
    return _located(entries, images, missing=missing, names=str(file), origin=str(file))


def split_from_hub(
    dataset: str,
    *,
    split: str,
    revision: str | None,
    images: str | Path | None = None,
    missing: Missing = "error",
    downloads: ImageSource | None = None,
) -> KarpathySplit:
    """A split from the hub, with images from a folder, else from the data set itself, else from ``downloads``."""
    loaded = load_split(dataset, split=split, revision=revision)
    entries = list(_entries(loaded.rows(), loaded.name))
    origin = f"https://huggingface.co/datasets/{dataset}"
    read = _located(entries, images, missing=missing, names=loaded.name, origin=origin)
    if images is not None:
        return read
    if not loaded.images:
        return read._replace(source=downloads)
    rows = [row._replace(key=f"{loaded.images[0]}/{position}") for position, row in enumerate(read.images)]
    return read._replace(images=rows, source=loaded.source)


def _located(
    entries: Sequence[KarpathyEntry], images: str | Path | None, *, missing: Missing, names: str, origin: str
) -> KarpathySplit:
    rows = [
        # Flickr30k's images lie in one folder, whatever folder a captions file puts before their names
        ImageRow(entry.id, entry.file_name if coco_id(entry.file_name) else Path(entry.file_name).name)._replace(
            objects=entry.objects
        )
        for entry in entries
    ]
    located = locate_images(rows, images, missing=missing, origin=names)
    return KarpathySplit(entries, *located, origin)


def _read_file(file: Path, *, split: str) -> list[KarpathyEntry]:
    content = read_json(file)
    if isinstance(content, Mapping):
        images = field(content, "images", list, file)
        splits = [field(image, "split", str, f"{file}: image {position}") for position, image in enumerate(images)]
        if split not in splits:
            raise RequestError(f"{file}: no images of split {split!r}; it has {', '.join(sorted({*splits})) or 'none'}")
        return list(_entries((image for image, each in zip(images, splits, strict=True) if each == split), file))
    if not isinstance(content, list) or not content:
        raise RequestError(f"{file}: expected Karpathy's JSON (an object with 'images') or a list of images")
    named_splits = [name for name in ("train", "val", "test") if name in file.stem.replace("-", "_").split("_")]
    if named_splits and split not in named_splits:
        raise RequestError(f"{file}: expected split {split!r}, got a file of split {named_splits[-1]!r} by its name")
    return list(_entries(content, file))


def _entries(rows: Iterable[object], origin: object) -> Iterator[KarpathyEntry]:
    for position, row in enumerate(rows):
        where = f"{origin}: image {position}"
        if not isinstance(row, Mapping):
            raise RequestError(f"{where}: expected an object, got {type(row).__name__}")
        names = ("file_name", "filename", "image_path", "image")
        name_field = next((key for key in names if isinstance(row.get(key), str)), None)
        text_field = next((key for key in ("captions", "sentences", "caption") if key in row), None)
        if name_field is None or text_field is None:
            raise RequestError(
                f"{where}: expected a file name ({', '.join(names)}) and captions (captions, sentences, caption); "
                f"it has {', '.join(map(str, row))}"
            )
        folder = str(row.get("filepath") or "")
        name = f"{folder}/{row[name_field]}" if folder and name_field == "filename" else str(row[name_field])
        ids = row.get("annotation_ids", row.get("sentids", ()))
        yield KarpathyEntry(
            id=str(row.get("image_id", row.get("cocoid", image_id_of(name)))),
            file_name=name,
            captions=_texts(row[text_field], where),
            annotation_ids=[str(each) for each in ids][:FIVE] if isinstance(ids, Sequence) else [],
            objects=row.get("objects"),
        )


def _texts(value: object, where: str) -> list[str]:
    values = [value] if isinstance(value, str) else value
    texts = (
        [text.get("raw") if isinstance(text, Mapping) else text for text in values]
        if isinstance(values, Sequence)
        else [None]
    )
    if not all(isinstance(text, str) for text in texts):
        raise RequestError(f"{where}: captions are {value!r:.60}, expected a list of texts")
    return [str(text) for text in texts]
