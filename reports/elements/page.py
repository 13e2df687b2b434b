"""The values that a template displays: a report, its sections and their blocks; every number is already a string.

Rounding, units and choices of words are made in ``reports.sections`` with ``reports.format``. Text from a corpus
(captions, file names, reasons of errors) is plain ``str`` and escaped by the renderer. Only :class:`Chart` carries
markup, made by ``reports.elements.charts``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias


class Printed:
    """A block of a section."""

    @property
    def kind(self) -> str:
        """The macro of the templates that prints it."""
        return type(self).__name__.lower()


# --- Blocks with pictures: single queries and result lists (see ``reports.elements.page``).


@dataclass(frozen=True, kw_only=True)
class Hit:
    """One entry of a result list.

    Attributes:
        rank: ``"1"`` for the best; empty outside a ranked list.
        label: Caption text, or image id.
        thumbnail: Key into ``Report.thumbnails``; empty for a caption or where there is none.
        score: As read.
        right: Whether it counts as relevant.
        item: Id of the image or caption, where it can be judged.
    """

    rank: str
    label: str
    thumbnail: str
    score: str
    right: bool
    item: str = ""


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
        asked: The same for a line of judgements.
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
    asked: tuple[str, ...] = ()
    relevant: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Filter:
    """One select box over a gallery: its name in the page's address, its label, and the values that it offers."""

    name: str
    label: str
    options: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Gallery(Printed):
    """Queries with pictures, filtered by their tags.

    ``totals`` are numbers of queries that the script shows beside those of the filtered cases; see ``page.js``.
    """

    id: str
    caption: str
    filters: tuple[Filter, ...]
    cases: tuple[Case, ...]
    totals: tuple[Mapping[str, object], ...] = ()
    note: str = ""


Mark: TypeAlias = Literal["", "best", "good", "warn", "bad", "muted"]


@dataclass(frozen=True, kw_only=True)
class Bar:
    """An interval drawn below a number, in CSS percentages of the column's axis.

    Attributes:
        low: Left end of the interval, e.g. ``"41.2%"``.
        high: Right end.
        point: Position of the value.
        chance: Position of chance; empty where it is unknown or off the axis.
    """

    low: str
    high: str
    point: str
    chance: str = ""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: The value as displayed: ``"46.3"``, ``"LAION-CLIP-H"``, ``"–"`` for a missing one.
        note: Small print after it, such as the interval.
        state: What the tests say of it, in words: ``"equivalent"``, ``"4.3 points worse"``, ``"below chance"``.
        title: Tooltip: exact value, ties, reason of a missing value.
        sort: The exact number to sort by; empty to sort by ``text``.
        mark: Emphasis.
        bar: The interval as a picture.
        link: The address of the failures behind a figure.
        unit: Of the number as displayed, or of ``sort`` where the text names one: for the headings of CSV.
    """

    text: str
    note: str = ""
    state: str = ""
    title: str = ""
    sort: str = ""
    mark: Mark = ""
    bar: Bar | None = None
    link: str = ""
    unit: str = ""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table: its heading, the heading of its group, its alignment and a tooltip.

    For CSV also the unit of its numbers, and what the ``state`` of its cells is, if not a verdict.
    """

    heading: str
    group: str = ""
    numeric: bool = False
    explain: str = ""
    unit: str = ""
    says: str = ""


@dataclass(frozen=True, kw_only=True)
class Table(Printed):
    """Rows and columns; the first cell of a row names the row.

    Attributes:
        id: Unique in the report; an anchor.
        caption: The content, in one line.
        columns: One per cell of every row.
        rows: The cells.
        note: Explanation below the table.
        folded: Label of the line behind which the table is folded; empty for an open one.
        choice: The choice of the section with which the page shows it; empty: always.
    """

    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    folded: str = ""
    choice: str = ""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.id!r}: row {number} has {len(row)} cells for {len(self.columns)} columns"
                )


Pair: TypeAlias = tuple[str, str, float, float, float]
"""The state of a first encoder against a second, in words, and the difference with its interval, in displayed units."""


@dataclass(frozen=True, kw_only=True)
class Board(Printed):
    """Encoders in rows and tasks in columns, one line a row, compared with the highest or with a chosen encoder.

    Attributes:
        id: Unique in the report.
        table: The cells, for a reader without scripts too; the first column names the encoders.
        pairs: Of every column after the first, encoder to another encoder to what the tests say; empty without tests.
        hidden: Places of the columns that a reader has to ask for.
        values: Of every column with pairs, the values that a weighted mean is of, by encoder; else empty.
        costs: What a limit can be put on, with its value of every encoder that has one (``reports.rows.choice.Limit``).
    """

    id: str
    table: Table
    pairs: tuple[Mapping[str, Mapping[str, Pair]], ...]
    hidden: tuple[int, ...] = ()
    values: tuple[Mapping[str, float], ...] = ()
    costs: tuple[Mapping[str, object], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Chart(Printed):
    """A chart, interactive and static.

    Attributes:
        id: Unique in the report; names the image files.
        title: The content, in one line.
        alt: The text alternative, with the numbers.
        spec: Vega-Lite JSON, for the page; colours of text and rules are ``currentColor``.
        svg: The same as SVG with ``currentColor``, for markdown and for pages without scripts.
        data: The rows that it shows.
        points: Every value that it draws, with its encoder, its interval and its unit.
        note: Explanation below the chart.
    """

    id: str
    title: str
    alt: str
    spec: str
    svg: str
    data: Table
    points: tuple[Mapping[str, object], ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Text(Printed):
    """A paragraph."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Notice(Printed):
    """A highlighted list."""

    title: str
    items: tuple[str, ...]
    mark: Mark


@dataclass(frozen=True, kw_only=True)
class Evidence(Printed):
    """A list of sentences."""

    lines: tuple[str, ...]


Block: TypeAlias = Text | Notice | Evidence | Table | Board | Chart | Gallery


@dataclass(frozen=True, kw_only=True)
class Section:
    """One part of the report, with the terms that it explains; it is shown only if it has blocks."""

    id: str
    title: str
    lead: str = ""
    blocks: tuple[Block, ...]
    terms: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report.

    Attributes:
        title: First line.
        subtitle: The encoders and corpora.
        facts: Short pairs under the title, such as the number of encoders.
        sections: In reading order.
        thumbnails: Key to the data URI of every picture of the galleries.
        sources: Digest of all rows of the report; equal digests give equal bytes.
        colophon: Last line: the origin of the report.
        answer: The answer, one sentence for every task; empty where the page has none.
        strip: The terms of the answer, each with its explanation.
    """

    title: str
    subtitle: str
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    thumbnails: Mapping[str, str]
    sources: str
    colophon: str
    answer: tuple[str, ...] = ()
    strip: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        ids = [section.id for section in self.sections]
        blocks = [block for section in self.sections for block in section.blocks]
        ids += [block.id for block in blocks if not isinstance(block, Text | Notice | Evidence)]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            raise ValueError(f"report: the ids {', '.join(twice)} are used twice; anchors and files need unique ones")
