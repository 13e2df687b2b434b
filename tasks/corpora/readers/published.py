"""Corpora that somebody has published: their rows in one of three forms, and what ``corpora.toml`` says about them.

* translations: captions of the same images in several languages, as of COCO-SM, xFlickr&CO and XTD10;
* hard negatives: images with captions and hard negative captions, as of ARO, CREPE, NegBench and SugarCrepe;
* quadruples: two images and the caption of each, as of Winoground, BiVLC and MMVP-VLM.
"""

from __future__ import annotations

import ast
import gzip
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from capim.store.errors import RequestError
from capim.store.types import Corpus, ImageSource
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.build import CaptionRow, ImageRow, PairRow, QuadrupleRow, build_corpus
from capim.tasks.corpora.files import read_text
from capim.tasks.corpora.images.crops import Crops, crop_key
from capim.tasks.corpora.images.image_files import Missing, image_id_of, locate_images

Box: TypeAlias = tuple[int, int, int, int]  # left, top, width and height in pixels


class Contents(NamedTuple):
    """The rows of a corpus; the key of an image is the name of its file, or its key in the source."""

    images: Sequence[ImageRow]
    captions: Iterable[CaptionRow]
    pairs: Sequence[PairRow] = ()
    quadruples: Sequence[QuadrupleRow] = ()
    boxes: Sequence[Box | None] = ()  # of each image that is a box of its file


def published_corpus(
    reader: str,
    contents: Contents,
    *,
    images: str | Path | Sequence[str | Path] | None = None,
    missing: Missing = "error",
    part: str = "",
    source: ImageSource | None = None,
    origin: str = "",
) -> Corpus:
    """The corpus of these rows, without images that were left out and what refers to them.

    Args:
        reader: Its key in ``CORPORA``, and the name of the corpus.
        images: Folder, or folders, of the image files; None if ``source`` reads them or if there are none.
        part: What of the data set it is, put after the name; empty for the usual part.
        source: Reads the images if they are not files in a folder.
        origin: Where it was read from, if not at the address in the table of corpora.
    """
    entry = CORPORA[reader]
    origin = origin or entry.origin
    located = locate_images(contents.images, images, missing=missing, origin=origin)
    rows, source = located.rows, located.source or source
    if contents.boxes:
        box_of = {row.id: box for row, box in zip(contents.images, contents.boxes, strict=True)}
        rows = [row if (box := box_of[row.id]) is None else row._replace(key=crop_key(row.key, *box)) for row in rows]
        source = source and Crops(source)
    return build_corpus(
        f"{reader}-{part}" if part else reader,
        rows,
        contents.captions,
        source=source,
        pairs=contents.pairs,
        quadruples=contents.quadruples,
        skipped=located.skipped,
        licence=entry.licence,
        origin=origin,
    )


class Translation(NamedTuple):
    """The captions of one image in one language, in the order of their originals."""

    image_id: str
    texts: Sequence[str]
    language: str
    translator: str = "human"


def translations(images: Sequence[ImageRow], texts: Iterable[Translation]) -> Contents:
    """The rows of captions in several languages.

    A caption's id is ``image#language-translator-ordinal`` (``-translator`` only if it is not human), so that the
    translations of one caption differ in the middle only.
    """

    def captions() -> Iterator[CaptionRow]:
        for image, each, language, translator in texts:
            by = "" if translator == "human" else f"-{translator}"
            for ordinal, text in enumerate(each):
                yield CaptionRow(f"{image}#{language}{by}-{ordinal}", image, text, ordinal, language, translator)

    return Contents(images, captions())


