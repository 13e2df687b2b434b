"""The blocks with pictures: single queries and result lists. See ``reports.elements.page``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class Hit:
    """One entry of a result list.

    Attributes:
        place: ``"1"`` for the best.
        label: Caption text, or image id.
        thumbnail: Key into ``Report.thumbnails``; empty for a caption or where there is none.
        score: As read.
        right: Whether it counts as relevant.
    """

    place: str
    label: str
    thumbnail: str
    score: str
    right: bool


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one encoder answered to a query: where the right item came, and the top of its list."""

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
        thumbnail: Of a query that is an image.
        expected: What was right.
        answers: One per encoder.
        tags: What the filters match: kind of failure, caption features, encoders that fail.
        labels: Those of the tags that are shown.
        summary: One line: who failed and who did not.
        unfolded: Whether the answers show at once.
    """

    id: str
    query: str
    thumbnail: str
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
        caption: What was asked.
        thumbnail: Of the query, if it is an image.
        hits: Best first.
        note: Encoder, corpus, how it was searched.
    """

    kind: ClassVar[str] = "grid"
    id: str
    caption: str
    hits: tuple[Hit, ...]
    thumbnail: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Thumbnail:
    """One small picture, kept once however often it is shown."""

    key: str
    data_uri: str
