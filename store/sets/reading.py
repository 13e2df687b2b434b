"""Reading embedding sets back: one matrix, or ragged blocks in bounded memory, every row's checksum compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store.checksums import digest
from store.errors import RequestError, WorkError
from store.keys import table_of
from store.maintenance.compaction import row_bytes
from store.sets.decoding import StoredRows, columns_of, joined, refuse_damage, scan, unpack
from store.sets.seal import SealedSet
from store.tables.connection import Connection, storage_faults
from store.tables.corpora import ItemIndex
from store.types import SetKey

if TYPE_CHECKING:
    import lance

_TAKE_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class Vectors:
    """One vector per item.

    Attributes:
        ids: Item ids, length ``n``, in corpus order.
        ords: Positions in the corpus, int32, shape ``(n,)``, ascending.
        matrix: float32, C-contiguous, writable, shape ``(n, dim)``; row ``i`` belongs to ``ids[i]``. Unit norm up to
            the rounding of the stored type.
        norms: float32, shape ``(n,)``: the norm before normalisation.
        n_tokens: int32, shape ``(n,)``: tokens that the model saw.
        truncated: bool, shape ``(n,)``: whether the input was longer than the model takes.
        tag: The sealed state that was read; empty for a set that is not sealed.
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
                "ord": self.ords,
                "vector": vector,
                "norm": self.norms,
                "n_tokens": self.n_tokens,
                "truncated": self.truncated,
            }
        )


@dataclass(frozen=True, kw_only=True)
class MultiVectors:
    """Some items with many vectors each.

    Attributes:
        ids: Item ids, length ``n``, in corpus order.
        ords: Positions in the corpus, int32, shape ``(n,)``, ascending.
        values: As stored (float16 or float32), shape ``(sum of counts, dim)``, one item after the other.
        offsets: int64, shape ``(n + 1,)``: item ``i`` owns ``values[offsets[i]:offsets[i + 1]]``.
    """

    ids: list[str]
    ords: NDArray[np.int32]
    values: NDArray[np.floating]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    def items(self) -> Iterator[tuple[str, NDArray[np.floating]]]:
        """Each item's id and vectors, the latter of shape ``(count, dim)`` and not copied."""
        bounds = pairwise(self.offsets.tolist())
        return ((one, self.values[start:stop]) for one, (start, stop) in zip(self.ids, bounds, strict=True))


def open_set(connection: Connection, key: SetKey, sealed: SealedSet | None) -> lance.LanceDataset:
    """The table of a set at its sealed state, or its latest if it is not sealed."""
    name = table_of(key)
    table = connection.find(name, version=sealed.tag if sealed else None)
    if table is None:
        raise WorkError(
            f"set {name!r} was sealed but its table is gone from {connection.uri}: restore it from a backup, "
            "or drop the set and encode it again"
        )
    if sealed is not None:
        with storage_faults(f"reading set {name!r}"):
            found = table.count_rows()
        if found != sealed.n_rows or table.version != sealed.version:
            raise WorkError(
                f"set {name!r}: tag {sealed.tag} holds {found} rows at version {table.version}, it was sealed with "
                f"{sealed.n_rows} at version {sealed.version}. Run `capim store verify`"
            )
    return table


def read_matrix(
    table: lance.LanceDataset,
    key: SetKey,
    items: ItemIndex,
    wanted: NDArray[np.int32],
    *,
    sealed: SealedSet | None,
    condition: str | None,
) -> Vectors:
    """The wanted positions of a single-vector set as one matrix.

    Args:
        table: At the version to read.
        key: Whose vectors of what.
        items: All items of the corpus.
        wanted: Positions, ascending, shape ``(n,)``.
        sealed: The state that the table is at; without one, positions that have no row are left out.
        condition: SQL over the set's columns that holds for exactly the wanted positions; None for all.
    """
    name = table_of(key)
    n = len(wanted)
    row_of = np.full(len(items), -1, dtype=np.int64)
    row_of[wanted] = np.arange(n)
    dim = table.schema.field("vector").type.list_size
    matrix = np.empty((n, dim), dtype=np.float32)
    norms = np.empty(n, dtype=np.float32)
    n_tokens = np.empty(n, dtype=np.int32)
    truncated = np.empty(n, dtype=bool)
    crc = np.empty(n, dtype=np.uint32)
    seen = np.zeros(n, dtype=bool)
    with storage_faults(f"reading set {name!r}"):
        for rows in scan(table, key, condition):
            refuse_damage(rows, name, items.ids)
            into, take = _first_of_each(row_of[rows.ords], seen)
            matrix[into] = rows.values[take]
            norms[into], n_tokens[into], truncated[into] = rows.norms[take], rows.n_tokens[take], rows.truncated[take]
            crc[into] = rows.crc[take]
            seen[into] = True
    if sealed is not None:
        _refuse_gaps(name, items, wanted, seen)
        if n == len(items) and digest(crc) != sealed.digest:
            raise WorkError(f"set {name!r}: its digest is not the one it was sealed with. Run `capim store verify`")
    there = slice(None) if seen.all() else np.flatnonzero(seen)
    ords = wanted[there]
    return Vectors(
        ids=items.ids.take(ords).to_pylist(),
        ords=ords,
        matrix=matrix[there],
        norms=norms[there],
        n_tokens=n_tokens[there],
        truncated=truncated[there],
        tag=sealed.tag if sealed else "",
    )


