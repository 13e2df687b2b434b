"""Rows of the stored tables: read, checked, merged and deleted; a change is one commit, or nothing changes."""

from __future__ import annotations

import io
import time
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.connection import Checked, Connection, retrying, storage_faults
from capim.store.errors import RequestError, WorkError, did_you_mean
from capim.store.ledger import DERIVED_ROWS, KEYED_BY, REMOVED, compared, damage
from capim.store.row_types import rows_in, table_of
from capim.store.schema import ANALYSES, CORPUS_PARTS, TABLE_OF, TABLES, LedgerEntry, texts
from capim.store.types import CORPUS_PREFIX

if TYPE_CHECKING:
    import lance

    from capim.store.embedding_store import EmbeddingStore

_SHOWN = 30  # names that a message about an unknown one lists
_AT_ONCE = 100  # evaluations with outcomes in memory at the same time
_PAUSES = (0.0, 0.1, 0.5, 2.0)  # seconds in which another process writes its entries of the ledger, or removes rows


Equals: TypeAlias = Mapping[str, str | Sequence[str]]


def corpus_table(part: str, name: str, fingerprint: str) -> str:
    """Return the table of one part (images, captions, pairs …) of one corpus.

    Examples:
        >>> corpus_table("captions", "shapes", "0011223344556677")
        'corpus-captions-shapes-0011223344556677'
    """
    return f"{CORPUS_PREFIX}{part}-{name}-{fingerprint}"


def corpus_part(connection: Connection, part: str, name: str, fingerprint: str) -> pa.Table:
    """Return one table of a stored corpus, in corpus order, with the columns of ``store.schema``."""
    schema = CORPUS_PARTS[part]
    table = connection.find(corpus_table(part, name, fingerprint))
    if table is None:
        return schema.empty_table()
    with storage_faults(f"reading the {part} of corpus {name!r}"):
        found: pa.Table = table.scanner(columns=schema.names, scan_in_order=True).to_table()
        return found.cast(schema)


def read(
    connection: Connection, name: str, equals: Equals = MappingProxyType({}), columns: Sequence[str] = ()
) -> pa.Table:
    """Return the rows of a table filtered by column values, or some columns of them; empty if it was never written.

    Rows that other processes wrote since a caching connection last checked may be missing.
    Derived rows and outcomes that the ledger does not list are left out.

    Raises:
        WorkError: If rows of the table differ from the ledger.
    """
    if name == "outcomes":
        if not columns and "query_id" not in equals:
            return _listed_outcomes(connection, equals)
        outcomes_table(connection)  # for its error
    unlisted = check(connection, name) if name in DERIVED_ROWS else frozenset[str]()
    wanted = (*dict.fromkeys((*columns, "derived")),) if columns and unlisted else columns
    rows = _without(_read(connection, name, equals, wanted), "derived", unlisted)
    return rows.select([*columns]) if columns else rows


def check(connection: Connection, name: str) -> frozenset[str]:
    """Compare a table of derived rows with the ledger, unless the connection has checked their present versions.

    Returns:
        Keys of rows that the ledger does not list: of a derivation that another process makes, or that was interrupted.

    Raises:
        WorkError: If rows are missing, or differ from those that were written.
    """
    known, kept = connection.checked.get(name), connection.kept
    versions = {each: kept.version(each) for each in (name, "derived")}
    if known is None or known.versions != versions:
        kept.expire("derived")  # looked up earlier, it may lack the entries of these rows
        versions["derived"] = kept.version("derived")
        known = connection.checked[name] = Checked(versions, _compared(connection, name, {})[1])
    return known.unlisted - connection.listed


def outcomes_table(connection: Connection) -> lance.LanceDataset | None:
    """Return the table of outcomes; None if there were never any; raise ``WorkError`` if it is gone."""
    table = connection.find("outcomes")
    if table is None:
        _listed_outcomes(connection, {})  # compares nothing with the ledger
    return table


def _listed_outcomes(connection: Connection, equals: Equals) -> pa.Table:
    """Return the outcomes of whole evaluations, without those that the ledger does not list."""
    rows, unlisted = _compared(connection, "outcomes", equals)
    return _without(rows, "evaluation", unlisted)


