"""Captions of the same images in several languages: the form of COCO-SM, xFlickr&CO, XTD10 and the like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from store.errors import RequestError
from store.types import Corpus, ImageSource
from tasks.corpora.build import build_corpus
from tasks.corpora.images.image_files import Missing, locate_images
from tasks.corpora.rows import CaptionRow, ImageRow


class Translation(NamedTuple):
    """The captions of one image in one language, in the order of their originals."""

    image_id: str
    texts: Sequence[str]
    language: str
    translator: str = "human"


def line_translations(
    rows: Sequence[ImageRow], lines: Mapping[str, Sequence[str]], where: object
) -> Iterator[Translation]:
    """One translation per image and language, from the lines of a file per language.

    Raises:
        RequestError: A file has more or fewer lines than there are images.
    """
    for language, texts in lines.items():
        if len(texts) != len(rows):
            raise RequestError(f"{where}: expected {len(rows)} captions in {language!r}, got {len(texts)}")
        yield from (Translation(row.id, [text], language) for row, text in zip(rows, texts, strict=True))


def multilingual_corpus(
    name: str,
    rows: Sequence[ImageRow],
    translations: Iterable[Translation],
    *,
    images: str | Path | Sequence[str | Path] | None,
    missing: Missing,
    licence: str,
    origin: str,
    source: ImageSource | None = None,
) -> Corpus:
    """The corpus of these translations, without those of images that were left out.

    A caption's id is ``image#language-translator-ordinal`` (``-translator`` only if it is not human), so that the
    translations of one caption differ in the middle only.

    Args:
        rows: Its images; the key is the file name.
        images: Folder, or folders, of the image files; None if ``source`` reads them or if there are none.
        source: Reads the images if they are not files in a folder.
    """
    located = locate_images(rows, images, missing=missing, origin=origin)

    def captions() -> Iterator[CaptionRow]:
        for image, texts, language, translator in translations:
            by = "" if translator == "human" else f"-{translator}"
            for ordinal, text in enumerate(texts):
                yield CaptionRow(f"{image}#{language}{by}-{ordinal}", image, text, ordinal, language, translator)

    return build_corpus(
        name,
        located.rows,
        captions(),
        source=located.source or source,
        skipped=located.skipped,
        licence=licence,
        origin=origin,
    )