def line_translations(image_names: Sequence[str], files: Mapping[str, Path]) -> Contents:
    """The rows of a text file per language, plain or gzipped, whose lines are the captions of the images in order.

    Raises:
        RequestError: A file cannot be read, or has more or fewer lines than there are images.
    """
    rows = [ImageRow(image_id_of(image), image) for image in image_names]
    found = []
    for language, file in files.items():
        texts = _lines(file)
        if len(texts) != len(rows):
            raise RequestError(f"{file}: expected {len(rows)} captions in {language!r}, got {len(texts)}")
        found += [Translation(row.id, [text], language) for row, text in zip(rows, texts, strict=True)]
    return translations(rows, found)


def _lines(file: Path) -> list[str]:
    if file.suffix == ".gz":
        try:
            text = gzip.decompress(file.read_bytes()).decode("utf-8")
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise RequestError(f"{file}: cannot be read ({error})") from error
    else:
        text = read_text(file)
    return text.removesuffix("\n").split("\n")  # not splitlines, which also splits at other separators


class HardNegativeItem(NamedTuple):
    """One image, or a box of it, with its caption and its hard negatives.

    Attributes:
        id: Id of the item and of its caption.
        image: Items of the same image have rows with the same id.
        caption: The caption that describes the image.
        negatives: ``(category, text)`` of each hard negative.
        box: The box; None for the complete image.
        further: More captions that describe the image; their ids are ``id/2``, ``id/3`` …
    """

    id: str
    image: ImageRow
    caption: str
    negatives: Sequence[tuple[str, str]]
    box: Box | None = None
    further: Sequence[str] = ()


def hard_negatives(items: Sequence[HardNegativeItem], *, numbered: bool = True) -> Contents:
    """The rows of these items: all captions, then all negatives, and a pair for each caption and negative.

    The pairs of a caption share its ``caption_id``, so that "wins against all its negatives" follows from the pairs.
    Negatives belong to no image. Pairs and negatives are numbered within their item, ``item/0`` and
    ``item/negative-0``, unless every item has one negative, with the id ``item/negative``.
    """
    captions, negatives, pairs = [], [], []
    for item in items:
        ends = ["", *(f"/{n}" for n in range(2, 2 + len(item.further)))]
        texts = zip(ends, (item.caption, *item.further), strict=True)
        captions += [CaptionRow(f"{item.id}{end}", item.image.id, text) for end, text in texts]
        for n, (category, text) in enumerate(item.negatives):
            pair = f"{item.id}/{n}" if numbered else item.id
            negative = f"{item.id}/negative-{n}" if numbered else f"{item.id}/negative"
            negatives.append(CaptionRow(negative, None, text))
            pairs += [PairRow(f"{pair}{end}", item.image.id, f"{item.id}{end}", negative, category) for end in ends]
    of_image = {item.image.id: item for item in items}.values()
    boxes = [item.box for item in of_image] if any(item.box for item in of_image) else []
    return Contents([item.image for item in of_image], [*captions, *negatives], pairs, boxes=boxes)


def literal_texts(value: str, where: str) -> list[str]:
    """The Python list of texts that a cell holds; only literals are read, never expressions.

    Raises:
        RequestError: It is anything else.
    """
    try:
        texts = ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        texts = None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RequestError(f"{where}: expected a list of texts, got {value!r:.60}")
    return texts


class QuadrupleItem(NamedTuple):
    """One quadruple: its id, the keys and the captions of its two images, and the parts that it belongs to."""

    id: str
    keys: Sequence[str]
    captions: Sequence[str]
    tags: Sequence[str] = ()


def quadruples(items: Iterable[QuadrupleItem]) -> Contents:
    """The rows of these items; the images and the captions of one have the ids ``id/0`` and ``id/1``."""
    images, captions, rows = [], [], []
    for item in items:
        ids = (f"{item.id}/0", f"{item.id}/1")
        images += [ImageRow(*row) for row in zip(ids, item.keys, strict=True)]
        captions += [CaptionRow(id_, id_, text) for id_, text in zip(ids, item.captions, strict=True)]
        rows.append(QuadrupleRow(item.id, *ids, *ids, item.tags))
    return Contents(images, captions, quadruples=rows)