def _compared(connection: Connection, name: str, equals: Equals) -> tuple[pa.Table, frozenset[str]]:
    """Return rows of a table, and the keys of those that the ledger does not list.

    Differing rows are read again after a pause, in which another process writes its entries, or removes rows.

    Raises:
        WorkError: If rows are missing, or differ from those that were written.
    """
    for attempt, pause in enumerate(_PAUSES):
        time.sleep(pause)
        if attempt:
            connection.kept.expire("derived", name)
        # the ledger first: rows are written before their entry
        entries = _read(connection, "derived", {"table_name": name})
        rows = _read(connection, name, equals)
        keys = {*_any_of(equals.get("evaluation", ())), *texts(pc.unique(rows["evaluation"]))} if equals else None
        found = compared(name, rows, entries, keys=keys)
        if not found.damaged and (attempt or name in DERIVED_ROWS or not found.unlisted):
            return rows, frozenset(found.unlisted)
    raise damage(name, found.damaged)


def _without(rows: pa.Table, column: str, keys: Collection[str]) -> pa.Table:
    return rows.filter(pc.invert(pc.is_in(rows[column], value_set=pa.array(keys, pa.string())))) if keys else rows


def whole_evaluations(connection: Connection) -> Iterator[pa.Table]:
    """Yield the outcomes of all evaluations, with those of some evaluations in memory at a time."""
    every = sorted(counts(connection, "outcomes", "evaluation", {}))
    for start in range(0, len(every), _AT_ONCE):
        yield read_where(connection, "outcomes", one_of("evaluation", every[start : start + _AT_ONCE]))


def _read(connection: Connection, name: str, equals: Equals, columns: Sequence[str] = ()) -> pa.Table:
    """Return the rows as they are stored, see :func:`read`."""
    kept = None
    if TABLES[name].small:
        kept = connection.kept.rows(name, partial(_stored, connection, name))
    if kept is None:
        return read_where(connection, name, where(equals), columns)
    kept = _among(kept, equals)
    return kept.select(list(columns)) if columns else kept


def read_now(connection: Connection, name: str, equals: Equals) -> pa.Table:
    """Return the same as :func:`read`, checked again if there are no rows: another process may just have written them.

    For rows that other rows refer to, which may be newer than the cached ones.
    """
    rows = read(connection, name, equals)
    if rows or not connection.kept.look_seconds:  # 0: cached rows are as new as the stored ones
        return rows
    connection.kept.expire(name)
    return read(connection, name, equals)


def counts(connection: Connection, name: str, column: str, equals: Equals) -> dict[str, int]:
    """Return the number of filtered rows for each value in one column; reads no other column."""
    counted: Any = pc.value_counts(read(connection, name, equals, (column,))[column])
    return {each["values"]: each["counts"] for each in counted.to_pylist()}


def _any_of(wanted: str | Sequence[str]) -> Sequence[str]:
    return [wanted] if isinstance(wanted, str) else wanted


def _among(rows: pa.Table, equals: Equals) -> pa.Table:
    for column, wanted in equals.items():
        rows = rows.filter(pc.is_in(rows[column], value_set=pa.array(_any_of(wanted), pa.string())))
    return rows


def read_where(
    connection: Connection, name: str, condition: str | None = None, columns: Sequence[str] = ()
) -> pa.Table:
    """Return the stored rows of a table that meet an SQL condition, or only some columns."""
    return _stored(connection, name, connection.find(name), columns, condition)


def _stored(
    connection: Connection,
    name: str,
    table: lance.LanceDataset | None,
    columns: Sequence[str] = (),
    condition: str | None = None,
) -> pa.Table:
    schema = TABLES[name].columns
    if columns:
        schema = pa.schema([schema.field(column) for column in columns])
    while table is not None:
        try:
            with storage_faults(f"reading table {name!r}"):
                rows: pa.Table = table.to_table(columns=schema.names, filter=condition)
                return rows.cast(schema)
        except WorkError:
            before, table = table, connection.find(name)
            if table is None or table.version == before.version:
                raise  # otherwise another process has just compacted the version that was being read
    return schema.empty_table()


