"""Reading, merging and deleting rows of any table, and the SQL conditions that choose them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa

from capim.store.errors import WorkError
from capim.store.tables.connection import Connection
from capim.store.tables.faults import retrying, storage_faults
from capim.store.tables.schemas import primary_key


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
