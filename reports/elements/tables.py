"""Tables: row keys and columns, a column being its heading and a function from a row key to a cell.

Below that, stored rows as cells: a value with its interval and ties, and a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

from capim.reports import format as show
from capim.reports.elements import words
from capim.reports.elements.page import CONTENDERS, Cell, Column, Mark, Table
from capim.reports.rows.report_data import Figure, ReportData
from capim.reports.rows.standing import decision_of
from capim.store.schema import Comparison, Result, Slice
from capim.store.types import MetricFacts
from capim.tasks.protocols import DIRECTION_TITLES, Protocol

T = TypeVar("T")
ColumnOf: TypeAlias = tuple[Column, Callable[[T], Cell | str]]
"""A heading, and the function that gives the cell of a row: a :class:`Cell`, or its text."""


def texts(heading: str, cell: Callable[[T], Cell | str], *, group: str = "", explain: str = "") -> ColumnOf[T]:
    """Return a column of texts, aligned to the left."""
    return Column(heading=heading, group=group, explain=explain), cell


def numbers(heading: str, cell: Callable[[T], Cell | str], *, group: str = "", explain: str = "") -> ColumnOf[T]:
    """Return a column of numbers, aligned to the right and sorted as numbers."""
    return Column(heading=heading, group=group, numeric=True, explain=explain), cell


def metrics(facts: Callable[[T], MetricFacts]) -> ColumnOf[T]:
    """Return a column with the name of the metric of a row."""
    return texts("metric", lambda row: facts(row).label)


def names(key: Callable[[Any], tuple[str, str, str]]) -> list[ColumnOf[Any]]:
    """Return columns with the encoder, the corpus and the protocol of a row."""
    return [
        texts("Encoder", lambda row: key(row)[0]),
        texts("corpus", lambda row: key(row)[1]),
        texts("protocol", lambda row: key(row)[2]),
    ]


def pivot(
    id_: str,
    caption: str,
    rows: Iterable[T],
    *columns: ColumnOf[T],
    extra_rows: Iterable[Sequence[Cell]] = (),
    note: str = "",
    folded: str = "",
    matrix: bool = False,
) -> Table:
    """Return a table with one row per row key, from which every column makes its cell; options as in :class:`Table`.

    ``extra_rows`` are finished rows below the others, such as chance.

    Examples:
        >>> square = numbers("square", lambda n: value(n * n, f"{n * n}"))
        >>> [[cell.text for cell in row] for row in pivot("t", "Squares", [2, 3], texts("n", str), square).rows]
        [['2', '4'], ['3', '9']]
    """

    def cells(row: T) -> tuple[Cell, ...]:
        made = (cell(row) for _, cell in columns)
        return tuple(Cell(text=cell) if isinstance(cell, str) else cell for cell in made)

    return Table(
        id=id_,
        caption=caption,
        columns=tuple(column for column, _ in columns),
        rows=(*map(cells, rows), *map(tuple, extra_rows)),
        note=note,
        folded=folded,
        matrix=matrix,
    )


def only(table: Table, *headings: str) -> Table:
    """Return the table with only these of its columns."""
    places = [at for at, column in enumerate(table.columns) if column.heading in headings]
    rows = (tuple(row[at] for at in places) for row in table.rows)
    return replace(table, columns=tuple(table.columns[at] for at in places), rows=tuple(rows))


def anchor(*parts: str) -> str:
    """Return an id made of parts that may hold slashes, signs and spaces.

    Examples:
        >>> anchor("errors", "coco", "t2i/all", "share of queries")
        'errors-coco-t2i-all-share-of-queries'
    """
    text = "-".join(part for part in parts if part)
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text.replace("@", ""))


def value(exact: float | None, text: str, *, note: str = "", state: str = "", title: str = "", mark: Mark = "") -> Cell:
    """Return a cell that shows a text and sorts by the exact number behind it."""
    return Cell(text=text, note=note, state=state, title=title, sort=show.exact(exact), mark=mark)


def shaded(cell: Cell, fraction: float) -> Cell:
    """Return a cell of a matrix, the darker the higher a fraction, 0 to 1."""
    return replace(cell, shade=str(min(9, max(0, int(10 * fraction)))))


def counted(n: int, title: str = "") -> Cell:
    """Return a cell with a whole number."""
    return Cell(text=show.number(n, 0), sort=str(n), title=title)


def absent(title: str = "") -> Cell:
    """Return a dash; the tooltip says why there is no value."""
    return Cell(text=show.ABSENT, title=title, mark="muted")


def estimate(metric: MetricFacts, row: Result | Slice, *, title: str = "", mark: Mark = "", state: str = "") -> Cell:
    """Return a value with its interval."""
    text, note = words.value(metric, row.value), words.interval(metric, row)
    return value(row.value, text, note=note, title=title, mark=mark, state=state)


def difference_cell(metric: MetricFacts, row: Comparison) -> Cell:
    """Return the difference of a comparison with its interval."""
    text = words.difference(metric, row.difference)
    return value(row.difference, text, note=words.interval(metric, row))


def verdict_cell(metric: MetricFacts, row: Comparison) -> Cell:
    """Return the verdict of a comparison's tests on its first encoder."""
    found = decision_of(row)
    marks: dict[str, Mark] = {"better": "good", "worse": "bad"}
    return Cell(text=words.verdict(metric, row), mark=marks.get(found.state, "") if found else "muted")


