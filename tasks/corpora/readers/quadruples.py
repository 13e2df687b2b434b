"""Two images and the caption of each: the form of Winoground, BiVLC and MMVP-VLM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from store.types import Corpus, ImageSource
from tasks.corpora.build import build_corpus
from tasks.corpora.images.image_files import Missing, locate_images
from tasks.corpora.rows import CaptionRow, ImageRow, QuadrupleRow


class QuadrupleItem(NamedTuple):
    """One quadruple; its images and its captions have the ids ``id/0`` and ``id/1``.

    Attributes:
        id: Id of the quadruple.
        keys: File names of the two images, or their keys in the source.
        captions: The captions of the two images.
        tags: Parts of the corpus that it belongs to.
    """

    id: str
    keys: Sequence[str]
    captions: Sequence[str]
    tags: Sequence[str] = ()


def quadruples_corpus(
    name: str,
    items: Iterable[QuadrupleItem],
    *,
    images: str | Path | None,
    licence: str,
    origin: str,
    missing: Missing = "error",
    source: ImageSource | None = None,
) -> Corpus:
    """The corpus of these items, in their order.

    Args:
        images: Folder of the image files; None if ``source`` reads them or if there are none.
        source: Reads the images if they are not files in a folder.
    """
    rows, captions, quadruples = [], [], []
    for item in items:
        ids = (f"{item.id}/0", f"{item.id}/1")
        rows += [ImageRow(*row) for row in zip(ids, item.keys, strict=True)]
        captions += [CaptionRow(id_, id_, text) for id_, text in zip(ids, item.captions, strict=True)]
        quadruples.append(QuadrupleRow(item.id, *ids, *ids, item.tags))
    located = locate_images(rows, images, missing=missing, origin=origin)
    return build_corpus(
        name,
        located.rows,
        captions,
        source=located.source or source,
        quadruples=quadruples,
        skipped=located.skipped,
        licence=licence,
        origin=origin,
    )
