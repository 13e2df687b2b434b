"""Contents, size and origin of a store (`capim store info`), and the upgrade from an earlier format."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from capim.store.connection import Connection, data_bytes, retrying
from capim.store.embedding_store import MARKED, UPGRADED, EmbeddingStore, check_address, written_format
from capim.store.errors import RequestError, WorkError
from capim.store.ledger import KEYED_BY, REMOVED, Made, about_evaluation, entry_of, made_rows
from capim.store.row_types import columns_of, rows_in, table_of
from capim.store.rows import delete, now, read_where, register, whole_evaluations
from capim.store.schema import FORMAT, FORMAT_KEY, TABLES, LedgerEntry, Run, Slice, StoredImage, StoredSet
from capim.store.sets.rows import vector_type
from capim.store.sets.sealed import SealedSet, set_table, storage_of
from capim.store.types import SET_PREFIXES, EncoderSpec, SetKey

SETS_INFO = (*columns_of(StoredSet).names, "state", "n_items", "written_by")
"""Columns of the facts about an embedding set: ``state`` is sealed, partial or damaged, ``n_bytes`` the size of the
data files of the current version, ``written_by`` the hosts and devices of its batches."""


@dataclass(frozen=True, kw_only=True)
class StoreInfo:
    """The contents of a store.

    Attributes:
        sets: One row per embedding set, with :data:`SETS_INFO`.
        n_tables: Number of tables, including sets.
        n_bytes: Size of the data files of their current versions, without damaged tables.
    """

    sets: tuple[dict[str, object], ...]
    n_tables: int
    n_bytes: int


def info(store: EmbeddingStore) -> StoreInfo:
    """Return counts and sizes of all stored data, and their origin; reads no vectors."""
    names, n_bytes = store.connection.names(), 0
    for name in [*names]:
        with suppress(WorkError):  # `capim store verify` names the error
            if (table := store.connection.find(name)) is None:
                names.remove(name)  # its creation or its removal was interrupted
            else:
                n_bytes += data_bytes(table)
    registered = {sealed.key.table: sealed for sealed in store.sealed_sets()}
    writers = _writers(store)
    sets = sorted({name for name in names if name.startswith(SET_PREFIXES)} | registered.keys())
    return StoreInfo(
        sets=tuple(_set_row(store, name, registered.get(name), writers[name]) for name in sets),
        n_tables=len(names),
        n_bytes=n_bytes,
    )


def stored_key(connection: Connection, name: str) -> SetKey:
    """Return the identity of the embedding set in a table, from the metadata of the table."""
    table = connection.find(name)
    metadata = (table.schema.metadata if table is not None else None) or {}
    if b"capim.set" not in metadata:
        raise WorkError(f"table {name!r} has no key of an embedding set in its metadata")
    return SetKey(**json.loads(metadata[b"capim.set"]))


def stored_sets(store: EmbeddingStore) -> dict[str, SetKey]:
    """Return the identity of every embedding set by the name of its table; a sealed set's may be damaged or missing."""
    keys = {sealed.key.table: sealed.key for sealed in store.sealed_sets()}
    for name in store.connection.names():
        if name.startswith(SET_PREFIXES) and name not in keys:
            with suppress(WorkError):  # `capim store verify` names it
                keys[name] = stored_key(store.connection, name)
    return keys


def _set_row(store: EmbeddingStore, name: str, sealed: SealedSet | None, writers: set[str]) -> dict[str, object]:
    row: dict[str, object] = dict.fromkeys(SETS_INFO)
    row |= {"set_name": name, "written_by": "; ".join(sorted(writers))}
    try:
        key = sealed.key if sealed else stored_key(store.connection, name)
        row |= key.columns
        table = set_table(store.connection, key, sealed.tag if sealed else None)
        vector = vector_type(table.schema)
        row |= {"dim": vector.list_size, "storage": storage_of(vector), "version": table.version}
        row |= {"n_rows": table.count_rows(), "n_bytes": data_bytes(table), "n_items": len(store.item_index(key))}
        if sealed is None:
            return row | {"state": "partial"}
        return row | {"state": "sealed", "tag": sealed.tag, "digest": sealed.digest, "sealed_at": sealed.sealed_at}
    except (RequestError, WorkError):
        return row | {"state": "damaged"}


