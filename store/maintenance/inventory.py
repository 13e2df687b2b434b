"""What a store holds, how large it is and what wrote it, for `capim store info`."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from capim.store.embedding_store import EmbeddingStore
from capim.store.errors import RequestError, WorkError
from capim.store.keys import SET_PREFIXES, key_columns, table_of
from capim.store.schema import FORMAT, TIME, optional
from capim.store.sets.seal import SealedSet, storage_of
from capim.store.tables.compaction import data_bytes
from capim.store.tables.connection import Connection
from capim.store.tables.faults import storage_faults
from capim.store.tables.schemas import vector_type
from capim.store.types import SetKey

_SIZES = ("n_rows", "n_bytes")  # of the data files of the current version
SETS_INFO = pa.schema(
    [
        *optional(pa.string(), "set_name", "encoder", "corpus", "modality", "vectors", "storage"),
        *optional(pa.string(), "state"),  # sealed, partial, damaged
        *optional(pa.int64(), *_SIZES, "n_items", "dim", "version"),
        *optional(pa.string(), "tag", "digest", "encoder_fingerprint", "corpus_fingerprint"),
        *optional(pa.string(), "written_by"),  # hosts and devices of its batches
        *optional(TIME, "sealed_at"),
    ]
)
TABLES_INFO = pa.schema(
    [
        *optional(pa.string(), "table_name"),
        *optional(pa.int64(), *_SIZES, "n_versions", "n_files"),
        *optional(pa.int64(), "disk_bytes"),  # everything in its folder; null in object storage
    ]
)


@dataclass(frozen=True, kw_only=True)
class StoreInfo:
    """The contents of a store.

    Attributes:
        uri: Absolute path or address.
        format: Version of its schema.
        sets: One row per embedding set, columns :data:`SETS_INFO`.
        tables: One row per table, sets included, columns :data:`TABLES_INFO`.
    """

    uri: str
    format: int
    sets: pa.Table
    tables: pa.Table


def info(store: EmbeddingStore) -> StoreInfo:
    """Counts and sizes of everything stored, and who wrote it; reads no vectors."""
    names = store.connection.names()
    registered = {table_of(sealed.key): sealed for sealed in store.sealed_sets()}
    writers = _writers(store)
    sets = [
        _set_row(store, name, registered.get(name), writers.get(name, set()))
        for name in sorted({name for name in names if name.startswith(SET_PREFIXES)} | set(registered))
    ]
    return StoreInfo(
        uri=store.uri,
        format=FORMAT,  # a store with another format cannot be opened
        sets=pa.Table.from_pylist(sets, schema=SETS_INFO),
        tables=pa.Table.from_pylist([_table_row(store.connection, name) for name in names], schema=TABLES_INFO),
    )


def stored_key(connection: Connection, name: str) -> SetKey:
    """The identity of the embedding set in a table, from the metadata of the table."""
    table = connection.open(name)
    metadata = (table.schema.metadata if table is not None else None) or {}
    if b"capim.set" not in metadata:
        raise WorkError(f"table {name!r} has no key of an embedding set in its metadata")
    return SetKey(**json.loads(metadata[b"capim.set"]))


def stored_sets(store: EmbeddingStore) -> dict[str, SetKey]:
    """The identity of every embedding set by the name of its table, which may be damaged or gone if it is sealed."""
    keys = {table_of(sealed.key): sealed.key for sealed in store.sealed_sets()}
    for name in store.connection.names():
        if name.startswith(SET_PREFIXES) and name not in keys:
            with suppress(WorkError):  # `capim store verify` names it
                keys[name] = stored_key(store.connection, name)
    return keys


def find_set(store: EmbeddingStore, reference: str) -> SetKey:
    """The set with this table name, or whose table name, tag or digest begins with the reference.

    Raises:
        RequestError: No set or several sets match; the message lists the sets of the store.
    """
    keys = stored_sets(store)
    tags = {table_of(sealed.key): (sealed.tag, sealed.digest) for sealed in store.sealed_sets()}
    if reference in keys:
        return keys[reference]
    matches = [name for name in keys if any(text.startswith(reference) for text in (name, *tags.get(name, ())))]
    if len(matches) != 1:
        listed = "\n  ".join(sorted(keys)) or "none"
        problem = f"{len(matches)} sets match" if matches else "no set matches"
        raise RequestError(f"{problem} {reference!r}; the store {store.uri} holds\n  {listed}")
    return keys[matches[0]]


def _set_row(store: EmbeddingStore, name: str, sealed: SealedSet | None, writers: set[str]) -> dict[str, object]:
    row: dict[str, object] = {"set_name": name, "written_by": "; ".join(sorted(writers))}
    try:
        key = sealed.key if sealed else stored_key(store.connection, name)
        row |= key_columns(key)
        table = store.connection.find(name, version=sealed.tag if sealed else None)
        if table is None:
            return row | {"state": "damaged"}
        vector = vector_type(table.schema)
        row |= {"dim": vector.list_size, "storage": storage_of(vector), "version": table.version}
        row |= {"n_rows": table.count_rows(), "n_bytes": data_bytes(table), "n_items": len(store.item_index(key))}
    except (RequestError, WorkError):
        return row | {"state": "damaged"}
    if sealed is None:
        return row | {"state": "partial"}
    return row | {"state": "sealed", "tag": sealed.tag, "digest": sealed.digest, "sealed_at": sealed.sealed_at}


def _table_row(connection: Connection, name: str) -> dict[str, object]:
    row: dict[str, object] = {"table_name": name}
    if folder := connection.folder(name):
        row["disk_bytes"] = disk_bytes(folder)
    with suppress(WorkError):  # the other columns are null then; `capim store verify` names the fault
        table = connection.find(name)
        if table is not None:
            with storage_faults(f"reading table {name!r}"):
                row |= {"n_rows": table.count_rows(), "n_versions": len(table.versions()), "n_bytes": data_bytes(table)}
                row["n_files"] = sum(len(part.metadata.files) for part in table.get_fragments())
    return row


def disk_bytes(folder: Path) -> int:
    """Size of every file below a folder."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # another process has just replaced it
            total += path.stat().st_size if path.is_file() else 0
    return total


def _writers(store: EmbeddingStore) -> dict[str, set[str]]:
    """Set -> "host (device)" of the batches that it was written in."""
    rows = store.rows("batches").group_by(["set_name", "host", "device"]).aggregate([])
    writers: dict[str, set[str]] = {}
    for row in rows.to_pylist():
        writers.setdefault(row["set_name"], set()).add(f"{row['host']} ({row['device']})")
    return writers
