"""A store of an earlier format brought to this one: `capim store upgrade`.

What was encoded, imported and scored stays as it is: vectors, corpora, outcomes. A column that this format adds is
empty in rows that were written before. What is derived from these, and has other columns now, is removed: the next run
makes it again, without a model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from capim.store.connection import Connection, retrying
from capim.store.embedding_store import FIRST_UPGRADED, check_address, written_formats
from capim.store.errors import RequestError
from capim.store.rows import now, register
from capim.store.schema import FORMAT, TABLES


@dataclass(frozen=True, kw_only=True)
class Upgraded:
    """What was done with one table: ``columns added`` or ``removed``, and the columns in which it differs."""

    table: str
    done: str
    columns: tuple[str, ...]
    n_rows: int


def upgrade_store(uri: str) -> Iterator[Upgraded]:
    """Brings the tables of a store to this format, one after the other; a second call goes on where one was ended.

    Args:
        uri: As for :meth:`EmbeddingStore.open`.

    Raises:
        RequestError: The format is a later one or one before 6, or a table has columns that nothing can be made of.
    """
    connection = Connection.to(uri)
    check_address(connection)
    formats = written_formats(connection)
    if not formats or not FIRST_UPGRADED <= max(formats) <= FORMAT:
        found = f"format {max(formats)}" if formats else "no format that can be read"
        raise RequestError(
            f"store {connection.uri} has {found}, this release of capim upgrades formats {FIRST_UPGRADED} to {FORMAT}"
        )
    changes = {name: change for name in TABLES if (change := _differs(connection, name)) is not None}
    for name, (lacking, others) in changes.items():
        if "derived" not in TABLES[name].columns.names and (others or not all(each.nullable for each in lacking)):
            differing = ", ".join([*(each.name for each in lacking), *others])
            raise RequestError(f"table {name!r} of store {connection.uri} differs in {differing}, and is not upgraded")
    for name, (lacking, others) in changes.items():
        table = connection.find(name)
        n_rows = 0 if table is None else table.count_rows()
        columns = (*(each.name for each in lacking), *others)
        if "derived" in TABLES[name].columns.names:
            connection.drop(name)
            yield Upgraded(table=name, done="removed; the next run makes it again", columns=columns, n_rows=n_rows)
        else:
            _add(connection, name, lacking)
            yield Upgraded(table=name, done="columns added", columns=columns, n_rows=n_rows)
    if formats != {FORMAT}:
        connection.drop("formats")
        register(connection, "formats", [{"format": FORMAT, "written": now()}], update=False)


def _differs(connection: Connection, name: str) -> tuple[list[pa.Field], list[str]] | None:
    """The fields that a table lacks, and the names of those that it has and should not have, or has of another type."""
    table = connection.find(name)
    if table is None:
        return None
    stored, wanted = table.schema, TABLES[name].columns
    lacking = [each for each in wanted if each.name not in stored.names]
    others = [each.name for each in stored if each.name not in wanted.names]
    others += [each.name for each in wanted if each.name in stored.names and stored.field(each.name).type != each.type]
    return (lacking, others) if lacking or others else None


def _add(connection: Connection, name: str, fields: list[pa.Field]) -> None:
    def commit() -> None:
        table = connection.find(name)
        if table is not None:
            table.add_columns(pa.schema([each for each in fields if each.name not in table.schema.names]))

    retrying(f"adding columns to table {name!r}", commit)
    connection.record(name)
