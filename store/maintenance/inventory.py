"""``store info``: what a store holds, how large it is and who wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from store.errors import RequestError, WorkError
from store.keys import SET_PREFIXES, table_of
from store.maintenance.compaction import data_bytes
from store.maintenance.health import set_key
from store.schema import FORMAT
from store.sets.seal import SealedSet, sealed_sets
from store.tables.analysis_rows import read_rows
from store.tables.connection import Connection, storage_faults
from store.tables.corpora import item_index
from store.types import SetKey

_TIME = pa.timestamp("us", tz="UTC")
SETS_INFO = pa.schema(
    [
        ("set_name", pa.string()),
        ("encoder", pa.string()),
        ("corpus", pa.string()),
        ("modality", pa.string()),
        ("vectors", pa.string()),
        ("dim", pa.int32()),
        ("storage", pa.string()),
        ("state", pa.string()),  # sealed, partial, damaged
        ("n_rows", pa.int64()),
        ("n_items", pa.int64()),  # of the corpus
        ("n_bytes", pa.int64()),  # data files of the current version
        ("tag", pa.string()),
        ("digest", pa.string()),
        ("version", pa.int64()),
        ("encoder_fingerprint", pa.string()),
        ("corpus_fingerprint", pa.string()),
        ("written_by", pa.string()),  # hosts and devices of its batches
        ("sealed_at", _TIME),
    ]
)
TABLES_INFO = pa.schema(
    [
        ("table_name", pa.string()),
        ("n_rows", pa.int64()),
        ("n_versions", pa.int64()),
        ("n_files", pa.int64()),
        ("n_bytes", pa.int64()),  # data files of the current version
        ("disk_bytes", pa.int64()),  # everything in its folder; null in object storage
    ]
)


@dataclass(frozen=True, kw_only=True)
class StoreInfo:
    """A store at a glance.

    Attributes:
        uri: Where it is.
        format: Its schema version.
        sets: One row per embedding set, columns :data:`SETS_INFO`.
        tables: One row per table, sets included, columns :data:`TABLES_INFO`.
    """

    uri: str
    format: int
    sets: pa.Table
    tables: pa.Table


def info(connection: Connection) -> StoreInfo:
    """Counts and sizes of everything stored; reads no vectors."""
    names = connection.names()
    registered = {table_of(sealed.key): sealed for sealed in sealed_sets(connection)}
    writers = _writers(connection)
    sets = [
        _set_row(connection, name, registered.get(name), writers.get(name, set()))
        for name in sorted({name for name in names if name.startswith(SET_PREFIXES)} | set(registered))
    ]
    return StoreInfo(
        uri=connection.uri,
        format=FORMAT,  # a store of another one does not open
        sets=pa.Table.from_pylist(sets, schema=SETS_INFO),
        tables=pa.Table.from_pylist([_table_row(connection, name) for name in names], schema=TABLES_INFO),
    )


def find_set(connection: Connection, reference: str) -> SetKey:
    """The set that a table name, the beginning of one, a tag or a digest's beginning stands for."""
    keys = {name: set_key(connection, name) for name in connection.names() if name.startswith(SET_PREFIXES)}
    tags = {table_of(sealed.key): (sealed.tag, sealed.digest) for sealed in sealed_sets(connection)}
    found = [
        name
        for name in keys
        if name.startswith(reference) or any(text.startswith(reference) for text in tags.get(name, ()))
    ]
    exact = [name for name in found if name == reference]
    if len(exact or found) != 1:
        known = "\n  ".join(sorted(keys)) or "none"
        many = f"{len(found)} sets begin with" if found else "no set is named"
        raise RequestError(f"{many} {reference!r}; the store {connection.uri} holds\n  {known}")
    return keys[(exact or found)[0]]


def _set_row(connection: Connection, name: str, sealed: SealedSet | None, writers: set[str]) -> dict[str, object]:
    row: dict[str, object] = {"set_name": name, "written_by": "; ".join(sorted(writers))}
    try:
        key = sealed.key if sealed else set_key(connection, name)
        row |= {
            field: getattr(key, field) for field in ("encoder", "encoder_fingerprint", "corpus", "corpus_fingerprint")
        }
        row |= {"modality": key.modality, "vectors": key.vectors}
        table = connection.find(name, version=sealed.tag if sealed else None)
        if table is None:
            raise WorkError(f"the table of set {name!r} is gone")
        kind = table.schema.field("vector" if key.vectors == "single" else "vectors").type
        kind = kind if key.vectors == "single" else kind.value_type
        row |= {"dim": kind.list_size, "storage": "float16" if kind.value_type == pa.float16() else "float32"}
        row |= {"n_rows": table.count_rows(), "n_bytes": data_bytes(table), "version": table.version}
        row["n_items"] = len(item_index(connection, key.corpus, key.corpus_fingerprint, key.modality))
    except (RequestError, WorkError):
        return row | {"state": "damaged"}
    if sealed is None:
        return row | {"state": "partial"}
    return row | {"state": "sealed", "tag": sealed.tag, "digest": sealed.digest, "sealed_at": sealed.sealed_at}


def _table_row(connection: Connection, name: str) -> dict[str, object]:
    row: dict[str, object] = {"table_name": name}
    if connection.is_local:
        row["disk_bytes"] = disk_bytes(Path(connection.table_uri(name)))
    try:
        table = connection.find(name)
        if table is not None:
            with storage_faults(f"reading table {name!r}"):
                row |= {"n_rows": table.count_rows(), "n_versions": len(table.versions()), "n_bytes": data_bytes(table)}
                row["n_files"] = sum(len(part.metadata.files) for part in table.get_fragments())
    except WorkError:
        pass  # its figures stay null; `store verify` says what is wrong with it
    return row


def disk_bytes(folder: Path) -> int:
    """Size of every file below a folder."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # a writer at work has just replaced it
            continue
    return total


def _writers(connection: Connection) -> dict[str, set[str]]:
    """Set -> "host (device)" of the batches that wrote it."""
    rows = read_rows(connection, "batches", {}).group_by(["set_name", "host", "device"]).aggregate([])
    writers: dict[str, set[str]] = {}
    for row in rows.to_pylist():
        writers.setdefault(row["set_name"], set()).add(f"{row['host']} ({row['device']})")
    return writers
