"""Builds a table from row keys and columns; a column is its heading and a function from a row key to a cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar

from capim.reports import format as show
from capim.reports.elements.page import Cell, Column, Mark, Table

T = TypeVar("T")
ColumnOf: TypeAlias = tuple[Column, Callable[[T], Cell | str]]
"""A heading, and the function that gives the cell of a row: a :class:`Cell`, or its text."""


def texts(heading: str, cell: Callable[[T], Cell | str], *, group: str = "", explain: str = "") -> ColumnOf[T]:
    """A column of texts, aligned to the left."""
    return Column(heading=heading, group=group, explain=explain), cell


def numbers(heading: str, cell: Callable[[T], Cell | str], *, group: str = "", explain: str = "") -> ColumnOf[T]:
    """A column of numbers, aligned to the right and sorted as numbers."""
    return Column(heading=heading, group=group, numeric=True, explain=explain), cell


def measures(
    heading: str,
    number: Callable[[T], float | None],
    text: Callable[[float | None], str],
    *,
    group: str = "",
    explain: str = "",
) -> ColumnOf[T]:
    """A column of numbers without intervals: ``number`` reads the number of a row, ``text`` formats it."""
    return numbers(heading, lambda row: value(number(row), text(number(row))), group=group, explain=explain)


def pivot(
    id_: str,
    caption: str,
    rows: Iterable[T],
    *columns: ColumnOf[T],
    extra_rows: Iterable[Sequence[Cell]] = (),
    note: str = "",
    sortable: bool = False,
    dense: bool = False,
    folded: str = "",
) -> Table:
    """A table with one row per row key, from which every column makes its cell; for the options see :class:`Table`.

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
        sortable=sortable,
        dense=dense,
        folded=folded,
    )


def anchor(*parts: str) -> str:
    """An id made of parts that may hold slashes, signs and spaces.

    Examples:
        >>> anchor("errors", "coco", "t2i/all", "share of queries")
        'errors-coco-t2i-all-share-of-queries'
    """
    text = "-".join(part for part in parts if part)
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text.replace("@", ""))


def value(
    number: float | None, text: str, *, note: str = "", state: str = "", title: str = "", mark: Mark = ""
) -> Cell:
    """A cell that shows a text and sorts by the exact number behind it."""
    return Cell(text=text, note=note, state=state, title=title, sort=show.exact(number), mark=mark)


def counted(n: int, title: str = "") -> Cell:
    """A cell with a whole number."""
    return Cell(text=show.number(n, 0), sort=str(n), title=title)


def absent(title: str = "") -> Cell:
    """A dash; the tooltip says why there is no value."""
    return Cell(text=show.ABSENT, title=title, mark="muted")
