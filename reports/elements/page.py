"""The values that a template displays: a report, its sections and their blocks; every number is already a string.

Rounding, units and choices of words are made in ``reports.sections`` with ``reports.format``. Text from a corpus
(captions, file names, reasons of errors) is plain ``str`` and escaped by the renderer. Only :class:`Chart` carries
markup, made by ``reports.elements.drawings``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, TypeAlias
from urllib.parse import urlencode


class Printed:
    """A block of a section."""

    @property
    def kind(self) -> str:
        """The macro of the templates that prints it."""
        return type(self).__name__.lower()


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
        caption: The first caption of a wrong picture.
    """

    rank: str
    label: str
    thumbnail: str
    score: str
    right: bool
    item: str = ""
    caption: str = ""


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

    @property
    def first_wrong(self) -> Hit | None:
        """The best-placed result that is not relevant."""
        return next((hit for hit in self.hits if not hit.right), None)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One query of the gallery.

    Attributes:
        id: Anchor.
        query: Caption text or image id.
        expected: The query's correct images.
        relevant: The query's correct captions, if it is an image.
        about: Corpus, direction and id of the query.
        asked: The same as ``about``, for a line of judgements.
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

    @property
    def wrong(self) -> tuple[Answer, ...]:
        """The answers that miss and have a wrong result to show."""
        return tuple(answer for answer in self.answers if not answer.right and answer.first_wrong)

    @property
    def words(self) -> str:
        """The text that a filter searches, in lower case."""
        return " ".join([self.query, *self.relevant, self.about]).lower()


@dataclass(frozen=True, kw_only=True)
class Filter:
    """One select box over a gallery: its name in the page's address, its label, and the values that it offers."""

    name: str
    label: str
    options: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Gallery(Printed):
    """Queries with pictures, filtered by their tags.

    Attributes:
        id: Anchor.
        caption: The number of cases, and of the queries that they are drawn from.
        filters: The select boxes.
        cases: The queries.
        totals: Numbers of queries that the script shows next to those of the filtered cases; see ``page.js``.
        note: Explanation below.
        first: Ids of the cases that the first screen shows.
        wanted: The filters of these cases: name to value.
        lead: The same in words, with the number of stored queries.
        serve: Where `capim serve` shows every query while it runs; empty if that is not known.
    """

    id: str
    caption: str
    filters: tuple[Filter, ...]
    cases: tuple[Case, ...]
    totals: tuple[Mapping[str, object], ...] = ()
    note: str = ""
    first: tuple[str, ...] = ()
    wanted: Mapping[str, str] = field(default_factory=dict)
    lead: str = ""
    serve: str = ""

    @property
    def address(self) -> str:
        """The address of the cases of the first screen."""
        return f"#{self.id}?{urlencode(self.wanted)}"


