"""Reading, merging and deleting rows of any table, and the SQL conditions that choose them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from capim.store.errors import RequestError, WorkError
from capim.store.schema import texts
from capim.store.tables.compaction import compact
from capim.store.tables.connection import Connection, retrying, storage_faults
from capim.store.tables.schemas import ANALYSES, primary_key


def read(connection: Connection, name: str, schema: pa.Schema, condition: str | None = None) -> pa.Table:
    """The rows that meet an SQL condition, with the columns of ``schema``; no rows if the table does not exist."""
    while True:
        table = connection.find(name)
        if table is None:
            return schema.empty_table()
        try:
            with storage_faults(f"reading table {name!r}"):
                rows: pa.Table = table.to_table(columns=schema.names, filter=condition)
                return rows.cast(schema)
        except WorkError:
            latest = connection.find(name)
            if latest is None or latest.version == table.version:
                raise  # else another process has just compacted the version that was being read


def merge(
    connection: Connection,
    name: str,
    schema: pa.Schema,
    rows: pa.Table,
    *,
    update: bool,
    replaced: str | None = None,
) -> int:
    """Adds rows by their declared primary key in one commit; the table is made if it does not exist.

    With ``update`` a stored row with the same key is replaced; otherwise it stays and the new one is left out. Stored
    rows that meet the SQL condition ``replaced`` are deleted in the same commit unless ``rows`` has their key.

    Returns:
        Number of rows inserted or updated.
    """

    def commit() -> int:
        table = connection.find(name) or connection.create(name, schema)
        builder = table.merge_insert(primary_key(schema)).when_not_matched_insert_all()
        if update:
            builder = builder.when_matched_update_all()
        if replaced is not None:
            builder = builder.when_not_matched_by_source_delete(replaced)
        done = builder.execute(rows)
        return int(done["num_inserted_rows"]) + int(done["num_updated_rows"])

    written = retrying(f"writing table {name!r}", commit)
    connection.record(name)
    return written


def delete(connection: Connection, name: str, column: str, values: Sequence[str]) -> None:
    """Deletes the rows that hold one of these texts in a column."""

    def commit() -> None:
        table = connection.find(name)
        if table is not None:
            table.delete(one_of(column, values))

    if values:
        retrying(f"writing table {name!r}", commit)
        connection.record(name)


def quoted(text: str) -> str:
    """A text as an SQL literal.

    Examples:
        >>> quoted("it's")
        "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def one_of(column: str, values: Sequence[str]) -> str:
    """The SQL condition that a column holds one of these texts.

    Examples:
        >>> one_of("set_name", ["a", "b"])
        "set_name IN ('a', 'b')"
    """
    return f"{column} IN ({', '.join(map(quoted, values))})" if values else "false"


def now() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)


# --- Whether rows that a run computed again are stored already, so that a run that changes nothing writes nothing.


_SHOWN_FOR: dict[str, tuple[str, ...]] = {
    "results": ("corpus", "protocol", "metric", "encoder"),
    "comparisons": ("corpus_fingerprint", "protocol", "metric"),
    "slices": ("slice",),
    "rankings": (),
}
"""Table -> the columns of what a row is shown for; of several rows for the same, the newest is shown."""

_NAMES = {"results": {"corpus": "corpus_fingerprint", "encoder": "encoder_fingerprint"}}
"""Table -> names of which the newest row decides what fingerprint they mean."""


def is_stored(connection: Connection, table: str, rows: pa.Table, replace: str) -> bool:
    """Whether the stored rows with these values of ``replace`` equal ``rows``, apart from run, time and order.

    False where a newer row is shown instead of one of them, so that a request that is repeated is shown again.
    """
    if table not in _SHOWN_FOR:
        return False
    schema, keys = ANALYSES[table], primary_key(ANALYSES[table])
    values = sorted({*texts(rows.column(replace))})
    stored = read(connection, table, schema, one_of(replace, values))
    if len(stored) != len(rows):
        return False
    order: list[tuple[str, Literal["ascending", "descending"]]] = [(name, "ascending") for name in keys]
    old, new = stored.sort_by(order), rows.sort_by(order)
    equal = bool(_lasting(old).equals(_lasting(new)))
    return equal and not _is_superseded(connection, table, old, replace)


def _lasting(rows: pa.Table) -> pa.Table:
    """What does not change from run to run: all but run, time, and how long an analysis took."""
    kept = rows.drop_columns(["run", "created"])
    if "detail" in kept.column_names:
        untimed = pc.replace_substring_regex(kept.column("detail"), pattern='"seconds":[^,}]*', replacement="")
        kept = kept.set_column(kept.column_names.index("detail"), "detail", untimed)
    return kept


def _is_superseded(connection: Connection, table: str, old: pa.Table, replace: str) -> bool:
    """Whether a newer row of the table is shown instead of one of these."""
    names, shown_for = _NAMES.get(table, {}), _SHOWN_FOR[table]
    columns = list(dict.fromkeys([replace, "created", *shown_for, *names, *names.values()]))
    every = read(connection, table, pa.schema([ANALYSES[table].field(name) for name in columns]))
    mine = old.select(columns).to_pylist()
    values = {row[replace] for row in mine}
    later = every.filter(pc.greater(every["created"], pc.min(old["created"]))).to_pylist()
    newer = [row for row in later if row[replace] not in values]
    shown = {tuple(row[name] for name in shown_for) for row in mine}
    meanings = [(name, {row[name]: row[fingerprint] for row in mine}) for name, fingerprint in names.items()]
    return any(tuple(row[name] for name in shown_for) in shown for row in newer) or any(
        meaning.get(row[name], row[names[name]]) != row[names[name]] for row in newer for name, meaning in meanings
    )


# --- Rows that analyses write: outcomes, results, comparisons, slices, batches, metrics of users, runs, watches.
#
# A write is one commit: the rows that it replaces are deleted and the new ones added, or nothing changes.


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
