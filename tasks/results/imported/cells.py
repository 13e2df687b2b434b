"""The cells of a table of outcomes as numbers, truth values and queries; faults name the row and what was expected."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from capim.tasks.results.imported.columns import COLUMNS, FORMS, KEYS, PUBLISHED, QUERY

Row: TypeAlias = Mapping[str, Any]
"""A row of a file under our names of columns; ``_row`` is its place: ``3``, or ``answers.json:3`` of several files."""

NUMBER = "_row"
_FLAGS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
_SHOWN = 5
_KEYS = {*QUERY, *(name for names in KEYS.values() for name in names)} - {*COLUMNS}


def named_rows(rows: Iterable[Mapping[str, Any]], file: str = "") -> list[Row]:
    """Rows with our names of columns, without other columns and without empty cells, numbered from 1."""
    named: list[Row] = []
    for number, row in enumerate(rows, start=1):
        ours = {_our_name(name): cell for name, cell in row.items() if cell is not None}
        if {"type", "subtype"} <= ours.keys():  # BiVLC's results on SugarCrepe
            ours.setdefault("category", f"{ours['type']}_{ours['subtype']}")
        place = f"{file}:{number}" if file else f"{number}"
        named.append({NUMBER: place, **{name: cell for name, cell in ours.items() if name in _KEYS or name in COLUMNS}})
    return named


@cache
def _our_name(name: str) -> str:
    """Our name of a column; a column of ids may be written in any way: ``Image-ID``."""
    plain = re.sub(r"[\s-]+", "_", name.strip().lower())
    return PUBLISHED.get(name, PUBLISHED.get(plain, plain if plain in _KEYS else name))


def form_of(row: Row) -> str | None:
    """The first form of :data:`FORMS` of which the row has all columns; None if it has none."""
    return next((form for form, names in FORMS.items() if all(name in row for name in names)), None)


def ranks(rows: Sequence[Row], column: str, faults: list[str]) -> NDArray[np.int32]:
    """Whole numbers from 1, shape ``(n_rows,)``; 1 in rows at fault, which are added to ``faults``."""
    values = np.ones(len(rows), dtype=np.int32)
    wrong = []
    for at, row in enumerate(rows):
        try:
            value = float(row[column])
        except (TypeError, ValueError):
            value = 0.0
        if 1 <= value < 2**31 and value.is_integer() and not isinstance(row[column], bool):
            values[at] = int(value)
        else:
            wrong.append(row)
    _complain(wrong, column, "a whole number from 1", faults)
    return values


def flags(rows: Sequence[Row], column: str, faults: list[str]) -> NDArray[np.bool_]:
    """Truth values, shape ``(n_rows,)``; False in rows at fault, which are added to ``faults``."""
    values = [_FLAGS.get(str(row[column]).strip().lower()) for row in rows]
    wrong = [row for row, value in zip(rows, values, strict=True) if value is None]
    _complain(wrong, column, "true, false, 1 or 0", faults)
    return np.array([bool(value) for value in values], dtype=bool)


def _complain(wrong: Sequence[Row], column: str, expected: str, faults: list[str]) -> None:
    shown = ", ".join(f"{row[column]!r} in row {row[NUMBER]}" for row in wrong[:_SHOWN])
    more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    if wrong:
        faults.append(f"{column}: expected {expected}, got {shown}{more}")


def plain_text(text: object) -> str:
    """A text with single spaces and none at its ends: publications of one data set differ in them."""
    return " ".join(str(text).split())
