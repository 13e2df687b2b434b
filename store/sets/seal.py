"""Sealing an embedding set: duplicates out, small files together, every row checked, then a tag and a row in ``sets``.

Only a sealed set is evaluated. The tag names the digest of the contents, so what a result was computed from can be
read again, bit for bit, for as long as the store exists.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from store.checksums import digest
from store.errors import RequestError, WorkError
from store.keys import table_of
from store.maintenance.compaction import compact, data_bytes, drop_old_versions, row_bytes
from store.sets.decoding import refuse_damage, scan
from store.tables.connection import Connection, retrying, storage_faults
from store.tables.corpora import ItemIndex
from store.tables.metadata import now, one_of, read, upsert
from store.tables.schemas import SETS
from store.types import SetKey

if TYPE_CHECKING:
    import lance

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SealedSet:
    """One embedding set whose contents are complete, checked and fixed.

    Attributes:
        key: Whose vectors of what.
        tag: Name of the version in the table; begins with ``sealed-`` and the digest's first 16 digits.
        version: The table's version that the tag stands for.
        n_rows: Items.
        n_vectors: Vectors; more than items for a multi-vector encoder.
        digest: SHA-256 of the rows' checksums in corpus order; equal digests mean equal sets.
        sealed_at: When, UTC.
        n_bytes: On disk, data files of this version only.
        dim: Components of one vector.
        storage: float16 or float32.
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
    """What a whole scan of a set found."""

    digest: str
    n_vectors: int
    dim: int
    storage: str


def seal(connection: Connection, key: SetKey, items: ItemIndex, n_items: int) -> SealedSet:
    """Checks a set, fixes its contents and registers it; a set that is sealed is returned as it is.

    A set whose tag was lost is checked again and gets it back.
    """
    name = table_of(key)
    if n_items != len(items):
        raise RequestError(f"set {name!r}: {n_items} items were named, corpus {key.corpus!r} has {len(items)}")
    existing = sealed(connection, key)
    table = connection.find(name)
    if table is None and existing is None:
        raise RequestError(f"set {name!r} is not in the store {connection.uri}. Run `capim embed` first")
    if existing is not None and _tags(_latest(connection, name)).get(existing.tag) == existing.version:
        return existing
    table, contents = _settle(connection, key, items)
    found = SealedSet(
        key=key,
        tag=tag_of(contents.digest),
        version=table.version,
        n_rows=len(items),
        n_vectors=contents.n_vectors,
        digest=contents.digest,
        sealed_at=now(),
        n_bytes=data_bytes(table),
        dim=contents.dim,
        storage=contents.storage,
    )
    if existing is not None and existing.digest != found.digest:
        log.warning(
            "set %r now holds other vectors than %s, whose tag was lost; results from that cannot be made again",
            name,
            existing.tag,
        )
    upsert(connection, "sets", SETS, pa.Table.from_pylist([_to_row(found)], schema=SETS))
    drop_old_versions(table, timedelta(0))
    return found


def is_intact(connection: Connection, key: SetKey) -> bool:
    """Whether a set is sealed and its tag still stands for the version that was sealed; reads no row."""
    state, table = sealed(connection, key), connection.find(table_of(key))
    return state is not None and table is not None and _tags(table).get(state.tag) == state.version


def tag_of(contents_digest: str) -> str:
    """The tag of a set with this digest."""
    return f"sealed-{contents_digest[:16]}"


def _settle(connection: Connection, key: SetKey, items: ItemIndex) -> tuple[lance.LanceDataset, Contents]:
    """A version of the set without repeats and small files that was found good, and is tagged.

    Other processes may write to the same set or seal it meanwhile; then everything is done again from their state.
    """
    name = table_of(key)
    while True:
        before = _latest(connection, name).version
        retrying(f"removing repeated rows of {name!r}", lambda: drop_repeats(_latest(connection, name)))
        size = retrying(f"measuring {name!r}", lambda: row_bytes(_latest(connection, name)))
        compact(connection, name, row_bytes=size, free=True)
        retrying(f"indexing {name!r}", lambda: _index_subsets(_latest(connection, name), items))
        table = _latest(connection, name)
        try:
            contents = examine(table, key, items)
            with storage_faults(f"tagging {name!r}"):
                return _tagged(connection, table, name, tag_of(contents.digest)), contents
        except WorkError:
            if _latest(connection, name).version == before:
                raise


def _tagged(connection: Connection, table: lance.LanceDataset, name: str, tag: str) -> lance.LanceDataset:
    """The version that carries the tag: this one, or the one of a process that sealed the same contents before."""
    try:
        table.tags.create(tag, table.version)
    except ValueError as fault:
        if "already exists" not in str(fault):
            raise
        return _at_tag(connection, name, tag)
    return table


def _tags(table: lance.LanceDataset) -> dict[str, int]:
    return {tag: entry["version"] for tag, entry in table.tags.list().items()}


def sealed(connection: Connection, key: SetKey) -> SealedSet | None:
    """The sealed state of a set, or None."""
    rows = read(connection, "sets", one_of("set_name", [table_of(key)])).to_pylist()
    return _from_row(rows[0]) if rows else None


def sealed_sets(connection: Connection) -> list[SealedSet]:
    """Every sealed set, oldest first."""
    rows = read(connection, "sets").sort_by("sealed_at").to_pylist()
    return [_from_row(row) for row in rows]


