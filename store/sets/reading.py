"""Reading embedding sets: as one matrix, or in blocks of bounded memory; every checksum is compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store.connection import Connection, row_bytes, storage_faults
from capim.store.errors import RequestError, WorkError
from capim.store.rows import quoted
from capim.store.schema import texts
from capim.store.sets.rows import (
    ItemIndex,
    StoredRows,
    columns_of,
    digest,
    joined,
    refuse_damage,
    scan,
    unpack,
    vector_type,
)
from capim.store.sets.seal import SealedSet, missing_table
from capim.store.types import Modality, SetKey
from capim.store.vectors import unit_vectors

if TYPE_CHECKING:
    import lance

    from capim.store.embedding_store import EmbeddingStore


_TAKE_BYTES = 4 << 20
_VERIFY = "Run `capim store verify`"


@dataclass(frozen=True, kw_only=True)
class Vectors:
    """The embeddings of items with one vector each.

    Attributes:
        ids: Item ids, length ``n``, in corpus order.
        ords: Positions in the corpus, int32, shape ``(n,)``, ascending.
        matrix: float32, C-contiguous, writable, shape ``(n, dim)``; row ``i`` belongs to ``ids[i]``. Unit norm:
            a row that has another norm as stored, because float16 rounds, is divided by it; others are as stored.
        norms: float32, shape ``(n,)``: the norm before normalisation.
        n_tokens: int32, shape ``(n,)``: tokens of the input.
        truncated: bool, shape ``(n,)``: whether the input was longer than the model accepts.
        tag: Tag of the sealed version that was read; empty for a set that is not sealed.
    """

    ids: list[str]
    ords: NDArray[np.int32]
    matrix: NDArray[np.float32]
    norms: NDArray[np.float32]
    n_tokens: NDArray[np.int32]
    truncated: NDArray[np.bool_]
    tag: str

    def __len__(self) -> int:
        return len(self.ids)

    def to_arrow(self) -> pa.Table:
        """Columns ``id``, ``ord``, ``vector``, ``norm``, ``n_tokens``, ``truncated``; the vectors are not copied.

        ``.to_arrow().to_pandas()`` gives a frame, ``torch.from_numpy(vectors.matrix)`` a tensor on the same memory.
        """
        vector = pa.FixedSizeListArray.from_arrays(pa.array(self.matrix.reshape(-1)), self.matrix.shape[1])
        return pa.table(
            {
                "id": self.ids,
                "ord": pa.array(self.ords),
                "vector": vector,
                "norm": pa.array(self.norms),
                "n_tokens": pa.array(self.n_tokens),
                "truncated": pa.array(self.truncated),
            }
        )


def open_set(connection: Connection, key: SetKey, sealed: SealedSet | None) -> lance.LanceDataset:
    """The table of a set at its sealed version, or at its latest if it is not sealed."""
    name = key.table
    table = connection.find(name, version=sealed.tag if sealed else None)
    if table is None:
        raise missing_table(connection, key)
    if sealed is not None:
        with storage_faults(f"reading set {name!r}"):
            n_rows = table.count_rows()
        if n_rows != sealed.n_rows or table.version != sealed.version:
            raise WorkError(
                f"set {name!r}: tag {sealed.tag} has {n_rows} rows at version {table.version}, it was sealed with "
                f"{sealed.n_rows} rows at version {sealed.version}",
                remedy=_VERIFY,
            )
    return table


def read_matrix(
    connection: Connection,
    key: SetKey,
    items: ItemIndex,
    *,
    sealed: SealedSet | None,
    language: str | None = None,
    translator: str | None = None,
) -> Vectors:
    """The items of a single-vector set as one matrix, of one language and translator where these are given.

    Without ``sealed``, the version to read, items that have no row are left out.
    """
    name = key.table
    wanted = items.subset(language, translator)
    table = open_set(connection, key, sealed)
    n = len(wanted)
    row_of = np.full(len(items), -1, dtype=np.int64)
    row_of[wanted] = np.arange(n)
    matrix = np.empty((n, vector_type(table.schema).list_size), dtype=np.float32)
    norms = np.empty(n, dtype=np.float32)
    n_tokens = np.empty(n, dtype=np.int32)
    truncated = np.empty(n, dtype=bool)
    crc = np.empty(n, dtype=np.uint32)
    present = np.zeros(n, dtype=bool)
    with storage_faults(f"reading set {name!r}"):
        for rows in scan(table, key, subset_condition(language, translator)):
            refuse_damage(rows, name, items.ids)
            into, take = _first_of_each(row_of[rows.ords], present)
            matrix[into] = unit_vectors(rows.vectors.values)[take]
            norms[into], n_tokens[into], truncated[into] = rows.norms[take], rows.n_tokens[take], rows.truncated[take]
            crc[into] = rows.crc[take]
            present[into] = True
    if sealed is not None:
        _refuse_gaps(name, items, wanted, present)
        if n == len(items) and digest(crc) != sealed.digest:
            raise WorkError(f"set {name!r}: its digest differs from the one it was sealed with", remedy=_VERIFY)
    kept = slice(None) if present.all() else np.flatnonzero(present)
    ords = wanted[kept]
    return Vectors(
        ids=texts(items.ids.take(ords)),
        ords=ords,
        matrix=matrix[kept],
        norms=norms[kept],
        n_tokens=n_tokens[kept],
        truncated=truncated[kept],
        tag=sealed.tag if sealed else "",
    )


def read_blocks(
    connection: Connection,
    key: SetKey,
    items: ItemIndex,
    wanted: NDArray[np.int32],
    *,
    sealed: SealedSet | None,
    window: int,
) -> Iterator[StoredRows]:
    """The wanted positions in the order given, in blocks of at most ``window`` rows.

    Holds one block, and four bytes for every row of the set. Without a sealed version, positions that have no row are
    left out.
    """
    if window < 1:
        raise RequestError(f"window must be at least 1 item, got {window}")
    name = key.table
    table = open_set(connection, key, sealed)
    with storage_faults(f"reading set {name!r}"):
        offsets, _ = row_offsets(table, len(items))
    present = offsets[wanted] >= 0
    if sealed is not None:
        _refuse_gaps(name, items, wanted, present)
    ords = wanted[present]
    step = rows_at_once(table)
    for start in range(0, len(ords), window):
        block = ords[start : start + window]
        rows = joined(list(taken(table, key, items, offsets[block], step)))
        if not np.array_equal(rows.ords, block):
            raise WorkError(f"set {name!r}: rows from {start} on have unexpected positions", remedy=_VERIFY)
        yield rows


def rows_at_once(table: lance.LanceDataset) -> int:
    """The rows that are taken in one step: Lance needs several times their memory."""
    return max(1, _TAKE_BYTES // row_bytes(table))


def taken(
    table: lance.LanceDataset, key: SetKey, items: ItemIndex, offsets: NDArray[np.int32], step: int
) -> Iterator[StoredRows]:
    """The rows at these offsets of a set, ``step`` at a time, their checksums compared."""
    for start in range(0, len(offsets), step):
        with storage_faults(f"reading set {key.table!r}"):
            rows = unpack(table.take(offsets[start : start + step].tolist(), columns=columns_of(key)))
        refuse_damage(rows, key.table, items.ids)
        yield rows


def subset_condition(language: str | None, translator: str | None) -> str | None:
    """The SQL condition for the rows in one language and by one translator; None if neither is given."""
    chosen = {"language": language, "translator": translator}
    return " AND ".join(f"{name} = {quoted(text)}" for name, text in chosen.items() if text is not None) or None


def row_offsets(table: lance.LanceDataset, n_items: int) -> tuple[NDArray[np.int32], NDArray[np.uint32]]:
    """For every position of the corpus the offset of its first row in the table, or -1; and the stored checksum."""
    rows = table.scanner(columns=["ord", "crc"], scan_in_order=True).to_table()
    ords = rows.column("ord").to_numpy()
    offsets, crc = np.full(n_items, -1, dtype=np.int32), np.zeros(n_items, dtype=np.uint32)
    offsets[ords[::-1]] = np.arange(len(ords), dtype=np.int32)[::-1]  # of repeated positions the first row stays
    crc[ords[::-1]] = rows.column("crc").to_numpy()[::-1]
    return offsets, crc


def _first_of_each(
    targets: NDArray[np.int64], present: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Target rows and the rows of the batch for them, without rows that are unwanted, present or repeated."""
    take = np.flatnonzero((targets >= 0) & ~present[targets])
    into, first = np.unique(targets[take], return_index=True)
    return into, take[first]


