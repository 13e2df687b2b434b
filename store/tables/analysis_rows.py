"""Rows that analyses write: outcomes, results, comparisons, slices, batches, metrics of users, runs, watches.

A write is one commit: the rows that it replaces are deleted and the new ones added, or nothing changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from capim.store.errors import RequestError
from capim.store.schema import texts
from capim.store.tables.compaction import compact
from capim.store.tables.connection import Connection
from capim.store.tables.renewal import is_stored
from capim.store.tables.rows import merge, one_of, read
from capim.store.tables.schemas import ANALYSES, primary_key

_MOST_FILES = 64  # what a compaction replaces stays on disk until `capim store prune`: fewer files leave more of it
_ORDER = {
    "outcomes": ("corpus", "protocol", "encoder", "evaluation", "query_ord", "query_id"),
    "results": ("corpus", "protocol", "metric", "encoder", "created", "result"),
}
"""Table -> the columns that its rows are sorted by when they are read; Lance gives rows of a merge in any order."""


def write_rows(connection: Connection, table: str, rows: pa.Table, replace: str | None = None) -> int:
    """Writes rows of an analysis; see :meth:`store.EmbeddingStore.write_rows`."""
    schema = _schema(table)
    rows = _conform(table, schema, rows)
    if replace is not None:
        _check_columns(table, [replace])
    if not rows.num_rows:
        return 0
    if replace is not None and is_stored(connection, table, rows, replace):
        return rows.num_rows
    replaced = None
    if replace is not None and [replace] != primary_key(schema):
        replaced = one_of(replace, sorted(texts(pc.unique(rows.column(replace)))))
    written = merge(connection, table, schema, rows, update=replace is not None, replaced=replaced)
    # Every write adds a file, and every read opens all of them.
    current = connection.find(table)
    if current is not None and len(current.get_fragments()) > _MOST_FILES:
        compact(connection, table, free=False)
    return written


def read_rows(connection: Connection, table: str, equals: Mapping[str, str | Sequence[str]]) -> pa.Table:
    """Rows whose columns hold the given texts (any of them, where several are given)."""
    schema = _schema(table)
    _check_columns(table, equals)
    rows = read(connection, table, schema, _condition(equals))
    return in_order(table, rows.cast(pa.schema([field.remove_metadata() for field in schema])))


def in_order(table: str, rows: pa.Table) -> pa.Table:
    """Rows of an analysis in the order in which :func:`read_rows` gives them: outcomes of an evaluation by query.

    Encoders are compared query by query, and a sum has the same last digit only if it is added up in the same order.
    """
    keys: list[tuple[str, Literal["ascending", "descending"]]] = [
        (name, "ascending") for name in _ORDER.get(table, ()) if len(pc.unique(rows.column(name))) > 1
    ]
    return rows.sort_by(keys) if keys else rows


def count_rows(
    connection: Connection, table: str, column: str, equals: Mapping[str, str | Sequence[str]]
) -> dict[str, int]:
    """How many rows of :func:`read_rows` have each text in one column; reads no other column."""
    rows = read(connection, table, pa.schema([_schema(table).field(column)]), _condition(equals))
    return dict(Counter(texts(rows.column(column))))


def _condition(equals: Mapping[str, str | Sequence[str]]) -> str | None:
    conditions = [
        one_of(column, [wanted] if isinstance(wanted, str) else list(wanted)) for column, wanted in equals.items()
    ]
    return " AND ".join(conditions) or None


def _schema(table: str) -> pa.Schema:
    if table not in ANALYSES:
        raise RequestError(f"there is no table {table!r}; the tables are {', '.join(ANALYSES)}")
    return ANALYSES[table]


def _check_columns(table: str, columns: Iterable[str]) -> None:
    names = ANALYSES[table].names
    unknown = [column for column in columns if column not in names]
    if unknown:
        raise RequestError(
            [f"table {table!r} has no column {column!r}; it has {', '.join(names)}" for column in unknown]
        )


def _conform(table: str, schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """The rows with exactly the columns of the table; raises for anything that does not fit."""
    faults = [f"table {table!r} has no column {name!r}" for name in rows.schema.names if name not in schema.names]
    for field in schema:
        if field.name not in rows.schema.names:
            if not field.nullable:
                faults.append(f"table {table!r}: column {field.name!r} is missing")
        elif not field.nullable and rows.column(field.name).null_count:
            row = pc.index(pc.is_null(rows.column(field.name)), pa.scalar(True)).as_py()
            faults.append(f"table {table!r}: column {field.name!r} is null at row {row}")
    if faults:
        raise RequestError(faults)
    try:
        arrays = [
            rows.column(field.name).cast(field.type)
            if field.name in rows.schema.names
            else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as fault:
        raise RequestError(f"table {table!r}: a column has the wrong type: {fault}") from fault
    conformed = pa.Table.from_arrays(arrays, schema=schema)
    key = primary_key(schema)
    counted = conformed.group_by(key).aggregate([([], "count_all")])
    repeated = counted.filter(pc.greater(counted.column("count_all"), pa.scalar(1)))
    if repeated.num_rows:
        raise RequestError(f"table {table!r}: {repeated.select(key).slice(0, 1).to_pylist()[0]} comes more than once")
    return conformed