def examine(table: lance.LanceDataset, key: SetKey, items: ItemIndex) -> Contents:
    """Reads every row; raises :class:`WorkError` unless each item of the corpus is there once, unchanged."""
    name = table_of(key)
    rows_of = np.zeros(len(items), dtype=np.int32)
    crc = np.zeros(len(items), dtype=np.uint32)
    n_vectors = 0
    with storage_faults(f"reading set {name!r}"):
        for rows in scan(table, key):
            outside = rows.ords[(rows.ords < 0) | (rows.ords >= len(items))]
            if len(outside):
                raise WorkError(
                    f"set {name!r}: position {outside[0]} is not one of the corpus' {len(items)} items: it was changed "
                    "on disk. Restore the table from a backup, or drop the set and encode it again"
                )
            refuse_damage(rows, name, items.ids)
            np.add.at(rows_of, rows.ords, 1)
            crc[rows.ords] = rows.crc
            n_vectors += int(rows.offsets[-1])
        _refuse_wrong_counts(name, items, rows_of)
        ids = table.to_table(columns=["ord", "item_id"])
        expected = items.ids.take(ids.column("ord").combine_chunks())
        wrong = pc.not_equal(expected, ids.column("item_id").combine_chunks())
        if pc.any(wrong).as_py():
            raise WorkError(
                f"set {name!r}: item ids were changed on disk. Restore the table from a backup, or drop the set and "
                "encode it again"
            )
    one = table.schema.field("vector" if key.vectors == "single" else "vectors").type
    one = one if key.vectors == "single" else one.value_type
    storage = "float16" if one.value_type == pa.float16() else "float32"
    return Contents(digest(crc), n_vectors, one.list_size, storage)


def _latest(connection: Connection, name: str) -> lance.LanceDataset:
    return _at_tag(connection, name, None)


def _at_tag(connection: Connection, name: str, tag: str | None) -> lance.LanceDataset:
    table = connection.find(name, version=tag)
    if table is None:
        raise WorkError(
            f"the table of set {name!r} is gone from {connection.uri}: restore it from a backup, or drop the set and "
            "encode it again"
        )
    return table


def drop_repeats(table: lance.LanceDataset) -> None:
    """Deletes every row of a position but that of the lowest write number, in older sets without one the first."""
    numbered = "put" in table.schema.names
    rows = table.scanner(columns=["ord", "put"] if numbered else ["ord"], with_row_id=True).to_table()
    ords = rows.column("ord").to_numpy()
    order = np.lexsort((rows.column("put").to_numpy(), ords)) if numbered else np.argsort(ords, kind="stable")
    repeats = np.zeros(len(ords), dtype=bool)
    repeats[order[1:]] = ords[order[1:]] == ords[order[:-1]]
    if repeats.any():
        row_ids = rows.column("_rowid").to_numpy()[repeats].tolist()
        # Row ids change when another writer compacts, so a conflict must come back here, not be repeated by Lance.
        table.delete(f"_rowid IN ({', '.join(map(str, row_ids))})", conflict_retries=0)


def _index_subsets(table: lance.LanceDataset, items: ItemIndex) -> None:
    """An index by language and translator where captions have several: a subset of millions is then found at once."""
    indexed = {field for index in table.list_indices() for field in index["fields"]}
    for column, values in (("language", items.languages), ("translator", items.translators)):
        if values is not None and len(pc.unique(values)) > 1 and column not in indexed:
            table.create_scalar_index(column, "BITMAP")


def _refuse_wrong_counts(name: str, items: ItemIndex, rows_of: NDArray[np.int32]) -> None:
    missing, repeated = np.flatnonzero(rows_of == 0), np.flatnonzero(rows_of > 1)
    if len(missing):
        raise WorkError(
            f"set {name!r} is not complete: {len(missing)} of {len(items)} items have no row, first "
            f"{items.ids[int(missing[0])].as_py()!r}. Run the same `capim embed` again, it encodes only these"
        )
    if len(repeated):
        raise WorkError(
            f"set {name!r}: {len(repeated)} items have more than one row, first "
            f"{items.ids[int(repeated[0])].as_py()!r}: another writer is at work. Seal it when that one has ended"
        )


def _to_row(found: SealedSet) -> dict[str, object]:
    key = found.key
    return {
        "set_name": table_of(key),
        "encoder": key.encoder,
        "encoder_fingerprint": key.encoder_fingerprint,
        "corpus": key.corpus,
        "corpus_fingerprint": key.corpus_fingerprint,
        "modality": key.modality,
        "vectors": key.vectors,
        **{
            name: getattr(found, name)
            for name in ("dim", "storage", "tag", "version", "n_rows", "n_vectors", "n_bytes")
        },
        "digest": found.digest,
        "sealed_at": found.sealed_at,
    }


def _from_row(row: dict[str, object]) -> SealedSet:
    fields = dict(row)
    del fields["set_name"]
    names = ("encoder", "encoder_fingerprint", "corpus", "corpus_fingerprint", "modality", "vectors")
    key = SetKey(**{name: fields.pop(name) for name in names})  # type: ignore[arg-type]
    return SealedSet(key=key, **fields)  # type: ignore[arg-type]
