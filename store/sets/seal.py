"""Sealing an embedding set: repeated rows removed, files compacted, rows checked, then a tag and a row in ``sets``.

Only a sealed set is evaluated. Its tag contains the digest of its contents, so the embeddings that a result was
computed from can be read again, bit for bit, as long as the store exists.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.connection import Connection, compact, data_bytes, drop_old_versions, retrying, storage_faults
from capim.store.errors import RequestError, WorkError
from capim.store.files import sync
from capim.store.rows import now, one_of, read, register
from capim.store.sets.rows import ItemIndex, digest, refuse_damage, scan, vector_type
from capim.store.types import SetKey

if TYPE_CHECKING:
    import lance

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SealedSet:
    """An embedding set that is complete, checked and fixed.

    Attributes:
        key: Identity of the set.
        tag: Name of the version of the table: ``sealed-`` and the first 16 digits of the digest.
        version: The version that the tag refers to.
        n_rows: Items.
        n_vectors: Vectors; more than items for a multi-vector encoder.
        digest: SHA-256 of the checksums in corpus order; equal digests mean equal sets.
        sealed_at: UTC.
        n_bytes: Size of the data files of this version.
        dim: Components of one vector.
        storage: ``float16`` or ``float32``.
    """

    key: SetKey
    tag: str
    version: int
    n_rows: int
    n_vectors: int
    digest: str
    sealed_at: datetime
    n_bytes: int
    dim: int
    storage: str


class Contents(NamedTuple):
    """The contents of a set, from reading every row."""

    digest: str
    n_vectors: int


def seal(connection: Connection, key: SetKey, items: ItemIndex, n_items: int) -> SealedSet:
    """Checks a set, fixes its contents and registers it; a sealed set is returned as it is.

    A sealed set whose tag was lost is checked and tagged again.
    """
    name = key.table
    if n_items != len(items):
        raise RequestError(f"set {name!r}: expected the {len(items)} {key.modality}s of {key.corpus!r}, got {n_items}")
    existing = sealed(connection, key)
    table = connection.find(name)
    if table is None and existing is None:
        raise RequestError(f"set {name!r} is not in the store {connection.uri}. Run `capim embed` first")
    if existing is not None and _is_tagged(_latest(connection, key), existing):
        return existing
    table, contents = _settle(connection, key, items)
    vector = vector_type(table.schema)
    result = SealedSet(
        key=key,
        tag=tag_of(contents.digest),
        version=table.version,
        n_rows=len(items),
        n_vectors=contents.n_vectors,
        digest=contents.digest,
        sealed_at=now(),
        n_bytes=data_bytes(table),
        dim=vector.list_size,
        storage=storage_of(vector),
    )
    if existing is not None and existing.digest != result.digest:
        log.warning(
            "set %r now holds other vectors than %s, whose tag was lost; results computed from %s cannot be reproduced",
            name,
            existing.tag,
            existing.tag,
        )
    sync(connection.folder(name))
    columns = {field.name: getattr(result, field.name) for field in fields(SealedSet) if field.name != "key"}
    connection.digests.record(name, table)  # with its tag
    register(connection, "sets", [key.columns | columns])
    sync(connection.folder("sets"))
    for each in (name, "sets"):
        connection.digests.sync(each)
    drop_old_versions(table, timedelta(0))
    return result


def storage_of(vector: pa.FixedSizeListType) -> str:
    """The name of the type of a stored component."""
    return "float16" if vector.value_type == pa.float16() else "float32"


def is_intact(connection: Connection, key: SetKey) -> bool:
    """Whether a set is sealed and its tag still refers to the version that was sealed; reads no row."""
    state, table = sealed(connection, key), connection.find(key.table)
    return state is not None and table is not None and _is_tagged(table, state)


def tag_of(contents_digest: str) -> str:
    """The tag of a set with this digest."""
    return f"sealed-{contents_digest[:16]}"


def missing_table(connection: Connection, key: SetKey) -> WorkError:
    """The error for a set that should have a table and has none."""
    return WorkError(f"the table of set {key.table!r} is missing from {connection.uri}", remedy=drop_remedy(key))


def drop_remedy(key: SetKey) -> str:
    """What to do about a set that cannot be repaired."""
    chosen = f"--encoder {key.encoder_fingerprint} --corpus {key.corpus_fingerprint} --modality {key.modality}"
    return f"Restore its table from a backup, or run `capim store drop {chosen} --yes`, then the same `capim embed`"


def _settle(connection: Connection, key: SetKey, items: ItemIndex) -> tuple[lance.LanceDataset, Contents]:
    """A tagged version of the set, without repeated rows and small files, whose rows were all checked.

    Other processes may write to the set or seal it meanwhile; then everything is repeated from the latest version.
    """
    name = key.table
    while True:
        before = _latest(connection, key).version
        retrying(f"removing repeated rows of {name!r}", lambda: drop_repeats(_latest(connection, key)))
        compact(connection, name, free=True)
        retrying(f"indexing {name!r}", lambda: _index_subsets(_latest(connection, key), items))
        table = _latest(connection, key)
        try:
            contents = examine(table, key, items)
            with storage_faults(f"tagging {name!r}"):
                return _tagged(connection, table, key, tag_of(contents.digest)), contents
        except WorkError:
            if _latest(connection, key).version == before:
                raise


def _tagged(connection: Connection, table: lance.LanceDataset, key: SetKey, tag: str) -> lance.LanceDataset:
    """The version that has the tag: this one, or that of a process that sealed the same contents before."""
    try:
        table.tags.create(tag, table.version)
    except ValueError as fault:
        if "already exists" not in str(fault):
            raise
        return _latest(connection, key, tag)
    return table


def _is_tagged(table: lance.LanceDataset, state: SealedSet) -> bool:
    entry = table.tags.list().get(state.tag)
    return entry is not None and entry["version"] == state.version


def sealed(connection: Connection, key: SetKey) -> SealedSet | None:
    """The sealed state of a set, or None."""
    rows = read(connection, "sets", one_of("set_name", [key.table])).to_pylist()
    return _of_row(rows[0]) if rows else None


def sealed_sets(connection: Connection) -> list[SealedSet]:
    """Every sealed set, oldest first."""
    return [_of_row(row) for row in read(connection, "sets").sort_by("sealed_at").to_pylist()]


def _of_row(row: Mapping[str, Any]) -> SealedSet:
    columns = {field.name: row[field.name] for field in fields(SealedSet) if field.name != "key"}
    return SealedSet(key=SetKey.of_row(row), **columns)


def examine(table: lance.LanceDataset, key: SetKey, items: ItemIndex) -> Contents:
    """Reads every row; raises :class:`WorkError` unless each item of the corpus has one row, unchanged."""
    name = key.table
    rows_of = np.zeros(len(items), dtype=np.int32)
    crc = np.zeros(len(items), dtype=np.uint32)
    n_vectors = 0
    remedy = f"Run `capim store repair {name}`, then `capim embed`, or restore the table from a backup"
    with storage_faults(f"reading set {name!r}"):
        for rows in scan(table, key):
            outside = rows.ords[(rows.ords < 0) | (rows.ords >= len(items))]
            if len(outside):
                raise WorkError(
                    f"set {name!r}: position {outside[0]} is outside the {len(items)} items of the corpus (changed on "
                    "disk)",
                    remedy=remedy,
                )
            refuse_damage(rows, name, items.ids)
            np.add.at(rows_of, rows.ords, 1)
            crc[rows.ords] = rows.crc
            n_vectors += len(rows.vectors.values)
        _refuse_wrong_counts(name, items, rows_of)
        ids = table.to_table(columns=["ord", "item_id"])
        if pc.any(pc.not_equal(items.ids.take(ids.column("ord").combine_chunks()), ids.column("item_id"))).as_py():
            raise WorkError(f"set {name!r}: item ids were changed on disk", remedy=remedy)
    return Contents(digest(crc), n_vectors)


def _latest(connection: Connection, key: SetKey, tag: str | None = None) -> lance.LanceDataset:
    table = connection.find(key.table, version=tag)
    if table is None:
        raise missing_table(connection, key)
    return table


def drop_repeats(table: lance.LanceDataset) -> None:
    """Deletes all rows of a position except the one with the lowest write number, of the latest version."""
    table.checkout_latest()
    rows = table.scanner(columns=["ord", "write_number"], with_row_id=True).to_table()
    ords = rows.column("ord").to_numpy()
    order = np.lexsort((rows.column("write_number").to_numpy(), ords))
    repeats = np.zeros(len(ords), dtype=bool)
    repeats[order[1:]] = ords[order[1:]] == ords[order[:-1]]
    delete_rows(table, rows.column("_rowid").to_numpy()[repeats].tolist())


def delete_rows(table: lance.LanceDataset, row_ids: list[int]) -> None:
    """Deletes rows by their row ids."""
    if row_ids:
        # Row ids change when another process compacts the table: on a conflict the caller must look them up again.
        table.delete(f"_rowid IN ({', '.join(map(str, row_ids))})", conflict_retries=0)


def _index_subsets(table: lance.LanceDataset, items: ItemIndex) -> None:
    """Indexes language and translator where captions have several, for fast reading of a subset."""
    indexed = {field for index in table.list_indices() for field in index["fields"]}
    for column, values in (("language", items.languages), ("translator", items.translators)):
        if values is not None and len(pc.unique(values)) > 1 and column not in indexed:
            table.create_scalar_index(column, "BITMAP")


def _refuse_wrong_counts(name: str, items: ItemIndex, rows_of: NDArray[np.int32]) -> None:
    missing, repeated = np.flatnonzero(rows_of == 0), np.flatnonzero(rows_of > 1)
    if len(missing):
        raise WorkError(
            f"set {name!r} is incomplete: {len(missing)} of {len(items)} items have no row, first "
            f"{items.ids[int(missing[0])].as_py()!r}",
            remedy="Run the same `capim embed` again: only these items are encoded",
        )
    if len(repeated):
        raise WorkError(
            f"set {name!r}: {len(repeated)} items have more than one row, first "
            f"{items.ids[int(repeated[0])].as_py()!r}: another process is writing to it",
            remedy="Wait until that process has ended, then run `capim embed` again",
        )
