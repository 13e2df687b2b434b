"""Captions of the same images in several languages -> one corpus; the form of COCO-SM, xFlickr&CO, XTD and the like."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from store.types import Corpus, ImageSource
from tasks.corpora.build import build_corpus
from tasks.corpora.rows import CaptionRow, ImageRow, SkippedRow


class Translation(NamedTuple):
    """The captions of one image in one language, in the order of their originals."""

    image_id: str
    texts: Sequence[str]
    language: str
    translator: str = "human"


def multilingual_corpus(
    name: str,
    images: Sequence[ImageRow],
    translations: Iterable[Translation],
    *,
    source: ImageSource | None,
    skipped: Sequence[SkippedRow] = (),
    licence: str,
    origin: str,
) -> Corpus:
    """The corpus of these translations, those of images that were left out dropped.

    A caption's id is ``image#language-translator-ordinal`` (``-translator`` only where it is not human), so that the
    translations of one caption differ in the middle alone.
    """
    left_out = {row.image_id for row in skipped}

    def captions() -> Iterable[CaptionRow]:
        for image, texts, language, translator in translations:
            if image in left_out:
                continue
            by = "" if translator == "human" else f"-{translator}"
            for ordinal, text in enumerate(texts):
                yield CaptionRow(f"{image}#{language}{by}-{ordinal}", image, text, ordinal, language, translator)

    return build_corpus(name, images, captions(), source=source, skipped=skipped, licence=licence, origin=origin)
