"""Reading embedding sets: as one matrix, or in blocks of bounded memory; every checksum is compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from capim.store.connection import Connection, row_bytes, storage_faults
from capim.store.errors import RequestError, WorkError
from capim.store.schema import texts
from capim.store.sets.rows import ItemIndex, StoredRows, checked, columns_of, digest, joined, scan, vector_type
from capim.store.sets.seal import SealedSet, table_of
from capim.store.types import SetKey
from capim.store.vectors import unit_vectors

if TYPE_CHECKING:
    import lance

    from capim.store.embedding_store import EmbeddingStore


_TAKE_BYTES = 4 << 20  # of rows that are taken in one step: Lance needs several times their memory
_VERIFY = "Run `capim store verify`"


@dataclass(frozen=True, kw_only=True)
class Vectors:
    """The embeddings of items with one vector each.

    Attributes:
        ids: Item ids, length ``n``, in corpus order.
        ords: Positions in the corpus, int32, shape ``(n,)``, ascending.
        matrix: float32, C-contiguous, writable, shape ``(n, dim)``; row ``i`` is the vector of ``ids[i]``. Unit norm:
            a row that has another norm as stored, because float16 rounds, is divided by it; others are as stored.
        norms: float32, shape ``(n,)``: the norm before normalisation.
        n_tokens: int32, shape ``(n,)``: tokens of the input.
        truncated: bool, shape ``(n,)``: whether the input was longer than the model accepts.
        tag: Tag of the sealed version that was read.
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

    def __repr__(self) -> str:
        n, dim = self.matrix.shape
        ends = ", ".join(map(repr, self.ids[:2])) + (f" … {self.ids[-1]!r}" if n > 2 else "")
        return f"Vectors(matrix: {n} × {dim} float32, ids: {ends}, tag: {self.tag!r})"


def open_set(connection: Connection, key: SetKey, sealed: SealedSet | None) -> lance.LanceDataset:
    """The table of a set at its sealed version, or at its latest if it is not sealed."""
    name = key.table
    table = table_of(connection, key, sealed.tag if sealed else None)
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
    sealed: SealedSet,
    items: ItemIndex,
    *,
    language: str | None = None,
    translator: str | None = None,
) -> Vectors:
    """The items of a single-vector set as one matrix, of one language and translator where these are given."""
    wanted = items.subset(language, translator)
    if len(wanted) < len(items):  # only their rows
        reader = SetReader(connection, items, sealed)
        found, dim = reader.blocks(wanted, reader.n_at_once), reader.dim
    else:  # one scan, which is faster
        table = open_set(connection, sealed.key, sealed)
        found, dim = scan(table, sealed.key, items), int(vector_type(table.schema).list_size)
    n = len(wanted)
    row_of = np.empty(len(items), dtype=np.int64)
    row_of[wanted] = np.arange(n)
    matrix = np.empty((n, dim), dtype=np.float32)
    kinds = {"norms": np.float32, "n_tokens": np.int32, "truncated": np.bool_, "crc": np.uint32}
    columns: dict[str, NDArray[Any]] = {column: np.empty(n, dtype=kind) for column, kind in kinds.items()}
    present = np.zeros(n, dtype=bool)
    with storage_faults(f"reading set {sealed.key.table!r}"):
        for rows in found:
            into = row_of[rows.ords]
            matrix[into] = unit_vectors(rows.vectors.values)
            for column, values in columns.items():
                values[into] = getattr(rows, column)
            present[into] = True
    _refuse_other(sealed, items, wanted, present, columns.pop("crc"))
    return Vectors(ids=texts(items.ids.take(wanted)), ords=wanted, matrix=matrix, tag=sealed.tag, **columns)


