"""Rows that analyses write: outcomes, results, comparisons, slices, batches, runs.

Every table has a declared primary key. Writing is one commit: the old rows of what is replaced go and the new ones come
at the same moment, or nothing happens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from store.compaction import compact, row_bytes
from store.connection import Connection, retrying, storage_faults
from store.errors import RequestError
from store.evolution import completed, stored_columns, widen
from store.registers import one_of
from store.tables import ANALYSES, primary_key

_MOST_FILES = 64


def write_rows(connection: Connection, table: str, rows: pa.Table, replace: str | None = None) -> int:
    """Writes rows of an analysis; see :meth:`store.EmbeddingStore.write_rows`."""
    schema = _schema(table)
    rows = _conform(table, schema, rows)
    if replace is not None and replace not in schema.names:
        raise RequestError(f"table {table!r} has no column {replace!r} to replace by; it has {', '.join(schema.names)}")
    if not rows.num_rows:
        return 0
    key = primary_key(schema)

    def merge() -> int:
        found = connection.find(table)
        current = connection.create(table, schema) if found is None else widen(found, schema)
        builder = current.merge_insert(key).when_not_matched_insert_all()
        if replace is not None:
            builder = builder.when_matched_update_all()
            if [replace] != key:
                values = sorted(pc.unique(rows.column(replace)).to_pylist())
                builder = builder.when_not_matched_by_source_delete(one_of(replace, values))
        done = builder.execute(rows)
        return int(done["num_inserted_rows"]) + int(done["num_updated_rows"])

    written = retrying(f"writing table {table!r}", merge)
    _keep_few_files(connection, table)
    return written


def read_rows(connection: Connection, table: str, equals: Mapping[str, str | Sequence[str]]) -> pa.Table:
    """Rows whose columns hold the given texts (any of them, where several are given)."""
    schema = _schema(table)
    unknown = [column for column in equals if column not in schema.names]
    if unknown:
        raise RequestError(
            [f"table {table!r} has no column {column!r}; it has {', '.join(schema.names)}" for column in unknown]
        )
    found = connection.find(table)
    if found is None:
        return _plain(schema).empty_table()
    with storage_faults(f"reading table {table!r}"):
        rows = found.to_table(columns=stored_columns(found, schema), filter=_condition(equals))
    return completed(rows, _plain(schema))


def read_values(connection: Connection, table: str, column: str, equals: Mapping[str, str | Sequence[str]]) -> set[str]:
    """The different texts in one column of :func:`read_rows`, without reading the others."""
    found = connection.find(table)
    if found is None:
        return set()
    with storage_faults(f"reading table {table!r}"):
        rows = found.to_table(columns=[column], filter=_condition(equals))
    return set(pc.unique(rows.column(column)).to_pylist())


def _condition(equals: Mapping[str, str | Sequence[str]]) -> str | None:
    conditions = [
        one_of(column, [wanted] if isinstance(wanted, str) else list(wanted)) for column, wanted in equals.items()
    ]
    return " AND ".join(conditions) or None


def _keep_few_files(connection: Connection, table: str) -> None:
    """Puts a table's files together once there are many: every write adds one, and every read opens all."""
    current = connection.find(table)
    if current is not None and len(current.get_fragments()) > _MOST_FILES:
        compact(connection, table, row_bytes=row_bytes(current), free=False)


def _plain(schema: pa.Schema) -> pa.Schema:
    """The schema as ``store.schema`` has it, without the key's marks."""
    return pa.schema([field.remove_metadata() for field in schema])


def _schema(table: str) -> pa.Schema:
    if table not in ANALYSES:
        raise RequestError(f"there is no table {table!r}; known are {', '.join(ANALYSES)}")
    return ANALYSES[table]


def _conform(table: str, schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """The rows with exactly the table's columns; raises for anything that would not fit."""
    faults = [f"table {table!r} has no column {name!r}" for name in rows.schema.names if name not in schema.names]
    for field in schema:
        if field.name not in rows.schema.names:
            if not field.nullable:
                faults.append(f"table {table!r}: column {field.name!r} is missing")
        elif not field.nullable and rows.column(field.name).null_count:
            row = pc.index(pc.is_null(rows.column(field.name)), True).as_py()
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
    repeated = counted.filter(pc.greater(counted.column("count_all"), 1))
    if repeated.num_rows:
        raise RequestError(f"table {table!r}: {repeated.select(key).slice(0, 1).to_pylist()[0]} comes more than once")
    return conformed
