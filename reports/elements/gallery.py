"""Blocks with pictures: single queries and result lists (see ``reports.elements.page``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class Hit:
    """One entry of a result list.

    Attributes:
        rank: ``"1"`` for the best; empty outside a ranked list.
        label: Caption text, or image id.
        thumbnail: Key into ``Report.thumbnails``; empty for a caption or where there is none.
        score: As read.
        right: Whether it counts as relevant.
    """

    rank: str
    label: str
    thumbnail: str
    score: str
    right: bool


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One encoder's result for a query: the rank of the relevant item and the top of the list."""

    encoder: str
    rank: str
    right: bool
    hits: tuple[Hit, ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One query of the gallery.

    Attributes:
        id: Anchor.
        query: Caption text or image id.
        expected: The relevant items.
        answers: One per encoder.
        tags: What the filters match: kind of failure, caption features, encoders that fail.
        labels: The tags that are displayed.
        summary: One line: which encoders rank the relevant item first and which do not.
        unfolded: Whether the answers are open at first.
    """

    id: str
    query: str
    expected: tuple[Hit, ...]
    answers: tuple[Answer, ...]
    tags: tuple[str, ...]
    labels: tuple[str, ...]
    summary: str
    unfolded: bool = False


@dataclass(frozen=True, kw_only=True)
class Filter:
    """One select box over a gallery: a label and the tags that it offers."""

    label: str
    options: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Queries with pictures, filtered by their tags."""

    kind: ClassVar[str] = "gallery"
    id: str
    caption: str
    filters: tuple[Filter, ...]
    cases: tuple[Case, ...]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One result list, large.

    Attributes:
        id: Anchor.
        caption: The query.
        thumbnail: Of the query, if it is an image.
        hits: Best first.
        note: Encoder, corpus and search method.
    """

    kind: ClassVar[str] = "grid"
    id: str
    caption: str
    hits: tuple[Hit, ...]
    thumbnail: str = ""
    note: str = ""
