"""Row types: the columns of an Arrow table from the fields of a dataclass, and conversion of rows from and to tables.

A field of type ``str`` is a column of non-null strings, ``float | None`` a nullable column of doubles;
``Annotated[int, pa.int32()]`` names another Arrow type than the default.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import pyarrow as pa

R = TypeVar("R")
TIME = pa.timestamp("us", tz="UTC")
_KINDS: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    datetime: TIME,
}
_COLUMNS: dict[type[Any], pa.Schema] = {}  # cache: type hints are slow to read


def columns_of(row_type: type[Any]) -> pa.Schema:
    """Return the columns of a row type, in the order of its fields.

    Examples:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Share:
        ...     encoder: str
        ...     value: float | None = None
        >>> [str(column) for column in columns_of(Share)]
        ['pyarrow.Field<encoder: string not null>', 'pyarrow.Field<value: double>']
    """
    if row_type in _COLUMNS:
        return _COLUMNS[row_type]
    hints = get_type_hints(row_type, include_extras=True)
    columns = []
    for name, hint in hints.items():
        options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        [kind] = [each for each in options if each is not NoneType]
        columns.append(pa.field(name, _arrow_type(kind), nullable=len(options) > 1))
    return _COLUMNS.setdefault(row_type, pa.schema(columns))


def _arrow_type(kind: Any) -> pa.DataType:
    if get_origin(kind) is Annotated:
        return cast("pa.DataType", kind.__metadata__[0])
    if get_origin(kind) in (list, Sequence):
        return pa.list_(_arrow_type(get_args(kind)[0]))
    return _KINDS[kind]


def rows_in(row_type: type[R], table: pa.Table) -> list[R]:
    """Return the rows of a table, which may lack some of the columns of the row type.

    Rows are made without calling ``__init__``, and times without ``to_pylist``: each would take ten times as long.
    """
    columns = [
        [time and time.replace(tzinfo=UTC) for time in column.to_numpy().astype(object)]
        if column.type == TIME
        else column.to_pylist()
        for column in table.columns
    ]
    names, rows = table.column_names, []
    if issubclass(row_type, tuple):
        return [row_type(**dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True)]
    for values in zip(*columns, strict=True):
        row = object.__new__(row_type)
        row.__dict__.update(zip(names, values, strict=True))
        rows.append(row)
    return rows


def table_of(row_type: type[R], rows: Iterable[R]) -> pa.Table:
    """Return rows as a table with the columns of their type."""
    return pa.Table.from_pylist([vars(row) for row in rows], schema=columns_of(row_type))
