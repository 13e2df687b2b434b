"""Rows that analyses write: outcomes, results, comparisons, slices, batches, runs.

Every table has a declared primary key. Writing is one commit: the old rows of what is replaced go and the new ones come
at the same moment, or nothing happens. Every row is stored with a checksum over its columns, compared when it is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from store.checksums import column_checksums
from store.errors import RequestError, WorkError
from store.maintenance.compaction import compact, row_bytes
from store.tables.connection import Connection, retrying, storage_faults
from store.tables.evolution import TRUE_OF_OLDER_ROWS, completed, stored_columns, widen
from store.tables.metadata import one_of
from store.tables.schemas import ANALYSES, CHECKSUM, primary_key

_MOST_FILES = 64


def write_rows(connection: Connection, table: str, rows: pa.Table, replace: str | None = None) -> int:
    """Writes rows of an analysis; see :meth:`store.EmbeddingStore.write_rows`."""
    schema = _schema(table)
    rows = _conform(table, schema, rows)
    if replace is not None and replace not in schema.names:
        raise RequestError(f"table {table!r} has no column {replace!r} to replace by; it has {', '.join(schema.names)}")
    if not rows.num_rows:
        return 0
    key, stored = primary_key(schema), schema.append(CHECKSUM)
    rows = rows.append_column(CHECKSUM, pa.array(column_checksums(rows, TRUE_OF_OLDER_ROWS)))

    def merge() -> int:
        found = connection.find(table)
        current = connection.create(table, stored) if found is None else widen(found, stored)
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
        rows = found.to_table(columns=stored_columns(found, schema.append(CHECKSUM)), filter=_condition(equals))
    refuse_changed_rows(table, rows)
    return completed(rows, _plain(schema))


def changed_rows(table: str, rows: pa.Table) -> NDArray[np.bool_]:
    """Which rows, as read with their checksums, are not what was written.

    Rows of a table without checksums, a register or one that an older release made, are taken as they are.
    """
    if CHECKSUM.name not in rows.column_names:
        return np.zeros(len(rows), dtype=bool)
    kept = rows.column(CHECKSUM.name).combine_chunks()
    sums = column_checksums(completed(rows, _plain(_schema(table))), TRUE_OF_OLDER_ROWS)
    changed: NDArray[np.bool_] = (kept.fill_null(0).to_numpy() != sums) & kept.is_valid().to_numpy(zero_copy_only=False)
    return changed


def refuse_changed_rows(table: str, rows: pa.Table) -> None:
    """Raises if any row's checksum is wrong, with the number of such rows and the key of the first."""
    changed = rows.filter(pa.array(changed_rows(table, rows)))
    if not len(changed):
        return
    first = changed.select(primary_key(_schema(table))).slice(0, 1).to_pylist()[0]
    raise WorkError(
        f"table {table!r}: {len(changed)} rows were changed on disk (checksum differs), first "
        f"{', '.join(f'{name} {value!r}' for name, value in first.items())}; nothing of them is used. Run `capim store "
        f"repair {table}`, it removes these rows, and the same run again, which makes them anew"
    )


def count_rows(
    connection: Connection, table: str, column: str, equals: Mapping[str, str | Sequence[str]]
) -> dict[str, int]:
    """How many rows of :func:`read_rows` have each text in one column, without reading the others."""
    found = connection.find(table)
    if found is None:
        return {}
    with storage_faults(f"reading table {table!r}"):
        rows = found.to_table(columns=[column], filter=_condition(equals))
    return dict(Counter(rows.column(column).to_pylist()))


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
