"""Karpathy's splits of COCO and Flickr30k, in the four forms in which they are handed around.

* Karpathy's own ``dataset_coco.json`` and ``dataset_flickr30k.json`` (Karpathy and Fei-Fei 2015,
  https://cs.stanford.edu/people/karpathy/deepimagesent/): ``{"images": [{"filename", "sentences": [{"raw"}] …}]}``;
* the ALBEF form, ``coco_karpathy_test.json``: ``[{"image": "val2014/…jpg", "caption": ["…", …]}]``;
* one object per image with ``file_name``, ``captions``, ``annotation_ids`` and ``objects``;
* rows of ``yerevann/coco-karpathy`` on the hub: ``filename``, ``sentences``, ``sentids``, ``cocoid``.

All give the same entries, so the same images have the same fingerprint whatever form they were read from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from store.errors import RequestError
from tasks.corpora.files import field, read_json
from tasks.corpora.images.image_files import coco_id

FIVE = 5  # the published annotation ids are those of captions 0 to 4


class KarpathyEntry(NamedTuple):
    """One image of a split: its file, captions, and what the form tells beyond them."""

    id: str
    file_name: str
    captions: Sequence[str]
    annotation_ids: Sequence[str] = ()
    objects: Sequence[str] | None = None


def read_karpathy_file(file: Path, *, split: str) -> list[KarpathyEntry]:
    """The entries of one split, in the order of the file.

    Args:
        file: Any of the three JSON forms.
        split: ``test``, ``val`` or ``train``; a file of one split alone must be of that one.

    Raises:
        RequestError: The file is of none of the forms or has nothing of the split.
    """
    content = read_json(file)
    if isinstance(content, Mapping):
        images = field(content, "images", list, file)
        entries = list(entries_of_rows(_of_split(images, split, file), file))
        if not entries:
            present = sorted({str(image.get("split")) for image in images if isinstance(image, Mapping)})
            raise RequestError(f"{file}: no images of split {split!r}; it has {', '.join(present) or 'none'}")
        return entries
    if not isinstance(content, list) or not content:
        raise RequestError(f"{file}: expected Karpathy's JSON (an object with 'images') or a list of images")
    named_splits = [name for name in ("train", "val", "test") if name in file.stem.replace("-", "_").split("_")]
    if named_splits and split not in named_splits:
        raise RequestError(f"{file}: is of split {named_splits[-1]!r} by its name, asked for {split!r}")
    return list(entries_of_rows(content, file))


def _of_split(images: Iterable[object], split: str, file: Path) -> Iterator[Mapping[str, object]]:
    for position, image in enumerate(images):
        if field(image, "split", str, f"{file}: image {position}") == split and isinstance(image, Mapping):
            yield image


def entries_of_rows(rows: Iterable[object], origin: object) -> Iterator[KarpathyEntry]:
    """Entries of rows in any of the forms; raises ``RequestError`` naming the row that is in none."""
    for position, row in enumerate(rows):
        where = f"{origin}: image {position}"
        if not isinstance(row, Mapping):
            raise RequestError(f"{where}: expected an object, got {type(row).__name__}")
        name_field = next((key for key in ("file_name", "filename", "image_path", "image") if _named(row, key)), None)
        text_field = next((key for key in ("captions", "sentences", "caption") if key in row), None)
        if name_field is None or text_field is None:
            raise RequestError(
                f"{where}: has no file name and captions that are known; it has {', '.join(map(str, row))}"
            )
        folder = str(row.get("filepath") or "")
        name = f"{folder}/{row[name_field]}" if folder and name_field == "filename" else str(row[name_field])
        yield KarpathyEntry(
            id=_identifier(row, name),
            file_name=name,
            captions=_texts(row[text_field], where),
            annotation_ids=_annotation_ids(row),
            objects=row.get("objects"),
        )


def _named(row: Mapping[str, object], key: str) -> bool:
    return isinstance(row.get(key), str)


def _identifier(row: Mapping[str, object], name: str) -> str:
    for key in ("image_id", "cocoid"):
        if key in row:
            return str(row[key])
    return coco_id(name) or Path(name).stem


def _texts(value: object, where: str) -> list[str]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, Sequence):
        raise RequestError(f"{where}: captions are {type(value).__name__}, expected a list of texts")
    texts = [text.get("raw") if isinstance(text, Mapping) else text for text in values]
    if not all(isinstance(text, str) for text in texts):
        raise RequestError(f"{where}: captions are {value!r:.60}, expected a list of texts")
    return [str(text) for text in texts]


def _annotation_ids(row: Mapping[str, object]) -> list[str]:
    values = row.get("annotation_ids", row.get("sentids", ()))
    return [str(value) for value in values][:FIVE] if isinstance(values, Sequence) else []
