"""Lists of items for queries, as runs and qrels have them: TREC's lines, tables, and JSON, each cell with its place.

A run is lines ``query Q0 item rank score tag`` (TREC), ``query item rank`` (MS MARCO), a table with columns of these,
or JSON: query -> item -> score, query -> items in their order, or rows with such a list. Qrels are lines
``query iteration item grade``, a table, or JSON. The forms of their tables are those of ``forms.toml``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from capim.store.errors import RequestError, is_number, some
from capim.store.files import existing_file
from capim.store.forms import FORMS, NO_COLUMNS, Columns, Form, fold
from capim.store.sets.columns_read import NO_OPTION, SPLITS, tell, telling
from capim.store.tables import NAMED, TYPED, Faults, open_table, opened_text, read_json, read_row_file, suffix_of

RUN, QRELS, JUDGEMENTS = FORMS["run"], FORMS["qrels"], FORMS["judgements"]
_LISTS = FORMS["lists"]
_OF_RUN = {6: (0, 2, 4), 3: (0, 1, 2)}  # words of a line -> the places of query, item and number; of three, a rank
_OF_QRELS = {4: (0, 2, 3)}
_MOST_FAULTS = 5  # that are named


class Cell(NamedTuple):
    """A number that a file has for a query and an item, or a rank (``is_rank``); ``rank``: the rank next to a score."""

    where: str
    query: str
    item: str
    number: object
    is_rank: bool = False
    rank: object = None


def read_lists(path: Path, form: Form, columns: Columns = NO_COLUMNS) -> dict[str, dict[str, float]]:
    """Return query -> item -> number; ranks are negated, so that more is better.

    Raises:
        RequestError: If there is no such file, or if lines have another form; names the first of them.
    """
    found: dict[str, dict[str, float]] = {}
    bad, twice, steps, last = Faults(path), list[str](), list[float](), ("", 0.0, 0.0)
    for cell in cells_of(existing_file(path), form, columns):
        if (value := finite(cell.number)) is None:
            bad.add(f"{cell.where}: expected {_line(form)}, got the number {cell.number!r}")
        elif cell.is_rank and not value.is_integer():
            bad.add(f"{cell.where}: expected a whole number as rank, got {cell.number!r}; scores: {_line(form)}")
        elif cell.item in (items := found.setdefault(cell.query, {})):
            numbers = "" if form is RUN else f", with {items[cell.item]:g} and {value:g}"
            twice.append(f"{path}: {cell.where}: item {cell.item!r} comes twice in the list of {cell.query!r}{numbers}")
        else:
            items[cell.item] = -value if cell.is_rank else value
            rank = finite(cell.rank) or 0.0
            steps += [value - last[2]] if cell.query == last[0] and last[1] < rank else []
            last = cell.query, rank, value
    if twice:
        raise RequestError(twice[:_MOST_FAULTS])
    bad.raise_any()
    if not found:
        raise RequestError(f"{path}: no list in it")
    if 2 * (n_up := sum(step > 0 for step in steps)) > len(steps):
        n = f"{n_up:,} of {len(steps):,}"
        tell(f"warning: {path}: scores rise with the rank in {n} lines, and higher is better: negate distances")
    elif steps and not any(steps):
        tell(f"warning: {path}: all items of a query have one score, and tie whatever their rank: leave out the score")
    return found


def cells_of(path: Path, form: Form, columns: Columns = NO_COLUMNS) -> Iterator[Cell]:
    """Yield the cells of a run, of qrels or of judgements, in the order of the file.

    Raises:
        RequestError: If a line has another form, or if a column is missing.
    """
    content = read_json(path) if suffix_of(path) == ".json" else None
    if isinstance(content, dict):
        yield from _listed("", _object_of(path, content), form)
    elif _is_table(path, form, columns):
        rows = read_row_file(path) if suffix_of(path) in NAMED else [*open_table(path, headless=False).rows]
        if not rows:
            raise RequestError(f"{path}: it has no rows")
        yield from _of_rows(path, rows, form, columns)
    else:
        yield from _of_lines(path, form)


def _is_table(path: Path, form: Form, columns: Columns) -> bool:
    """True if a file is a table: by its suffix, and of a text by its first line, which may be one of a run."""
    if suffix_of(path) in TYPED:
        return True
    line = first_line(path)
    if suffix_of(path) in NAMED:
        return bool(line) and form_of_line(line.split(), "") is None
    names = [cell.strip().strip('"') for cell in re.split(r"[\t,;|]", line)]
    return all(columns.get(role) or form.find(role, names) for role in form.needs)


def first_line(path: Path) -> str:
    """Return the first line of a text that is not blank."""
    with opened_text(path) as lines:
        return next((line for line in lines if line.strip()), "")


def form_of_line(words: Sequence[str], name: str) -> Form | None:
    """Return the form of a text without a header, by the words of its first line and its file name; None for others."""
    if len(words) == 6 and is_number(words[4]):
        return RUN
    if len(words) in (3, 4) and is_number(words[-1]):
        return RUN if len(words) == 3 and not says_qrels(name) else QRELS
    return None


def says_qrels(name: str) -> bool:
    """True if the name of a file says that it holds judgements."""
    return re.search(r"qrels?|judg(e|)ments?", name.lower()) is not None


def _of_lines(path: Path, form: Form) -> Iterator[Cell]:
    faults, tags = Faults(path), dict[str, None]()
    with opened_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            words = line.split()
            places = (_OF_RUN if form is RUN else _OF_QRELS).get(len(words))
            if places is not None:
                query, item, cell = (words[place] for place in places)
                rank = words[3] if len(words) == 6 else None
                tags |= dict.fromkeys(words[5:])
                yield Cell(f"line {number}", query, item, cell, form is RUN and len(words) == 3, rank)
            elif words:
                faults.add(f"line {number}: expected {_line(form)}, got {line.strip()!r:.80}")
    faults.raise_any()
    if len(tags) > 1:
        tell(f"warning: {path}: lines of {len(tags)} tags ({some([*tags], 3)}) are taken for one run: give each a file")


def _line(form: Form) -> str:
    return "`query Q0 item rank score tag`" if form is RUN else "`query iteration item grade`"


def _of_rows(path: Path, rows: Sequence[Mapping[str, Any]], form: Form, columns: Columns) -> Iterator[Cell]:
    if (listed := list_columns(rows[0])) is not None:
        query, items = listed
        seen = set[str]()
        for number, row in enumerate(telling(path, listed, rows[0], rows, {SPLITS: NO_OPTION}), start=1):
            if not isinstance(row.get(items), list) or row.get(query) is None:
                raise RequestError(f"{path}: row {number}: expected {query} and the list {items}, got {', '.join(row)}")
            if (name := str(row[query])) in seen:
                raise RequestError(f"{path}: row {number}: query {row[query]!r} has a list in an earlier row")
            seen.add(name)
            yield from _listed(f"row {number}", {name: row[items]}, form)
        return
    table = form.name if form is JUDGEMENTS else ""
    column_of = form.columns([*rows[0]], columns, where=path, first=rows[0], table=table)
    query, item, *numbers = (column_of[role][0] for role in form.roles if role in column_of)
    if not numbers:
        has = some([*rows[0]], 20)
        raise RequestError(
            f"{path}: no column of numbers, {' or '.join(form.roles[2:])}; it has {has}; name it with --columns "
            f"{form.roles[2]}=…"
        )
    own = telling(path, (query, item, numbers[0]), rows[0], rows, {SPLITS: NO_OPTION})
    is_rank = form is RUN and "score" not in column_of
    bad = Faults(path)
    for number, row in enumerate(own, start=1):
        if lacking := [name for name in (query, item) if row.get(name) is None]:
            bad.add(f"row {number}: no {' and no '.join(lacking)} in it")
        else:
            rank = row.get(numbers[1]) if len(numbers) > 1 else None
            yield Cell(f"row {number}", str(row[query]), str(row[item]), row.get(numbers[0]), is_rank, rank)
    bad.raise_any()


def _listed(where: str, lists: Mapping[str, Any], form: Form) -> Iterator[Cell]:
    """Yield the cells of query -> item -> number, or of query -> items in order, which are all relevant in qrels."""
    for query, items in lists.items():
        place = where or f"query {query!r}"
        if isinstance(items, Mapping):
            yield from (Cell(place, query, str(item), number) for item, number in items.items())
        else:
            ranked = enumerate(map(str, items), start=1)
            yield from (Cell(place, query, item, rank if form is RUN else 1, form is RUN) for rank, item in ranked)


def _object_of(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return query -> item -> number, or query -> items, at whatever depth, joined if there are several (subsets)."""
    lists = list(json_lists(content))
    queries = list(chain.from_iterable(lists))
    if not lists or len({*queries}) < len(queries):
        what = "no object of query -> item -> score in it" if not lists else "several splits have the same queries"
        raise RequestError(f"{path}: {what}; write one query -> item -> score object")
    return {query: items for one in lists for query, items in one.items()}


