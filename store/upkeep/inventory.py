"""What a store holds, how large it is, what wrote it (`capim store info`), and the way from an earlier format."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from capim.store.connection import Connection, data_bytes, retrying
from capim.store.embedding_store import MARKED, UPGRADED, EmbeddingStore, check_address, written_format
from capim.store.errors import RequestError, WorkError
from capim.store.ledger import KEYED_BY, REMOVED, Made, about_evaluation, entry_of, made_rows
from capim.store.row_types import rows_in
from capim.store.rows import delete, now, read_where, register, whole_evaluations
from capim.store.schema import FORMAT, FORMAT_KEY, TABLES, LedgerEntry, Run, Slice, StoredImage
from capim.store.sets.rows import vector_type
from capim.store.sets.seal import SealedSet, storage_of
from capim.store.types import SET_PREFIXES, EncoderSpec, SetKey

SETS_INFO = (
    *("set_name", "encoder", "corpus", "modality", "vectors", "storage", "state"),
    *("n_rows", "n_bytes", "n_items", "dim", "version", "tag", "digest"),
    *("encoder_fingerprint", "corpus_fingerprint", "written_by", "sealed_at"),
)
"""What is known of an embedding set: ``state`` is sealed, partial or damaged, ``n_bytes`` that of the data files of the
current version, ``written_by`` names hosts and devices of its batches."""


@dataclass(frozen=True, kw_only=True)
class StoreInfo:
    """The contents of a store.

    Attributes:
        sets: One row per embedding set, with :data:`SETS_INFO`.
        n_tables: Tables, sets included.
        n_bytes: Size of the data files of their current versions, but of damaged tables.
    """

    sets: tuple[dict[str, object], ...]
    n_tables: int
    n_bytes: int


def info(store: EmbeddingStore) -> StoreInfo:
    """Counts and sizes of everything stored, and who wrote it; reads no vectors."""
    names, n_bytes = store.connection.names(), 0
    for name in [*names]:
        with suppress(WorkError):  # `capim store verify` names the fault
            if (table := store.connection.find(name)) is None:
                names.remove(name)  # its making or its removal was interrupted
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
    """The identity of the embedding set in a table, from the metadata of the table."""
    table = connection.find(name)
    metadata = (table.schema.metadata if table is not None else None) or {}
    if b"capim.set" not in metadata:
        raise WorkError(f"table {name!r} has no key of an embedding set in its metadata")
    return SetKey(**json.loads(metadata[b"capim.set"]))


def stored_sets(store: EmbeddingStore) -> dict[str, SetKey]:
    """The identity of every embedding set by the name of its table, which may be damaged or gone if it is sealed."""
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


def disk_bytes(folder: Path) -> int:
    """Size of every file below a folder."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # another process has just replaced it
            total += path.stat().st_size if path.is_file() else 0
    return total


def _writers(store: EmbeddingStore) -> dict[str, set[str]]:
    """Set -> "host (device)" of the batches that it was written in."""
    rows = store.rows("batches").group_by(["set_name", "host", "device"], use_threads=False).aggregate([])
    writers: dict[str, set[str]] = defaultdict(set)
    for row in rows.to_pylist():
        writers[row["set_name"]].add(f"{row['host']} ({row['device']})")
    return writers


# --- Whether the disk has enough space for an embedding set before it is encoded.


_ROW_BYTES = 120  # id, hashes and figures beside the vectors
_MARGIN = 1.3  # new files beside the old ones while a set is compacted, and what else is written


def bytes_of_rows(spec: EncoderSpec, n_items: int, vectors_per_item: float = 1.0) -> int:
    """The size of the vectors of so many items with what each row has beside them."""
    component = 2 if spec.storage == "float16" else 4
    return int(n_items * (spec.dim * component * vectors_per_item + _ROW_BYTES))