def merge(
    connection: Connection, name: str, rows: pa.Table, *, update: bool, replaced: str | None = None
) -> tuple[int, lance.LanceDataset]:
    """Add rows by the key of their table in one commit; the table is made if it does not exist.

    With ``update`` a stored row with the same key is replaced; otherwise it stays and the new one is left out. Stored
    rows that meet the SQL condition ``replaced`` are deleted in the same commit unless ``rows`` has their key.

    Returns:
        Number of rows inserted or updated, and the table at the version that the commit made.
    """

    def commit() -> tuple[lance.LanceDataset, dict[str, int]]:
        table = connection.find(name)
        if table is None:
            if TABLES[name].small:
                read(connection, name)  # from now on, the connection caches added rows
            table = connection.create(name, TABLES[name].keyed_columns)
        builder = table.merge_insert([*TABLES[name].key]).when_not_matched_insert_all()
        if update:
            builder = builder.when_matched_update_all()
        if replaced is not None:
            builder = builder.when_not_matched_by_source_delete(replaced)
        return table, builder.execute(rows)

    table, done = retrying(f"writing table {name!r}", commit)
    is_addition = done["num_inserted_rows"] == rows.num_rows and not done["num_deleted_rows"]
    connection.committed(name, table.version, rows if is_addition else None)
    return done["num_inserted_rows"] + done["num_updated_rows"], table


def register(connection: Connection, rows: Iterable[object], *, update: bool = True) -> None:
    """Merge rows of one type into their table; see :func:`merge`."""
    if found := [*rows]:
        kind = type(found[0])
        merge(connection, TABLE_OF[kind], table_of(kind, found), update=update)


def delete(connection: Connection, name: str, column: str, values: Sequence[str | int]) -> None:
    """Delete the rows that hold one of these values in a column; for derived rows, all of their derivations."""
    condition = one_of(column, values)
    if values and (key := KEYED_BY.get(name)) is not None:
        keys = texts(pc.unique(read_where(connection, name, condition, (key,))[key].drop_null()))
        connection.kept.expire("derived")
        entries = rows_in(LedgerEntry, _read(connection, "derived", {"key": keys}))
        # first: rows without an entry are not read
        register(connection, [replace(entry, digest=REMOVED) for entry in entries])
        condition += f" OR {one_of(key, keys)}"

    def commit() -> int:
        table = connection.find(name)
        if table is None:
            return 0
        table.delete(condition)
        return int(table.version)

    if values:
        connection.committed(name, retrying(f"writing table {name!r}", commit))


def quoted(value: str | int) -> str:
    """Return a string or a number as an SQL literal.

    Examples:
        >>> quoted("it's"), quoted(7)
        ("'it''s'", '7')
    """
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def one_of(column: str, values: Sequence[str | int]) -> str:
    """Return the SQL condition that a column holds one of these values.

    Examples:
        >>> one_of("set_name", ["a", "b"])
        "set_name IN ('a', 'b')"
    """
    return f"{column} IN ({', '.join(map(quoted, values))})" if values else "false"


def where(equals: Equals) -> str | None:
    """Return the SQL condition that columns hold the given values (any of several); None: no condition."""
    return " AND ".join(one_of(column, _any_of(wanted)) for column, wanted in equals.items()) or None


def in_order(table: str, rows: pa.Table) -> pa.Table:
    """Return rows of a table in reading order: outcomes of an evaluation by query.

    Encoders are compared query by query, and a sum has the same last digit only if it is added up in the same order.
    """
    keys: list[tuple[str, Literal["ascending", "descending"]]] = [
        (name, "ascending") for name in TABLES[table].order if len(pc.unique(rows.column(name))) > 1
    ]
    return rows.sort_by(keys) if keys else rows


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


# --- Writing rows of analyses. Rows that a run computed again and finds stored are not written, so that a run that
# changes nothing writes nothing.


def conformed(table: str, rows: pa.Table) -> pa.Table:
    """Return the rows with exactly the columns of the table.

    Raises:
        RequestError: If a column or a value does not fit, or if a key comes twice.
    """
    check_columns(table, rows.column_names)
    schema = TABLES[table].columns
    for field in schema:
        if field.name not in rows.column_names:
            rows = rows.append_column(field.name, pa.nulls(rows.num_rows, field.type))
    try:
        conformed = rows.select(schema.names).cast(schema)
    except (ValueError, pa.ArrowNotImplementedError) as fault:  # a null, or a value of another type
        raise RequestError(f"table {table!r}: {fault}") from fault
    # by one thread: if the system provides no further one, Arrow waits for it forever
    counted = conformed.group_by([*TABLES[table].key], use_threads=False).aggregate([([], "count_all")])
    repeated = counted.filter(pc.greater(counted.column("count_all"), pa.scalar(1)))
    if repeated.num_rows:
        first = repeated.select([*TABLES[table].key]).slice(0, 1).to_pylist()[0]
        raise RequestError(f"table {table!r}: {first} occurs more than once")
    return conformed