Mark: TypeAlias = Literal["", "best", "good", "warn", "bad", "muted"]


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
        link: The address of the failures behind a result.
        shade: How dark its ground is in a matrix, from 0 to 9; empty outside one.
    """

    text: str
    note: str = ""
    state: str = ""
    title: str = ""
    sort: str = ""
    mark: Mark = ""
    link: str = ""
    shade: str = ""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table: its heading, the heading of its group, its alignment and a tooltip."""

    heading: str
    group: str = ""
    numeric: bool = False
    explain: str = ""


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
        matrix: True for a matrix with shaded cells.
    """

    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    folded: str = ""
    matrix: bool = False

    @property
    def groups(self) -> tuple[tuple[str, int], ...]:
        """Headings over neighbouring columns, each with their number; empty where no column has one."""
        found = [(group, len(list(same))) for group, same in groupby(column.group for column in self.columns)]
        return tuple(found) if any(group for group, _ in found) else ()

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.id!r}: row {number} has {len(row)} cells for {len(self.columns)} columns"
                )


Kind: TypeAlias = Literal["best", "equal", "open", "worse", "chance", "untested", "none"]
"""Standing of an encoder in a column of the board: ``equal`` and ``open`` could be as good as the best."""
CONTENDERS: tuple[Kind, ...] = ("best", "equal", "open")


@dataclass(frozen=True, kw_only=True)
class Strip:
    """The distance from the best of a column with its interval, as places on the scale of the board, in pixels.

    ``far`` is the distance as text where the point lies beyond the scale: then there are no places.
    """

    low: str = ""
    high: str = ""
    point: str = ""
    far: str = ""


@dataclass(frozen=True, kw_only=True)
class BoardCell:
    """One result of one encoder: its value, the ends of its interval, and the encoder's standing against the best.

    Attributes:
        text: The value as displayed.
        low: Lower end of its interval, as displayed; empty without one.
        high: Upper end.
        kind: What the tests say.
        verdict: The same in words.
        strip: Where it lies behind the best; None where nothing was tested or there is no value.
        sort: The exact value, with a higher one better; empty without one.
        link: The address of the failures behind it.
        seen: True if the encoder was trained on the corpus.
        moved: A mark where it is significantly better or worse than after the last run before.
        published: How the value compares with the published one; empty if none is published.
    """

    text: str
    low: str = ""
    high: str = ""
    kind: Kind = "none"
    verdict: str = ""
    strip: Strip | None = None
    sort: str = ""
    link: str = ""
    seen: bool = False
    moved: Literal["", "▲", "▼"] = ""
    published: str = ""

    @property
    def bold(self) -> bool:
        """True for a contender."""
        return self.kind in CONTENDERS

    @property
    def said(self) -> str:
        """Interval, verdict and comparison with the published value in one line."""
        interval = f"{self.low} to {self.high}" if self.low else ""
        return "; ".join(filter(None, (interval, self.verdict, self.published)))


@dataclass(frozen=True, kw_only=True)
class BoardColumn:
    """A task: its corpus, heading, metric, and name in addresses, and whether it enters the mean.

    ``measure`` is the name of the metric as it is stored; ``wide``: with strips where the screen has space for them;
    ``shown``: on the first screen at all.
    """

    corpus: str
    heading: str
    metric: str
    explain: str
    key: str
    measure: str
    counts: bool = True
    wide: bool = True
    shown: bool = True


@dataclass(frozen=True, kw_only=True)
class BoardRow:
    """An encoder: its mean over the tasks, its results by task, and facts; ``card`` is the address of its model card.

    ``about``: name to text of all known facts, including those that have no room on the screen.
    """

    encoder: str
    mean: BoardCell
    cells: tuple[BoardCell, ...]
    facts: tuple[Cell, ...]
    card: str = ""
    about: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TaskCard:
    """The tests' conclusions on a corpus: the encoders to use, a badge (clear, 2-way tie, nobody), and the reason."""

    corpus: str
    about: str
    names: tuple[str, ...]
    more: int
    badge: str
    kind: Literal["clear", "tie", "bad", "none"]
    why: str

    @property
    def listed(self) -> str:
        """The names in a sentence."""
        return ", ".join([*self.names, *([f"{self.more} more"] if self.more else [])])