def check_disk_space(store: EmbeddingStore, spec: EncoderSpec, n_items: int, *, vectors_per_item: float = 1.0) -> int:
    """Disk space in bytes that a set of ``n_items`` rows takes while it is written and sealed: rows × bytes × 1.3.

    Object storage has no limit.

    Raises:
        WorkError: The disk has less free.
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


# --- A store of an earlier format, brought to this one: `capim store upgrade`.
#
# What was encoded, imported, scored and derived stays as it is. A column that this format adds is empty in rows that
# were written before, and one that it does not have is removed.

# kind of a derivation -> its table; of others `slices`
_TABLE_OF = {"result": "results", "replicates": "replicates", "comparison": "comparisons", "ranking": "rankings"}


@dataclass(frozen=True, kw_only=True)
class Upgraded:
    """What was done with one table, and the columns in which it differs."""

    table: str
    done: str
    columns: tuple[str, ...]
    n_rows: int


def upgrade_store(uri: str) -> Iterator[Upgraded]:
    """Brings the tables of a store to this format, one after the other; a second call goes on where one was ended.

    Args:
        uri: As for :meth:`EmbeddingStore.open`.

    Raises:
        RequestError: The format is neither 7 nor this one, or a table lacks a column that nothing can be made of.
    """
    connection = Connection.to(uri)
    check_address(connection)
    written = written_format(connection)
    if written not in (UPGRADED, FORMAT):
        found = "no format that can be read" if written is None else f"format {written}"
        raise RequestError(
            f"store {connection.uri} has {found}, this release of capim upgrades format {UPGRADED} to {FORMAT}"
        )
    index = connection.find("image_index")
    if index is not None and "item" not in index.schema.names:
        index.add_columns({"item": "sha"})
    changes = {name: _differences(connection, name) for name in TABLES if name != "derived"}
    for name, (lacking, others, _) in changes.items():
        wrong = [each.name for each in lacking if not each.nullable]
        if wrong := [*wrong, *(each for each in others if each in TABLES[name].columns.names)]:
            problem = f"table {name!r} of store {connection.uri} differs in {', '.join(wrong)}, and is not upgraded"
            raise RequestError(f"{problem}; restore it from a backup")
    for name, (lacking, others, required) in changes.items():
        if lacking or others or required:
            n_rows = _change(connection, name, lacking, others, required)
            columns = (*(each.name for each in lacking), *others, *required)
            yield Upgraded(table=name, done="columns changed", columns=columns, n_rows=n_rows)
    if written != FORMAT:
        yield from _take_up(connection)
        yield from _fill_ledger(connection)
        marked = connection.find(MARKED) or connection.create(MARKED, TABLES[MARKED].keyed_columns)
        marked.update_schema_metadata({FORMAT_KEY: str(FORMAT)})
        connection.committed(MARKED, 0)
    connection.drop("formats")  # only now: a store without a format cannot be upgraded


def _take_up(connection: Connection) -> Iterator[Upgraded]:
    """Move what tables of format 7 held elsewhere: keys of runs, seconds of slices, hashes; remove these tables."""
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
            runs = [(row, row.uses) for row in rows_in(Run, read_where(connection, "runs")) if row.uses]
            keys = [sorted({key for each in uses for key in lists.get(each, [each])}) for _, uses in runs]
            register(connection, [replace(row, uses=of_run) for (row, _), of_run in zip(runs, keys, strict=True)])
        connection.drop(name)
        yield Upgraded(table=name, done="is no table of its own any more", columns=("all",), n_rows=len(rows))


def _fill_ledger(connection: Connection) -> Iterator[Upgraded]:
    """Write the ledger again, with the digest of the rows of every entry, and an entry for every evaluation."""
    names = {field.name for field in fields(LedgerEntry)} - {"table_name", "digest"}
    known = {row["key"]: LedgerEntry(**{name: row[name] for name in names}) for row in _rows(connection, "derived")}
    empty = [entry for entry in known.values() if not entry.n_rows]
    entries = [entry_of(_TABLE_OF.get(entry.kind, "slices"), entry, Made(0, 0)) for entry in empty]
    created = now()
    for name in KEYED_BY:
        for rows in whole_evaluations(connection) if name == "outcomes" else [read_where(connection, name)]:
            for key, made in made_rows(name, rows).items():
                if name == "outcomes":
                    entries.append(entry_of(name, about_evaluation(key, created), made))
                elif key in known and (known[key].n_rows == made.n_rows or name == "rankings"):
                    entries.append(entry_of(name, known[key], made))
    gone = known.keys() - {entry.key for entry in entries}
    tables = {key: _TABLE_OF.get(known[key].kind, "slices") for key in sorted(gone)}
    removed = [replace(known[key], table_name=table, digest=REMOVED) for key, table in tables.items()]
    connection.drop("derived")
    register(connection, [*entries, *removed], update=False)
    connection.remove("digests")  # of all files, which the ledger takes the place of
    yield Upgraded(table="derived", done="columns changed", columns=("table_name", "digest"), n_rows=len(entries))


def _rows(connection: Connection, name: str) -> list[dict[str, Any]]:
    table = connection.find(name)
    return [] if table is None else [*table.to_table().to_pylist()]


def _differences(connection: Connection, name: str) -> tuple[list[pa.Field], list[str], list[str]]:
    """Return how a table differs: the fields that it lacks, and the names of two kinds of fields that it has.

    The first should not be there, or have another type; the others have no nulls, and may have them in this format.
    """
    wanted = TABLES[name].columns
    table = connection.find(name)
    stored = wanted if table is None else table.schema
    others = [each.name for each in stored if each.name not in wanted.names]
    others += [each.name for each in wanted if each.name in stored.names and stored.field(each.name).type != each.type]
    both = [each for each in wanted if each.name in stored.names]
    required = [each.name for each in both if each.nullable and not stored.field(each.name).nullable]
    return [each for each in wanted if each.name not in stored.names], others, required


def _change(connection: Connection, name: str, lacking: list[pa.Field], others: list[str], required: list[str]) -> int:
    """Add columns to a table, remove others, let the required ones be null; return its number of rows."""

    def commit() -> int:
        table = connection.find(name)
        if table is None:
            return 0
        if missing := [each for each in lacking if each.name not in table.schema.names]:
            table.add_columns(pa.schema(missing))
        if surplus := [each for each in others if each in table.schema.names]:
            if "statistic" in surplus:  # of two rankings the other is left
                table.delete("statistic = 'borda'")
            table.drop_columns(surplus)
        for column in required:
            table.alter_columns({"path": column, "nullable": True})
        return int(table.count_rows())

    n_rows = retrying(f"changing the columns of table {name!r}", commit)
    connection.committed(name, 0)
    return n_rows