def result_column(
    data: ReportData, corpus: str, protocol: str, metric: str, *, heading: str = "", explain: str = ""
) -> ColumnOf[str]:
    """Return a column with the result of every encoder, under the name of the metric unless a ``heading`` is given."""

    def cell(encoder: str) -> Cell:
        return result_cell(data, (corpus, protocol, metric), encoder)

    return numbers(heading or data.metric(metric).label, cell, explain=explain)


def result_cell(data: ReportData, figure: Figure, encoder: str) -> Cell:
    """Return one result as a cell: bold for the best and those not shown to be worse; the tooltip has the verdict."""
    row, (kind, said) = data.row(*figure, encoder), words.standing_of(data, figure, encoder)
    if row is None:
        return absent("not evaluated")
    if row.value is None:
        return absent(row.reason or "no value")
    metric = data.metric(row.metric)
    interval, ties = words.interval(metric, row), words.ties(metric, row)
    about = [f"{said}; {metric.name} = {show.exact(row.value)}"]
    if interval:
        about.append(f"{show.percent(row.level, 0)} % interval ({row.interval_method})")
    about.append(f"{show.count(row.n_queries, 'query', 'queries')} in {show.count(row.n_clusters, 'cluster')}")
    if ties:
        about.append(f"{ties} if ties are all lost or all won; {show.percent(row.tie_share)} % of queries tie")
    mark: Mark = "bad" if kind == "chance" else "best" if kind in CONTENDERS else ""
    made = estimate(metric, row, title=", ".join(about), mark=mark, state="chance" * (kind == "chance"))
    return replace(made, link=failures_address(data, row))


def link(path: str, **parameters: object) -> str:
    """Return an address of a page of `capim serve`; empty parameters are left out."""
    given = [(key, str(value)) for key, value in parameters.items() if value not in (None, "", ())]
    query = urlencode(given, safe="/*,:")
    return quote(path) + (f"?{query}" if query else "")


def failures_address(data: ReportData, row: Result) -> str:
    """Return the address of the queries that an encoder misses under a protocol; empty if there are none to look at."""
    of = Protocol.of(row.protocol)
    if data.live:
        return "" if of.is_combined else link("/queries", corpus=row.corpus, protocol=of.id, wrong=row.encoder)
    if not any((total.corpus, total.direction) == (row.corpus, of.direction) for total in data.totals):
        return ""
    given = {"corpus": row.corpus, "direction": DIRECTION_TITLES[of.direction], "missed": row.encoder}
    language = of.language if of.is_of_language else ""
    return f"#cases?{urlencode(given | {'language': language} if language else given)}"