def json_lists(value: object) -> Iterator[dict[str, Any]]:
    """Yield every object of query -> item -> number, or of query -> items in their order, within a JSON value.

    Examples:
        >>> [*json_lists({"name": "bm25", "q1": {"d": 0.5}, "q2": ["d", "e"]})]
        [{'q1': {'d': 0.5}, 'q2': ['d', 'e']}]
    """
    if not isinstance(value, dict):
        return
    if len(value) > 1 and all(map(_are_items, value.values())):
        yield value
        return
    inner = {k: each for k, each in value.items() if isinstance(each, dict) and each}
    if all(type(number) in (int, float) for each in inner.values() for number in each.values()):
        if inner:
            yield {k: each for k, each in value.items() if k in inner or _are_items(each)}
        return
    for each in inner.values():
        yield from json_lists(each)


def _are_items(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) in (str, int) for item in value)


def list_columns(row: object) -> tuple[str, str] | None:
    """Return the column of the query and that of the list of items in a row; None where it has no such list.

    Numbers are a list of items under one of its usual names only: they may be a vector.
    """
    cells = row if isinstance(row, Mapping) else {}
    query, known = _LISTS.find("query", cells), {*map(fold, _LISTS.names("items"))}
    lists = [
        name
        for name, cell in cells.items()
        if _are_items(cell) and (fold(name) in known or all(isinstance(item, str) for item in cell))
    ]
    return (query, lists[0]) if query is not None and len(lists) == 1 else None


def finite(cell: object) -> float | None:
    """Return a cell as a finite number; None if it is none."""
    try:
        value = float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None
