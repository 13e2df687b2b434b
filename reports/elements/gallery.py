"""Blocks with pictures: single queries and result lists (see ``reports.elements.page``)."""

from __future__ import annotations

from collections.abc import Mapping
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
    """One encoder's result for a query: the rank of the relevant item and the top of the list.

    ``note`` is the reason why a miss is ambiguous; empty where it is not. ``maps`` show where the query matches the
    expected image and the first of the list, for a late-interaction encoder.
    """

    encoder: str
    rank: str
    right: bool
    hits: tuple[Hit, ...]
    note: str = ""
    maps: tuple[Hit, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Case:
    """One query of the gallery.

    Attributes:
        id: Anchor.
        query: Caption text or image id.
        expected: The pictures that belong to the query.
        relevant: Captions that belong to the query, if it is an image.
        about: Corpus, direction and id of the query.
        answers: One per encoder.
        tags: What the filters match: name of a filter to the values that the case has.
        labels: The tags that are displayed.
        summary: One line: which encoders rank the relevant item first and which do not.
    """

    id: str
    query: str
    expected: tuple[Hit, ...]
    answers: tuple[Answer, ...]
    tags: Mapping[str, tuple[str, ...]]
    labels: tuple[str, ...]
    summary: str
    about: str = ""
    relevant: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Filter:
    """One select box over a gallery: its name in the page's address, its label, and the values that it offers."""

    name: str
    label: str
    options: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Queries with pictures, filtered by their tags.

    ``totals`` are numbers of queries that the script shows beside those of the filtered cases; see ``page.js``.
    """

    kind: ClassVar[str] = "gallery"
    id: str
    caption: str
    filters: tuple[Filter, ...]
    cases: tuple[Case, ...]
    totals: tuple[Mapping[str, object], ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Cases:
    """A few cases of the gallery beside each other, with what each encoder puts first."""

    kind: ClassVar[str] = "cases"
    id: str
    caption: str
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
