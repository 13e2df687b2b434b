"""Captions of the same images in several languages: the form of COCO-SM, xFlickr&CO, XTD10 and the like."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from store.errors import RequestError
from store.types import Corpus, ImageSource
from tasks.corpora.build import build_corpus
from tasks.corpora.files import read_text
from tasks.corpora.images.image_files import Missing, image_id_of, locate_images
from tasks.corpora.rows import CaptionRow, ImageRow


class Translation(NamedTuple):
    """The captions of one image in one language, in the order of their originals."""

    image_id: str
    texts: Sequence[str]
    language: str
    translator: str = "human"


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


def line_corpus(
    name: str,
    image_names: Sequence[str],
    files: Mapping[str, Path],
    *,
    images: str | Path | None,
    missing: Missing,
    licence: str,
    origin: str,
) -> Corpus:
    """The corpus of a text file per language, plain or gzipped, whose lines are the captions of the images in order.

    Args:
        image_names: File names of the images.
        files: Language -> its file.
        images: Folder of the image files; None for texts and ids only.

    Raises:
        RequestError: A file cannot be read, has more or fewer lines than there are images, or an image is missing.
    """
    rows = [ImageRow(image_id_of(image), image) for image in image_names]
    translations = []
    for language, file in files.items():
        texts = _lines(file)
        if len(texts) != len(rows):
            raise RequestError(f"{file}: expected {len(rows)} captions in {language!r}, got {len(texts)}")
        translations += [Translation(row.id, [text], language) for row, text in zip(rows, texts, strict=True)]
    return multilingual_corpus(name, rows, translations, images=images, missing=missing, licence=licence, origin=origin)


def _lines(file: Path) -> list[str]:
    if file.suffix == ".gz":
        try:
            text = gzip.decompress(file.read_bytes()).decode("utf-8")
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise RequestError(f"{file}: cannot be read ({error})") from error
    else:
        text = read_text(file)
    return text.removesuffix("\n").split("\n")  # not splitlines, which also splits at other separators
