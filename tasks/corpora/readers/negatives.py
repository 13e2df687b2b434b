"""Image, caption and several hard negatives: the form of ARO and CREPE, whose pairs share their ``caption_id``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tasks.corpora.rows import CaptionRow, PairRow


class Described(Protocol):
    """One image (of the same id) with its caption and its hard negatives, each under a category."""

    @property
    def id(self) -> str:
        """Of the item: of its image and of its caption."""

    @property
    def caption(self) -> str:
        """What the image shows."""

    @property
    def negatives(self) -> Sequence[tuple[str, str]]:
        """``(category, text)`` each."""


def negative_captions(items: Sequence[Described]) -> Iterator[CaptionRow]:
    """All captions, then all negatives; negatives belong to no image."""
    for item in items:
        yield CaptionRow(item.id, item.id, item.caption)
    for item in items:
        for n, (_, text) in enumerate(item.negatives):
            yield CaptionRow(f"{item.id}/negative-{n}", None, text)


def negative_pairs(items: Sequence[Described]) -> Iterator[PairRow]:
    """A pair for each negative."""
    for item in items:
        for n, (category, _) in enumerate(item.negatives):
            yield PairRow(f"{item.id}/{n}", item.id, item.id, f"{item.id}/negative-{n}", category)
