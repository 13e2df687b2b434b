"""Images that search images: landmarks, images with a text that changes them, and pairs that people rated.

The form is reported by the names that the file has: ``imlist``, ``qimlist`` and ``gnd`` (Revisited Oxford and Paris);
``reference``, ``target_hard`` and ``img_set`` (CIRR); ``candidate``, ``target`` and ``captions`` (FashionIQ);
``reference_img_id`` and ``gt_img_ids`` (CIRCO); else a table of the form ``composed`` or ``ratings``.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from capim.store.errors import RequestError, some
from capim.store.files import reading
from capim.store.forms import NO_COLUMNS, Columns, option
from capim.store.schema import COMPOSED, EXCLUDED, REVISITED, SIMILARITY, SUBSET
from capim.store.sets.lists import finite
from capim.store.tables import open_table, read_json
from capim.store.types import Corpus
from capim.tasks.corpora.build import CaptionRow, ImageRow, RelevanceRow
from capim.tasks.corpora.files import corpus_name, require_file, said
from capim.tasks.corpora.images.image_files import locate_images
from capim.tasks.corpora.images.source import Crops, crop_key
from capim.tasks.corpora.readers.forms import TableRows, form_of, rows_by_role

_GRADES = {"easy": 2, "hard": 1, "junk": 0}
_NONE = (("none", "an image", None),)  # a corpus has texts: this one is no query, and no item of a gallery
_JOINED = " and "  # the two captions of FashionIQ, as its baselines join them


class _Asked(NamedTuple):
    """The content of a file: images (box by query), texts with the image that they change, and the right answers."""

    images: Mapping[str, Sequence[float] | None]
    texts: Sequence[tuple[str, str, str]]  # id, text, reference
    relevance: Sequence[RelevanceRow]


def read_image_queries(
    root: str | Path,
    *,
    images: str | Path | None = None,
    gallery: str | Path | None = None,
    columns: Columns | None = None,
    ids_only: bool = False,
    language: str = "en",
    name: str | None = None,
) -> Corpus:
    """Return the images that a file names, in its order, and its statements about pairs of them.

    Args:
        root: The file: ``gnd_roxford5k.pkl`` (or as JSON), ``cap.rc2.val.json``, ``cap.dress.val.json``, CIRCO's
            ``val.json``, or a table.
        images: Folder of the image files; unless given, that of the file.
        gallery: A JSON list of names of images that are searched too, or an object with these names (CIRR's and
            FashionIQ's files of splits).
        columns: Role -> column, of a table.
        ids_only: Use no images, for embeddings that were made elsewhere.
        language: Of the texts.

    Raises:
        RequestError: The file has none of these forms, or an image is missing.
    """
    path = require_file(Path(root).expanduser().absolute(), "file")
    with reading(path):
        asked = _read(path, columns or NO_COLUMNS)
    boxes = dict(asked.images)
    for more in read_json(Path(gallery)) if gallery else ():
        boxes.setdefault(str(more), None)
    folder = None if ids_only else images or path.parent
    located = locate_images([ImageRow(image) for image in boxes], folder, origin=path)
    if gallery is None:
        located.tell_unnamed(path, "; gallery = FILE.json names images that are searched, too (docs/labels.md)")
    if any(box is not None for box in boxes.values()) and located.source is not None:
        located = located._replace(source=Crops(located.source))
    located = located._replace(rows=[_cropped(row, boxes[row.id]) for row in located.rows])
    texts = (
        CaptionRow(id_, None, text, language=language, query_group=image) for id_, text, image in asked.texts or _NONE
    )
    origin = str(path)
    return located.corpus(name or corpus_name(path), texts, relevance=asked.relevance, origin=origin)


def _cropped(row: ImageRow, box: Sequence[float] | None) -> ImageRow:
    """Return the image, or its box: left, top, right and bottom in pixels, each rounded as Pillow's ``crop`` does."""
    if box is None:
        return row
    left, top, right, bottom = (round(float(end)) for end in box)
    return row._replace(key=crop_key(row.key or row.id, left, top, right - left, bottom - top))


def _read(path: Path, columns: Columns) -> _Asked:
    content = _unpickled(path) if path.suffix == ".pkl" else read_json(path) if path.suffix == ".json" else None
    if isinstance(content, dict) and {"imlist", "qimlist", "gnd"} <= content.keys():
        return _landmarks(path, content)
    rows: list[Mapping[str, Any]] = [*(open_table(path)[1] if content is None else content)]
    known = list(map(str, rows[0])) if rows and isinstance(rows[0], Mapping) else []
    for fields, read in _PUBLISHED:
        if {*fields} <= {*known}:
            return _composed(read(rows))
    name = form_of("", known, columns) or ""
    if name not in _OWN:
        raise RequestError(
            f"{path}: no queries with images in it; expected imlist, qimlist and gnd (Revisited Oxford), the fields of "
            "CIRR, FashionIQ or CIRCO, or a table with reference, caption and target, or with image1, image2 and "
            f"score; {option('score')} if it has another; it has {some(known, 8) if known else type(content).__name__}"
        )
    return _OWN[name](rows_by_role(name, TableRows(str(path), known, rows), columns), path)


def _landmarks(path: Path, content: Mapping[str, Any]) -> _Asked:
    searched, queries, truth = content["imlist"], content["qimlist"], content["gnd"]
    if len(queries) != len(truth):
        raise RequestError(f"{path}: {len(queries)} queries in qimlist and {len(truth)} in gnd")
    boxes = {query: judged.get("bbx") for query, judged in zip(queries, truth, strict=True)}
    if both := [image for image in dict.fromkeys(searched) if boxes.get(image) is not None]:
        raise RequestError(f"{path}: queries with a box are also in imlist, whole: {some(both)}; give them other names")
    answers = [
        (query, at, grade)
        for query, judged in zip(queries, truth, strict=True)
        for what, grade in _GRADES.items()
        for at in judged.get(what, ())
    ]
    if beyond := [f"{at} of {query!r}" for query, at, _ in answers if not 0 <= at < len(searched)]:
        raise RequestError(f"{path}: places that imlist, of {len(searched)} images, does not have: {some(beyond)}")
    rows = [RelevanceRow(REVISITED, "i2i", query, searched[at], grade) for query, at, grade in answers]
    return _Asked({**boxes, **dict.fromkeys(searched)}, (), rows)


def _rated(rows: Iterable[Mapping[str, Any]], path: Path) -> _Asked:
    pairs = []
    for number, row in enumerate(rows, start=1):
        if (score := finite(row["score"])) is None:
            raise RequestError(f"{path}: row {number}: expected a number as score, got {row['score']!r}")
        pairs.append((str(row["image1"]), str(row["image2"]), round(1000 * score)))
    relevance = [RelevanceRow(SIMILARITY, "i2i", *pair) for pair in pairs]
    return _Asked(dict.fromkeys(image for one, other, _ in pairs for image in (one, other)), (), relevance)


class _Text(NamedTuple):
    """A text that changes an image, its target, its hard negatives, and the images that are not searched."""

    id: str
    text: str
    reference: str
    targets: Sequence[str]
    subset: Sequence[str] = ()
    excluded: Sequence[str] = ()


def _cirr(rows: Iterable[Mapping[str, Any]]) -> Iterator[_Text]:
    """Yield the texts of CIRR; the reference is no item of the gallery, nor of the subset."""
    for row in rows:
        reference, target = row["reference"], row["target_hard"]
        members = [image for image in row["img_set"]["members"] if image != reference]
        yield _Text(str(row["pairid"]), row["caption"], reference, [target], members, [reference])


def _fashion_iq(rows: Iterable[Mapping[str, Any]]) -> Iterator[_Text]:
    for at, row in enumerate(rows):
        yield _Text(
            str(at), _JOINED.join(text.strip(" .?") for text in row["captions"]), row["candidate"], [row["target"]]
        )


def _circo(rows: Iterable[Mapping[str, Any]]) -> Iterator[_Text]:
    """Yield the texts of CIRCO; images are named by COCO's twelve digits."""
    for row in rows:
        targets = [f"{int(image):012d}.jpg" for image in row["gt_img_ids"]]
        yield _Text(str(row["id"]), row["relative_caption"], f"{int(row['reference_img_id']):012d}.jpg", targets)


def _plain(rows: Iterable[Mapping[str, Any]], path: Path) -> Iterator[_Text]:
    for at, row in enumerate(rows):
        targets = row["target"] if isinstance(row["target"], list) else [str(row["target"])]
        name, texts = str(row.get("id", at)), said(row["caption"], f"{path}: row {at + 1}")
        for n, text in enumerate(texts):
            yield _Text(f"{name}#{n}" if len(texts) > 1 else name, text, str(row["reference"]), targets)


_PUBLISHED = (
    (("reference", "target_hard", "img_set"), _cirr),
    (("candidate", "target", "captions"), _fashion_iq),
    (("reference_img_id", "gt_img_ids"), _circo),
)


def _composed(texts: Iterable[_Text]) -> _Asked:
    found = list(texts)
    images = [image for text in found for image in (text.reference, *text.targets, *text.subset)]
    rows = [
        RelevanceRow(truth, "t2i", text.id, image)
        for text in found
        for truth, some in ((COMPOSED, text.targets), (SUBSET, text.subset), (EXCLUDED, text.excluded))
        for image in dict.fromkeys(some)
    ]
    return _Asked(dict.fromkeys(images), [(text.id, text.text, text.reference) for text in found], rows)


_OWN: Mapping[str, Callable[[Iterable[Mapping[str, Any]], Path], _Asked]] = {
    "ratings": _rated,
    "composed": lambda rows, path: _composed(_plain(rows, path)),
}


class _PlainPickle(pickle.Unpickler):
    """Lists, dictionaries, numbers, texts and arrays; a file that names anything else is refused, not run."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a function that makes arrays; raise ``RequestError`` for any other name."""
        if module.partition(".")[0] == "numpy" and name in ("_reconstruct", "ndarray", "dtype", "scalar"):
            return super().find_class(module, name)
        raise RequestError(f"the file would run {module}.{name}; save it as JSON if you trust it")


def _unpickled(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return _PlainPickle(file).load()
    except pickle.UnpicklingError as error:
        raise RequestError(f"{path} cannot be read as .pkl: {error}") from error