def read_blocks(
    table: lance.LanceDataset,
    key: SetKey,
    items: ItemIndex,
    wanted: NDArray[np.int32],
    *,
    sealed: SealedSet | None,
    window: int,
) -> Iterator[StoredRows]:
    """The wanted positions in the order given, in blocks of at most ``window`` rows, every checksum compared.

    Holds one block, and four bytes for every row of the set. Without a sealed state, positions that have no row are
    left out.
    """
    if window < 1:
        raise RequestError(f"window must be at least 1 item, got {window}")
    name = table_of(key)
    with storage_faults(f"reading set {name!r}"):
        places = _places(table, len(items))
    here = places[wanted] >= 0
    if sealed is not None:
        _refuse_gaps(name, items, wanted, here)
    ords = wanted[here]
    # Lance holds several times of what it is asked for: it is asked in small steps.
    step = max(1, _TAKE_BYTES // max(1, row_bytes(table)))
    for start in range(0, len(ords), window):
        block = ords[start : start + window]
        with storage_faults(f"reading set {name!r}"):
            parts = [
                unpack(table.take(places[some].tolist(), columns=columns_of(key)))
                for some in np.array_split(block, range(step, len(block), step))
            ]
        rows = joined(parts)
        refuse_damage(rows, name, items.ids)
        if not np.array_equal(rows.ords, block):
            raise WorkError(
                f"set {name!r}: row {start} and on are not the positions asked for. Run `capim store verify`"
            )
        yield rows


def ragged(rows: StoredRows, items: ItemIndex) -> MultiVectors:
    """Rows of a multi-vector set with their ids."""
    return MultiVectors(
        ids=items.ids.take(pa.array(rows.ords)).to_pylist(), ords=rows.ords, values=rows.values, offsets=rows.offsets
    )


def dense(rows: StoredRows, items: ItemIndex, tag: str) -> Vectors:
    """Rows of a single-vector set with their ids, cast to float32."""
    return Vectors(
        ids=items.ids.take(pa.array(rows.ords)).to_pylist(),
        ords=rows.ords,
        matrix=rows.values.astype(np.float32),
        norms=rows.norms,
        n_tokens=rows.n_tokens,
        truncated=rows.truncated,
        tag=tag,
    )


def _places(table: lance.LanceDataset, n_items: int) -> NDArray[np.int32]:
    """Of every position the offset of its first row in the table, or -1."""
    ords = table.scanner(columns=["ord"], scan_in_order=True).to_table().column("ord").to_numpy()
    places = np.full(n_items, -1, dtype=np.int32)
    places[ords[::-1]] = np.arange(len(ords), dtype=np.int32)[::-1]  # of repeated positions the first row stays
    return places


def _first_of_each(targets: NDArray[np.int64], seen: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the rows of a batch go and which rows these are: unwanted, known and repeated ones are left out."""
    take = np.flatnonzero((targets >= 0) & ~seen[targets])
    into, first = np.unique(targets[take], return_index=True)
    return into, take[first]


def _refuse_gaps(name: str, items: ItemIndex, wanted: NDArray[np.int32], seen: NDArray[np.bool_]) -> None:
    gaps = wanted[~seen]
    if len(gaps):
        raise WorkError(
            f"set {name!r}: {len(gaps)} of {len(wanted)} items have no row though it was sealed, first "
            f"{items.ids[int(gaps[0])].as_py()!r}. Run `capim store verify`"
        )