class SetReader:
    """The rows of a sealed set by their positions in the corpus; holds eight bytes for every item.

    All are compared with the digest of the seal here, and the checksum of a row when it is read.

    Attributes:
        dim: Components of one vector.
        n_at_once: Rows that are taken in one step.
    """

    def __init__(self, connection: Connection, items: ItemIndex, sealed: SealedSet) -> None:
        self._table = open_set(connection, sealed.key, sealed)
        self._key, self._items = sealed.key, items
        with storage_faults(f"reading set {self._key.table!r}"):
            rows = self._table.scanner(columns=["ord", "crc"], scan_in_order=True).to_table()
            self.n_at_once = max(1, _TAKE_BYTES // row_bytes(self._table))
        ords = rows.column("ord").to_numpy()
        self._offsets, crc = np.full(len(items), -1, dtype=np.int32), np.zeros(len(items), dtype=np.uint32)
        self._offsets[ords] = np.arange(len(ords), dtype=np.int32)
        crc[ords] = rows.column("crc").to_numpy()
        self.dim = int(vector_type(self._table.schema).list_size)
        _refuse_other(sealed, items, np.arange(len(items), dtype=np.int32), self._offsets >= 0, crc)

    def blocks(self, ords: NDArray[np.int32], window: int) -> Iterator[StoredRows]:
        """The rows of these items in the order given, in blocks of at most ``window`` rows."""
        for start in range(0, len(ords), window):
            block = ords[start : start + window]
            rows = joined([self._taken(block[at : at + self.n_at_once]) for at in range(0, len(block), self.n_at_once)])
            if not np.array_equal(rows.ords, block):
                raise WorkError(
                    f"set {self._key.table!r}: rows from {start} on have unexpected positions", remedy=_VERIFY
                )
            yield rows

    def _taken(self, ords: NDArray[np.int32]) -> StoredRows:
        with storage_faults(f"reading set {self._key.table!r}"):
            rows = self._table.take(self._offsets[ords].tolist(), columns=columns_of(self._key))
        return checked(rows, self._key, self._items)


def _refuse_other(
    sealed: SealedSet, items: ItemIndex, wanted: NDArray[np.int32], present: NDArray[np.bool_], crc: NDArray[np.uint32]
) -> None:
    """Raises :class:`WorkError` unless all wanted items have a row, and all items the digest of the seal."""
    name, missing = sealed.key.table, wanted[~present]
    if len(missing):
        raise WorkError(
            f"sealed set {name!r}: {len(missing)} of {len(wanted)} items have no row, first "
            f"{items.ids[int(missing[0])].as_py()!r}",
            remedy=_VERIFY,
        )
    if len(wanted) == len(items) and digest(crc) != sealed.digest:
        raise WorkError(f"set {name!r}: its digest differs from the one it was sealed with", remedy=_VERIFY)


class VectorWindows:
    """The float32 unit vectors of a sealed set in corpus order; memory is that of the rows that are requested.

    Indexed like a matrix of shape ``(n, dim)``, by a slice or by an array of positions.

    Raises:
        RequestError: There is no such set, it is not sealed, or it has several vectors per item.
        WorkError: A row was changed on disk.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, store: EmbeddingStore, key: SetKey) -> None:
        items, sealed = store.item_index(key), store.sealed(key)
        if sealed is None or key.vectors == "multi":
            raise RequestError(f"set {key.table!r} is not a sealed set of one vector per item")
        self._reader = SetReader(store.connection, items, sealed)
        self._whole = partial(read_matrix, store.connection, sealed, items)
        self.shape = (len(items), self._reader.dim)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any, /) -> NDArray[np.float32]:
        wanted = np.arange(len(self), dtype=np.int32)[rows]
        if isinstance(rows, slice) and len(wanted) == len(self):
            return self._whole().matrix
        ords, back = np.unique(wanted, return_inverse=True)
        found = np.empty((len(ords), self.shape[1]), np.float32)
        for part in self._reader.blocks(ords, self._reader.n_at_once):
            found[np.searchsorted(ords, part.ords)] = unit_vectors(part.vectors.values)
        return found if isinstance(rows, slice) else found[back]
