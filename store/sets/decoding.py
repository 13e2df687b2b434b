"""Rows of embedding sets as read from disk: Arrow batches to arrays, and the comparison of every checksum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store.errors import WorkError
from capim.store.tables.schemas import vector_column, vector_type
from capim.store.types import SetKey
from capim.store.values import Ragged, row_checksums, row_seeds

if TYPE_CHECKING:
    import lance

_BATCH = {"single": 4096, "multi": 32}  # rows: 8 MB of 1,024 float16, 8 MB of 1,030 × 128 float16
_IO_BUFFER = 64 << 20  # bytes that Lance may read ahead
_COLUMNS = ("norms", "n_tokens", "truncated", "crc")


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredRows:
    """Some rows of an embedding set as they are stored.

    Attributes:
        vectors: In the stored type, with the positions in the corpus; one vector per item in a single-vector set.
        norms: float32, shape ``(n,)``.
        n_tokens: int32, shape ``(n,)``.
        truncated: bool, shape ``(n,)``.
        crc: uint32, shape ``(n,)``: the stored checksums.
        layouts: Of multi-vectors: what the vectors of each item stand for (``store.layout``).
    """

    vectors: Ragged
    norms: NDArray[np.float32]
    n_tokens: NDArray[np.int32]
    truncated: NDArray[np.bool_]
    crc: NDArray[np.uint32]
    layouts: pa.Array | None = None

    @property
    def ords(self) -> NDArray[np.int32]:
        """Positions in the corpus, shape ``(n,)``."""
        return self.vectors.ords

    def damaged(self) -> NDArray[np.bool_]:
        """Which rows have bytes that do not match their checksum, shape ``(n,)``."""
        seeds = row_seeds(self.ords, self.norms, self.n_tokens, self.truncated, self.layouts)
        wrong: NDArray[np.bool_] = row_checksums(self.vectors.values, self.vectors.offsets, seeds) != self.crc
        return wrong


def columns_of(key: SetKey) -> list[str]:
    """The columns that :func:`unpack` needs."""
    layout = ["layout"] if key.vectors == "multi" else []
    return ["ord", vector_column(key.vectors), "norm", "n_tokens", "truncated", "crc", *layout]


def unpack(batch: pa.RecordBatch | pa.Table) -> StoredRows:
    """Arrow rows as arrays; the vectors are not copied where Arrow holds them in one piece."""
    if isinstance(batch, pa.Table):
        batch = batch.combine_chunks().to_batches()[0]
    ords = batch.column("ord").to_numpy()
    if "vector" in batch.schema.names:
        vectors = batch.column("vector")
        counts = np.ones(len(ords), dtype=np.int64)
    else:
        lists = cast(pa.ListArray, batch.column("vectors"))
        vectors, counts = lists.flatten(), lists.value_lengths().to_numpy(zero_copy_only=False)
    flat = cast(pa.FixedSizeListArray, vectors).flatten()
    values = flat.to_numpy(zero_copy_only=True).reshape(-1, vector_type(batch.schema).list_size)
    return StoredRows(
        vectors=Ragged.from_counts(values, counts, ords),
        norms=batch.column("norm").to_numpy(),
        n_tokens=batch.column("n_tokens").to_numpy(),
        truncated=batch.column("truncated").to_numpy(zero_copy_only=False),
        crc=batch.column("crc").to_numpy(),
        layouts=batch.column("layout") if "layout" in batch.schema.names else None,
    )


def joined(parts: Sequence[StoredRows]) -> StoredRows:
    """The rows of several parts, in order."""
    if len(parts) == 1:
        return parts[0]
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
    layouts = [part.layouts for part in parts if part.layouts is not None]
    return StoredRows(
        vectors=Ragged.concatenate(part.vectors for part in parts),
        layouts=pa.concat_arrays(layouts) if layouts else None,
        **columns,
    )


def scan(table: lance.LanceDataset, key: SetKey, condition: str | None = None) -> Iterator[StoredRows]:
    """All rows, or those that meet an SQL condition, in the order of their commits and in bounded memory."""
    scanner = table.scanner(
        columns=columns_of(key),
        filter=condition,
        batch_size=_BATCH[key.vectors],
        batch_readahead=2,
        io_buffer_size=_IO_BUFFER,
        scan_in_order=True,
    )
    return (unpack(batch) for batch in scanner.to_batches() if batch.num_rows)


def refuse_damage(rows: StoredRows, name: str, ids: pa.Array) -> None:
    """Raises :class:`WorkError` if a checksum is wrong, with the first items."""
    damaged = rows.ords[rows.damaged()]
    if len(damaged):
        first = ", ".join(repr(ids[int(position)].as_py()) for position in damaged[:5])
        raise WorkError(
            f"set {name!r}: checksum mismatch in {len(damaged)} rows (changed on disk), first items {first}; no row of "
            "the set is used",
            remedy=f"Run `capim store repair {name}`, then `capim embed`: only these rows are encoded again. Or "
            "restore the table from a backup",
        )
