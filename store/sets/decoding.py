"""Rows of embedding sets as they come back from disk: Arrow batches to arrays, every checksum compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store.checksums import row_checksums, row_seeds
from store.errors import WorkError
from store.types import SetKey

if TYPE_CHECKING:
    import lance

_BATCH = {"single": 4096, "multi": 32}  # rows: 8 MB of 1,024 float16, 8 MB of 1,030 × 128 float16
_IO_BUFFER = 64 << 20  # bytes that Lance may read ahead


class StoredRows(NamedTuple):
    """Some rows of a set: vectors one after the other, row ``i`` owning ``offsets[i]:offsets[i + 1]``."""

    ords: NDArray[np.int32]
    values: NDArray[np.floating]
    offsets: NDArray[np.int64]
    norms: NDArray[np.float32]
    n_tokens: NDArray[np.int32]
    truncated: NDArray[np.bool_]
    crc: NDArray[np.uint32]

    def damaged(self) -> NDArray[np.int32]:
        """Positions whose checksum is not that of their bytes."""
        seeds = row_seeds(self.ords, self.norms, self.n_tokens, self.truncated)
        wrong: NDArray[np.bool_] = row_checksums(self.values, self.offsets, seeds) != self.crc
        return self.ords[wrong]


def columns_of(key: SetKey) -> list[str]:
    """The columns that :func:`unpack` needs."""
    vectors = "vector" if key.vectors == "single" else "vectors"
    return ["ord", vectors, "norm", "n_tokens", "truncated", "crc"]


def unpack(batch: pa.RecordBatch | pa.Table) -> StoredRows:
    """Arrow rows as arrays; the vectors are not copied where Arrow holds them in one piece."""
    if isinstance(batch, pa.Table):
        batch = batch.combine_chunks().to_batches()[0]
    ords = batch.column("ord").to_numpy()
    if "vector" in batch.schema.names:
        lists = batch.column("vector")
        offsets = np.arange(len(ords) + 1, dtype=np.int64)
    else:
        ragged = batch.column("vectors")
        lists = ragged.flatten()
        offsets = ragged.offsets.to_numpy().astype(np.int64)
        offsets -= offsets[0]
    values = lists.flatten().to_numpy(zero_copy_only=True).reshape(-1, lists.type.list_size)
    return StoredRows(
        ords,
        values,
        offsets,
        batch.column("norm").to_numpy(),
        batch.column("n_tokens").to_numpy(),
        batch.column("truncated").to_numpy(zero_copy_only=False),
        batch.column("crc").to_numpy(),
    )


def joined(parts: Sequence[StoredRows]) -> StoredRows:
    """Several lots of rows as one, in their order."""
    if len(parts) == 1:
        return parts[0]
    counts = np.concatenate([np.diff(part.offsets) for part in parts])
    columns = [np.concatenate([part[column] for part in parts]) for column in range(len(StoredRows._fields))]
    return StoredRows(*columns)._replace(offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))


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
    for batch in scanner.to_batches():
        if batch.num_rows:
            yield unpack(batch)


def refuse_damage(rows: StoredRows, name: str, ids: pa.Array) -> None:
    """Raises if any row's checksum is wrong, naming the items."""
    damaged = rows.damaged()
    if len(damaged):
        named = ", ".join(repr(ids[int(position)].as_py()) for position in damaged[:5])
        raise WorkError(
            f"set {name!r}: {len(damaged)} rows were changed on disk (checksum differs), first items {named}; "
            "nothing of them is used. Restore the table from a backup, or run `capim store repair` and `capim embed`: "
            "they remove these rows and encode only them again"
        )
