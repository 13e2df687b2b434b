"""Images with captions and hard negative captions: the form of ARO, CREPE, NegBench, SugarCrepe and SugarCrepe++."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from store.errors import RequestError
from store.types import Corpus, ImageSource
from tasks.corpora.build import build_corpus
from tasks.corpora.images.crops import Crops, crop_key
from tasks.corpora.images.image_files import Missing, locate_images
from tasks.corpora.rows import CaptionRow, ImageRow, PairRow


class HardNegativeItem(NamedTuple):
    """One image, or a box of it, with its caption and its hard negatives.

    Attributes:
        id: Id of the item and of its caption.
        image: Items of the same image have rows with the same id.
        caption: The caption that describes the image.
        negatives: ``(category, text)`` of each hard negative.
        box: Left, top, width and height of the box in pixels; None for the complete image.
        further: More captions that describe the image; their ids are ``id/2``, ``id/3`` …
    """

    id: str
    image: ImageRow
    caption: str
    negatives: Sequence[tuple[str, str]]
    box: tuple[int, int, int, int] | None = None
    further: Sequence[str] = ()


def hard_negatives_corpus(
    name: str,
    items: Sequence[HardNegativeItem],
    *,
    images: str | Path | Sequence[Path] | None,
    missing: Missing,
    licence: str,
    origin: str,
    source: ImageSource | None = None,
    numbered: bool = True,
) -> Corpus:
    """The corpus of these items: all captions, then all negatives, and a pair for each caption and negative.

    The pairs of a caption share its ``caption_id``, so that "wins against all its negatives" follows from the pairs.
    Negatives belong to no image.

    Args:
        images: Folder, or folders, of the image files; None if ``source`` reads them or if there are none.
        source: Reads the images if they are not files in a folder.
        numbered: Number pairs and negatives within their item: ``item/0``, ``item/negative-0``. If false, an item
            has one negative, and the ids are ``item`` and ``item/negative``.
    """
    box_of = {item.image.id: item.box for item in items}
    image_rows = {item.image.id: item.image for item in items}.values()
    located = locate_images(image_rows, images, missing=missing, origin=origin)
    rows = [
        row if (box := box_of[row.id]) is None else row._replace(key=crop_key(row.key, *box)) for row in located.rows
    ]
    if located.source is not None:
        source = Crops(located.source) if any(box_of.values()) else located.source
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
    return build_corpus(
        name,
        rows,
        [*captions, *negatives],
        source=source,
        pairs=pairs,
        skipped=located.skipped,
        licence=licence,
        origin=origin,
    )


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