def disk_bytes(folder: Path) -> int:
    """Return the size of all files below a folder."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # another process has just replaced it
            total += path.stat().st_size if path.is_file() else 0
    return total


def _writers(store: EmbeddingStore) -> dict[str, set[str]]:
    """Return set -> "host (device)" of the batches that it was written in."""
    rows = store.rows("batches").group_by(["set_name", "host", "device"], use_threads=False).aggregate([])
    writers: dict[str, set[str]] = defaultdict(set)
    for row in rows.to_pylist():
        writers[row["set_name"]].add(f"{row['host']} ({row['device']})")
    return writers


# --- Check of the disk space for an embedding set before it is encoded.


_ROW_BYTES = 120  # id, hashes and results next to the vectors
_MARGIN = 1.3  # new files next to the old ones while a set is compacted, and other writes


def bytes_of_rows(spec: EncoderSpec, n_items: int, vectors_per_item: float = 1.0) -> int:
    """Return the size of the vectors of so many items, including the other columns of each row."""
    component = 2 if spec.storage == "float16" else 4
    return int(n_items * (spec.dim * component * vectors_per_item + _ROW_BYTES))


def check_disk_space(store: EmbeddingStore, spec: EncoderSpec, n_items: int, *, vectors_per_item: float = 1.0) -> int:
    """Return the disk space in bytes for writing and sealing a set of ``n_items`` rows: rows × bytes × 1.3.

    Object storage has no limit.

    Raises:
        WorkError: If the disk has less free space.
    """
    needed = int(bytes_of_rows(spec, n_items, vectors_per_item) * _MARGIN)
    if store.connection.is_local:
        free = shutil.disk_usage(store.uri).free
        if free < needed:
            raise WorkError(
                f"{n_items} items by {spec.name!r} need about {needed / 1e9:.2f} GB, {store.uri} has "
                f"{free / 1e9:.2f} GB free",
                remedy="Free space (`capim store prune`, `capim store drop`), or give a workspace on another disk",
            )
    return needed


# --- Upgrade of a store of an earlier format: `capim store upgrade`.
#
# Encoded, imported, scored and derived data do not change. A column that this format adds is empty in older rows, and
# one that it does not have is removed.

# kind of a derivation -> its table; of others `slices`
_TABLE_OF = {"result": "results", "replicates": "replicates", "comparison": "comparisons", "ranking": "rankings"}


def upgrade_store(uri: str) -> Iterator[str]:
    """Convert the tables of a store to this format, one after the other; a second call resumes an interrupted one.

    Args:
        uri: As for :meth:`EmbeddingStore.open`.

    Returns:
        A description of the change of each changed table.

    Raises:
        RequestError: If it is neither a format that is upgraded nor this one.
    """
    connection = Connection.to(uri)
    check_address(connection)
    written = written_format(connection)
    if written not in (UPGRADED, FORMAT):
        found = "no format that can be read" if written is None else f"format {written}"
        raise RequestError(f"store {connection.uri} has {found}, this release of capim upgrades {UPGRADED} to {FORMAT}")
    index = connection.find("image_index")
    if index is not None and "item" not in index.schema.names:
        index.add_columns({"item": "sha"})
    for name in TABLES:
        if name != "derived":
            yield from retrying(f"changing the columns of table {name!r}", partial(_change, connection, name))
            connection.committed(name, 0)
    if written == UPGRADED:
        yield from _take_up(connection)
        yield _fill_ledger(connection)
        marked = connection.find(MARKED) or connection.create(MARKED, TABLES[MARKED].keyed_columns)
        marked.update_schema_metadata({FORMAT_KEY: str(FORMAT)})
        connection.committed(MARKED, 0)
    connection.drop("formats")  # only now: a store without a format cannot be upgraded


def _change(connection: Connection, name: str) -> list[str]:
    """Give a table the columns of this format; return a description of the changes, if any."""
    table, wanted = connection.find(name), TABLES[name].columns
    if table is None:
        return []
    stored = table.schema
    missing = [each for each in wanted if each.name not in stored.names]
    surplus = [each for each in stored.names if each not in wanted.names]
    nullable = [each.name for each in wanted if each.nullable and each.name in stored.names]
    required = [column for column in nullable if not stored.field(column).nullable]
    if missing:
        table.add_columns(pa.schema(missing))
    if "statistic" in surplus:  # of two rankings the other is left
        table.delete("statistic = 'borda'")
    if surplus:
        table.drop_columns(surplus)
    for column in required:
        table.alter_columns({"path": column, "nullable": True})
    columns = [*(each.name for each in missing), *surplus, *required]
    return [f"{name}: columns changed ({', '.join(columns)}; {table.count_rows():,} rows)"] if columns else []


def _take_up(connection: Connection) -> Iterator[str]:
    """Move data from tables that only format 7 has: keys of runs, seconds of slices, hashes; remove these tables."""
    for name in sorted({"image_hashes", "metrics", "pair_facts", "timings", "uses"} & {*connection.names()}):
        rows = _rows(connection, name)
        if name == "pair_facts":
            delete(connection, "derived", "kind", ["pair"])
        elif name == "image_hashes":
            register(connection, [StoredImage(item=row.pop("place"), **row) for row in rows])
        elif name == "timings":
            seconds = {row["slice"]: row["seconds_per_query"] for row in rows}
            slices = rows_in(Slice, read_where(connection, "slices"))
            timed = [replace(row, seconds_per_query=seconds[row.slice]) for row in slices if row.slice in seconds]
            register(connection, timed)
        elif name == "uses":
            lists = {row["uses"]: row["keys"] for row in rows}
            runs = [row for row in rows_in(Run, read_where(connection, "runs")) if row.uses]
            keys = [{key for each in row.uses or () for key in lists.get(each, [each])} for row in runs]
            register(connection, [replace(row, uses=sorted(used)) for row, used in zip(runs, keys, strict=True)])
        connection.drop(name)
        yield f"{name}: merged into other tables ({len(rows):,} rows)"


def _fill_ledger(connection: Connection) -> str:
    """Write the ledger again, with the digest of the rows of every entry, and an entry for every evaluation."""
    names = {field.name for field in fields(LedgerEntry)} - {"table_name", "digest"}
    known = [LedgerEntry(**{name: row[name] for name in names}) for row in _rows(connection, "derived")]
    found: dict[str, tuple[str, Made]] = {}
    for name in KEYED_BY:
        for rows in whole_evaluations(connection) if name == "outcomes" else [read_where(connection, name)]:
            found |= {key: (name, made) for key, made in made_rows(name, rows).items()}
    created = now()
    of_outcomes = [(key, made) for key, (name, made) in found.items() if name == "outcomes"]
    entries = [entry_of("outcomes", about_evaluation(key, created), made) for key, made in of_outcomes]
    for entry in known:
        name, made = found.get(entry.key, (_TABLE_OF.get(entry.kind, "slices"), Made(0, 0)))
        is_whole = made.n_rows == entry.n_rows or (name == "rankings" and made.n_rows)  # rankings lost one statistic
        whole = entry_of(name, entry, made)
        entries.append(whole if is_whole else replace(entry, table_name=name, digest=REMOVED))
    connection.overwrite("derived", table_of(LedgerEntry, entries).cast(TABLES["derived"].keyed_columns))
    connection.remove("digests")  # of all files, replaced by the ledger
    return f"derived: columns changed (table_name, digest; {len(entries):,} rows)"


def _rows(connection: Connection, name: str) -> list[dict[str, Any]]:
    table = connection.find(name)
    return [] if table is None else [*table.to_table().to_pylist()]
