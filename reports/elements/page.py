"""What a template may see: a report as frozen values, every number already a string.

A :class:`Report` is sections, a section is blocks, and a block is one of the classes below. Nothing here can
calculate, and nothing in a template has to: rounding, intervals, units, widths of bars and choices of words
are made by ``reports.sections`` with ``reports.format``.

Text that came out of a corpus (captions, file names, reasons of errors) travels as plain ``str`` and is escaped
by the renderer, in HTML and in markdown alike. Only :class:`Chart` carries markup, made by ``reports.elements.charts``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, Literal, TypeAlias

from reports.elements.gallery import Gallery, Grid, Thumbnail

Mark: TypeAlias = Literal["", "best", "tied", "good", "warn", "bad", "muted"]


@dataclass(frozen=True, kw_only=True)
class Bar:
    """An interval drawn behind a number: three places on the column's own axis, as CSS percentages.

    Attributes:
        low: Left end of the interval, e.g. ``"41.2%"``.
        width: Its length, e.g. ``"3.1%"``.
        point: Where the value lies.
        chance: Where chance lies; empty where it is unknown or off the axis.
    """

    low: str
    width: str
    point: str
    chance: str = ""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: The value as read: ``"46.3"``, ``"LAION-CLIP-H"``, ``"–"`` where there is none.
        note: Small print after it: the interval ``"45.5–47.1"``, a sign of significance.
        title: The whole story, for a tooltip: exact value, ties, reason of an absence.
        sort: What sorting compares: the exact number, or empty to compare ``text``.
        mark: How it stands out. Meaning is never in the mark alone.
        bar: The interval as a picture.
        heat: Shade of a heat map, ``"0"`` to ``"8"``; empty for none.
    """

    text: str
    note: str = ""
    title: str = ""
    sort: str = ""
    mark: Mark = ""
    bar: Bar | None = None
    heat: str = ""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table.

    Attributes:
        heading: What it is: ``"R@1"``.
        group: The heading above several columns: a protocol id such as ``"t2i/all"``.
        numeric: Aligned to the right, sorted as numbers, largest first.
        explain: One sentence for a tooltip.
    """

    heading: str
    group: str = ""
    numeric: bool = False
    explain: str = ""


@dataclass(frozen=True, kw_only=True)
class HeadingGroup:
    """A heading over ``span`` neighbouring columns; ``span`` is a string, for the template to print."""

    text: str
    span: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows and columns; the first cell of a row names the row.

    Attributes:
        id: Unique in the report; an anchor.
        caption: What is shown, in one line.
        columns: One per cell of every row.
        rows: The cells.
        note: What a reader must know to read it right.
        sortable: Whether the HTML page offers sorting.
        dense: Many narrow columns: smaller type, headings as short as they are.
        folded: Long: closed at first behind this line. Empty: open.
    """

    kind: ClassVar[str] = "table"
    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    sortable: bool = False
    dense: bool = False
    folded: str = ""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.id!r}: row {number} has {len(row)} cells for {len(self.columns)} columns"
                )

    @property
    def groups(self) -> tuple[HeadingGroup, ...]:
        """The upper line of headings; empty if no column has a group."""
        if not any(column.group for column in self.columns):
            return ()
        return tuple(
            HeadingGroup(text=group, span=str(len(list(members))))
            for group, members in groupby(self.columns, key=lambda column: column.group)
        )


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One picture, three times: interactive, static for light paper, static for dark.

    Attributes:
        id: Unique in the report; names the image files.
        title: What is shown.
        alt: The text alternative: what a reader who cannot see it should know, figures included.
        spec: Vega-Lite JSON, for the page; colours of text and rules are ``currentColor``.
        svg: The same as SVG with ``currentColor``, for paper and for readers without scripts.
        data: The rows behind it.
    """

    kind: ClassVar[str] = "chart"
    id: str
    title: str
    alt: str
    spec: str
    svg: str
    data: Table
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Text:
    """A paragraph."""

    kind: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A paragraph that must not be overlooked."""

    kind: ClassVar[str] = "notice"
    title: str
    items: tuple[str, ...]
    mark: Mark = "warn"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One answer of the verdict.

    Attributes:
        question: ``"Accuracy"``, ``"Speed"`` …
        answer: The names that are tied with the best, the best first.
        figure: The best one's figure with its interval.
        basis: Protocol, metric and corpus that decided.
        reason: Why these and how sure, in one or two sentences.
    """

    question: str
    answer: tuple[str, ...]
    figure: str
    basis: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The verdict: what to choose for what."""

    kind: ClassVar[str] = "choices"
    items: tuple[Choice, ...]


Block: TypeAlias = Text | Notice | Choices | Table | Chart | Gallery | Grid


@dataclass(frozen=True, kw_only=True)
class Section:
    """One part of the report; it exists only if it has something to show."""

    id: str
    title: str
    lead: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """A whole report.

    Attributes:
        title: First line.
        subtitle: What was compared on what.
        facts: Short pairs under the title: when, how many, how sure.
        sections: In reading order.
        thumbnails: Every picture of the galleries.
        sources: Digest of all rows that the report was made from; equal digests give equal bytes.
        colophon: Last line: what it was made from, and where the numbers are.
    """

    title: str
    subtitle: str
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    thumbnails: tuple[Thumbnail, ...]
    sources: str
    colophon: str

    def __post_init__(self) -> None:
        ids = [section.id for section in self.sections]
        ids += [
            block.id
            for section in self.sections
            for block in section.blocks
            if not isinstance(block, Text | Notice | Choices)
        ]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            raise ValueError(f"report: the ids {', '.join(twice)} are used twice; anchors and files need unique ones")