@dataclass(frozen=True, kw_only=True)
class Board(Printed):
    """The answer: one recommendation with its test, a card for every corpus, and every encoder on every task.

    Attributes:
        id: An anchor.
        says: The recommendation, in pieces: a text, and True if it is the name of an encoder.
        sure: How sure it is, in lines.
        suspects: Values far from the published ones, a line each.
        published: How the other values of the table compare with published ones, a line each.
        notes: What else a reader has to know, a line each.
        cards: One for every corpus.
        of: What the mean is over, for its heading.
        columns: The tasks.
        facts: Headings of the facts.
        rows: The encoders, best mean first.
        unranked: Encoders without a rank, each with the reason.
        ticks: The scale of the strips: place in pixels and label.
        margin: From where to where a difference is within the margin: place and width in pixels.
        legend: What the strips are.
        weighable: The corpora that can have a weight.
        script: What the page's script reads: values, chance and tests of all pairs.
    """

    id: str
    says: tuple[tuple[str, bool], ...]
    sure: tuple[str, ...]
    suspects: tuple[str, ...] = ()
    published: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cards: tuple[TaskCard, ...] = ()
    of: str = ""
    columns: tuple[BoardColumn, ...] = ()
    facts: tuple[str, ...] = ()
    rows: tuple[BoardRow, ...] = ()
    unranked: tuple[tuple[str, str], ...] = ()
    ticks: tuple[tuple[str, str], ...] = ()
    margin: tuple[str, str] = ("0", "0")
    legend: str = ""
    weighable: tuple[str, ...] = ()
    script: Mapping[str, object] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        """The recommendation as plain text."""
        return "".join(text for text, _ in self.says)

    @property
    def lines(self) -> tuple[str, ...]:
        """The answer as plain text, for a terminal."""
        unranked = "; ".join(f"{name} ({why})" for name, why in self.unranked)
        cards = (f"{card.corpus}: {card.listed} ({card.badge}): {card.why}" for card in self.cards)
        out = (f"Not ranked: {unranked}",) if unranked else ()
        return (self.headline, *self.sure, *self.suspects, *self.notes, *cards, *out)

    @property
    def seen(self) -> bool:
        """True if an encoder was trained on a corpus."""
        return any(cell.seen for row in self.rows for cell in row.cells)

    @property
    def moved(self) -> bool:
        """True if a result is significantly better or worse than after the last run before."""
        return any(cell.moved for row in self.rows for cell in row.cells)

    @property
    def models(self) -> tuple[tuple[str, str, str], ...]:
        """The models that something is known of: name, address of the model card, and facts in a line."""
        found = []
        for row in (row for row in self.rows if row.about):
            parameters = f"{row.about['parameters']} million parameters" * bool(row.about["parameters"])
            facts = ", ".join(filter(None, (parameters, row.about["licence"])))
            if row.card or facts:
                found.append((row.encoder, row.card, facts))
        return tuple(found)

    @property
    def spanners(self) -> tuple[tuple[str, int], ...]:
        """Headings over the columns that are shown: a corpus and its number of columns."""
        shown = [column.corpus for column in self.columns if column.shown]
        return tuple((corpus, shown.count(corpus)) for corpus in dict.fromkeys(shown))


@dataclass(frozen=True, kw_only=True)
class Chart(Printed):
    """A drawing.

    Attributes:
        id: Unique in the report; names the files.
        title: The content, in one line.
        alt: The text alternative, with the numbers.
        svg: The drawing; texts and rules are ``currentColor``.
        note: Explanation below the chart.
    """

    id: str
    title: str
    alt: str
    svg: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Picker(Printed):
    """Tables with one shown at a time: the first, or that of the corpus and the view that a reader chooses."""

    id: str
    caption: str
    views: tuple[tuple[str, str, Table], ...]

    @property
    def by_corpus(self) -> Mapping[str, list[tuple[str, Table]]]:
        """Corpus to its views: label and table."""
        found: dict[str, list[tuple[str, Table]]] = {}
        for corpus, label, table in self.views:
            found.setdefault(corpus, []).append((label, table))
        return found


@dataclass(frozen=True, kw_only=True)
class Evidence(Printed):
    """A list of sentences; with a title, highlighted."""

    lines: tuple[str, ...]
    title: str = ""
    mark: Mark = ""


Block: TypeAlias = Evidence | Table | Chart | Picker | Gallery


@dataclass(frozen=True, kw_only=True)
class Section:
    """One part of the report; it is shown only if it has blocks. ``folded``: behind its title."""

    id: str
    title: str
    lead: str = ""
    blocks: tuple[Block, ...]
    folded: bool = False


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
        board: The answer; None where the page has none.
        exports: What a reader can copy: its name (csv, markdown, latex, cite, command, python) to the text.
    """

    title: str
    subtitle: str
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    thumbnails: Mapping[str, str]
    sources: str
    colophon: str
    board: Board | None = None
    exports: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ids = [section.id for section in self.sections]
        blocks = [block for section in self.sections for block in section.blocks]
        ids += [block.id for block in blocks if not isinstance(block, Evidence)]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            raise ValueError(f"report: the ids {', '.join(twice)} are used twice; anchors and files need unique ones")