def _refuse_gaps(name: str, items: ItemIndex, wanted: NDArray[np.int32], present: NDArray[np.bool_]) -> None:
    missing = wanted[~present]
    if len(missing):
        raise WorkError(
            f"sealed set {name!r}: {len(missing)} of {len(wanted)} items have no row, first "
            f"{items.ids[int(missing[0])].as_py()!r}",
            remedy=_VERIFY,
        )


# --- Single-vector sets as rows that are read when they are indexed, so that a set need not fit into memory.


class VectorWindows:
    """The float32 unit vectors of a sealed set in corpus order; memory is that of the rows that are asked for.

    Indexed like a matrix of shape ``(n, dim)``, by a slice or by an array of positions. The checksum of every row is
    compared when it is read, and those of all rows with the digest of the set when it is opened.

    Raises:
        RequestError: There is no such set, it is not sealed, or it has several vectors per item.
        WorkError: A row was changed on disk.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, store: EmbeddingStore, *, encoder: str, corpus: str, modality: Modality) -> None:
        self._store, self._subject = store, (encoder, corpus, modality)
        self._key = store.key(encoder=encoder, corpus=corpus, modality=modality)
        self._items, sealed = store.item_index(self._key), store.sealed(self._key)
        name = self._key.table
        if sealed is None or self._key.vectors == "multi":
            raise RequestError(f"set {name!r} is not a sealed set of one vector per item")
        self._table = open_set(store.connection, self._key, sealed)
        with storage_faults(f"reading set {name!r}"):
            self._offsets, crc = row_offsets(self._table, len(self._items))
        if (self._offsets < 0).any() or digest(crc) != sealed.digest:
            raise WorkError(f"set {name!r}: its digest differs from its seal", remedy="Run `capim store verify`")
        self.shape = (len(self._items), int(vector_type(self._table.schema).list_size))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any, /) -> NDArray[np.float32]:
        wanted = np.arange(len(self))[rows]
        if isinstance(rows, slice) and len(wanted) == len(self):
            encoder, corpus, modality = self._subject  # one scan, which is faster
            return self._store.vectors(encoder=encoder, corpus=corpus, modality=modality).matrix
        ords, back = np.unique(wanted, return_inverse=True)
        found = np.empty((len(ords), self.shape[1]), np.float32)
        for part in taken(self._table, self._key, self._items, self._offsets[ords], rows_at_once(self._table)):
            found[np.searchsorted(ords, part.ords)] = unit_vectors(part.vectors.values)
        return found if isinstance(rows, slice) else found[back]