def check_columns(table: str, columns: Iterable[str]) -> None:
    """Raise :class:`RequestError` unless there is such a table of analyses with these columns."""
    if table not in ANALYSES:
        raise RequestError(f"there is no table {table!r}; the tables are {', '.join(ANALYSES)}")
    names = TABLES[table].columns.names
    if strange := [column for column in columns if column not in names]:
        raise RequestError(
            [f"table {table!r} has no column {column!r}; it has {', '.join(names)}" for column in strange]
        )


def matching(name: str, known: Sequence[str]) -> list[str]:
    """Return the name itself if it is known, else the known names that it matches as a shell pattern.

    A pattern without ``+`` matches no result over several protocols.

    Examples:
        >>> matching("t2i/*", ["t2i/all", "t2i/all+i2t/any", "i2t/any"])
        ['t2i/all']
    """
    if name in known:
        return [name]
    return [one for one in known if fnmatchcase(one, name) and ("+" in name or "+" not in one)]


def names_with_rows(store: EmbeddingStore, table: str, **wanted: Sequence[str]) -> dict[str, list[str]]:
    """Return for each column the stored values that the wanted names or shell patterns (``t2i/*``) match.

    Columns without a wanted name are left out; an empty table has every name.

    Raises:
        RequestError: If no row has a name; lists all of these, each with the nearest stored one.
    """
    found: dict[str, list[str]] = {}
    faults = []
    for column, names in wanted.items():
        if not names:
            continue
        known = sorted(store.counts(table, column))
        found[column] = matches = []
        for name in names:
            meant = matching(name, known) if known else [name]
            matches += [one for one in meant if one not in matches]
            if not meant:
                shown = ", ".join(known[:_SHOWN]) + (" …" if len(known) > _SHOWN else "")
                faults.append(
                    f"{column.replace('_', ' ')} {name!r} has no {table} in {store.uri}; {did_you_mean(name, known)}"
                    f"those with {table}: {shown}"
                )
    if faults:
        raise RequestError(faults)
    return found


# --- Parts of an evaluation in transit between processes: a separate table, which is dropped when they are merged.


PARTS_PREFIX = "parts-"


@dataclass(frozen=True, kw_only=True)
class _Part:
    part: str
    arrays: Annotated[bytes, pa.large_binary()]
    crc: Annotated[int, pa.uint32()]


def write_part(store: EmbeddingStore, evaluation: str, part: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Store the arrays of one part in one commit; another process may write another part at the same time."""
    packed = io.BytesIO()
    np.savez(packed, **arrays)  # type: ignore[arg-type]
    row = table_of(_Part, [_Part(part=part, arrays=packed.getvalue(), crc=zlib.crc32(packed.getvalue()))])
    name, connection = PARTS_PREFIX + evaluation, store.connection

    def append() -> None:
        connection.append(connection.create(name, row.schema), row.to_reader())

    retrying(f"writing {name!r}", append)


def stored_parts(store: EmbeddingStore, evaluation: str) -> list[str]:
    """Return the stored parts of an evaluation."""
    table = store.connection.find(PARTS_PREFIX + evaluation)
    if table is None:
        return []
    with storage_faults(f"reading {PARTS_PREFIX + evaluation!r}"):
        return sorted(set(table.to_table(columns=["part"]).column("part").to_pylist()))


def read_parts(store: EmbeddingStore, evaluation: str) -> Iterator[tuple[str, dict[str, NDArray[Any]]]]:
    """Yield the stored parts, one in memory at a time; a part that changed on disk is left out.

    A part that two processes wrote comes twice.
    """
    name = PARTS_PREFIX + evaluation
    table = store.connection.find(name)
    if table is None:
        return
    with storage_faults(f"reading {name!r}"):
        for batch in table.scanner(batch_size=1).to_batches():
            for row in batch.to_pylist():
                if zlib.crc32(row["arrays"]) == row["crc"]:
                    with np.load(io.BytesIO(row["arrays"]), allow_pickle=False) as arrays:
                        yield row["part"], dict(arrays)


def drop_parts(store: EmbeddingStore, evaluation: str) -> None:
    """Remove the parts of an evaluation; it may have none."""
    store.connection.drop(PARTS_PREFIX + evaluation)
