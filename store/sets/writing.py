"""Writing an embedding set: which items are missing, and appending blocks so that every item is stored once.

A block is appended in one commit: all of its new rows or none. When two processes append the same item at the same
time, both succeed; sealing keeps the row of the earlier write, and until then a reader takes one of them. (A merge on
the primary key instead was measured to cost twice as much per row after 400,000 rows as at the start; appending costs
the same throughout.)
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store.checksums import row_checksums, row_seeds
from capim.store.errors import WorkError
from capim.store.keys import table_of
from capim.store.layout import UNKNOWN
from capim.store.ragged import Ragged, offsets_of
from capim.store.sets.checks import Block, check_block, check_key
from capim.store.tables.connection import Connection
from capim.store.tables.corpora import ItemIndex
from capim.store.tables.faults import retrying, storage_faults
from capim.store.tables.schemas import set_schema, vector_type
from capim.store.types import EncoderSpec, SetKey

if TYPE_CHECKING:
    import lance

_PARTS = 2  # files that a block is written as, at once; more would leave more small files than they save time
_PART_BYTES = 8 << 20  # of float32 vectors; a smaller block is one file: every commit lists all files of the set


class SetWriter:
    """Appends blocks to one embedding set and tracks the stored positions, of other processes too; thread-safe."""

    def __init__(self, connection: Connection, key: SetKey, items: ItemIndex) -> None:
        self._connection = connection
        self._key = key
        self._items = items
        self._lock = threading.Lock()
        self._table: lance.LanceDataset | None = None
        self._version = 0
        self._fragments: set[int] = set()
        self._present = np.zeros(len(items), dtype=bool)

    def missing(self) -> NDArray[np.int32]:
        """Positions without a row, ascending, shape ``(n_missing,)``."""
        with self._lock:
            self._refresh()
            return np.flatnonzero(~self._present).astype(np.int32)

    def put(self, spec: EncoderSpec, block: Block) -> int:
        """Appends the rows of a block that are not stored yet; returns their number."""
        check_key(self._key, spec)
        check_block(self._key, spec, block, self._items)
        with self._lock:
            self._refresh()
            if self._table is None:
                self._table = self._connection.create(table_of(self._key), set_schema(self._key, spec))
                self._refresh()
            fresh = np.flatnonzero(~self._present[block.ords])
            if not len(fresh):
                return 0
            self._append(spec, block, fresh)
            self._present[block.ords] = True
        return len(fresh)

    def put_all(self, spec: EncoderSpec, blocks: Iterable[Block]) -> None:
        """Fills an empty set in one commit, in files that need no compaction; until then no reader sees a row."""
        check_key(self._key, spec)
        name, schema, number = table_of(self._key), set_schema(self._key, spec), write_number()
        refused: list[Exception] = []

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                for block in blocks:
                    check_block(self._key, spec, block, self._items)
                    yield to_rows(schema, block, self._items, np.arange(len(block)), number)
            except Exception as fault:  # of which Lance would keep the text alone
                refused.append(fault)
                raise

        rows = pa.RecordBatchReader.from_batches(schema, batches())
        with self._lock:
            try:
                with storage_faults(f"writing {name!r}"):
                    self._table = self._connection.append(self._connection.create(name, schema), [lambda: rows])
            except WorkError as fault:
                raise refused[0] if refused else fault from None
            self._reset()

    def _append(self, spec: EncoderSpec, block: Block, fresh: NDArray[np.int64]) -> None:
        name, schema, number = table_of(self._key), set_schema(self._key, spec), write_number()
        n_bytes = block.embeddings.values.nbytes * len(fresh) // len(block)
        parts = [
            partial(to_rows, schema, block, self._items, chosen, number)
            for chosen in np.array_split(fresh, max(1, min(_PARTS, n_bytes // _PART_BYTES)))
        ]

        def append() -> lance.LanceDataset:
            latest = self._connection.latest(name, self._table)
            if latest is None:
                raise WorkError(f"set {name!r} was dropped during the write", remedy="Run the same `capim embed` again")
            return self._connection.append(latest, parts)

        self._table = retrying(f"writing {len(fresh)} rows to {name!r}", append)
        if self._table.version == self._version + 1:
            self._version += 1  # nobody else wrote in between

    def _refresh(self) -> None:
        """Adds what was committed since the last refresh, reading only the positions in new fragments."""
        retrying(f"reading {table_of(self._key)!r}", self._add_commits)

    def _add_commits(self) -> None:
        latest = self._connection.latest(table_of(self._key), self._table)
        if latest is None or latest.version < self._version:  # dropped, and perhaps created again
            self._reset()
        self._table = latest
        if latest is None or latest.version == self._version:
            return
        self._add_fragments(latest)
        if latest.count_rows() < int(self._present.sum()):  # a repair removed rows
            self._reset()
            self._add_fragments(latest)
        self._version = latest.version

    def _add_fragments(self, latest: lance.LanceDataset) -> None:
        added = [part for part in latest.get_fragments() if part.fragment_id not in self._fragments]
        if added:
            for batch in latest.scanner(columns=["ord"], fragments=added).to_batches():
                self._present[batch.column("ord").to_numpy()] = True
        self._fragments.update(part.fragment_id for part in added)

    def _reset(self) -> None:
        self._version = 0
        self._fragments.clear()
        self._present[:] = False


def to_rows(
    schema: pa.Schema, block: Block, items: ItemIndex, chosen: NDArray[np.int64], number: int
) -> pa.RecordBatch:
    """Chosen rows (ascending) of a checked block as stored, with checksums; ``number`` is of :func:`write_number`."""
    ords = np.ascontiguousarray(block.ords[chosen], dtype=np.int32)
    embeddings = block.embeddings
    kind = vector_type(schema)
    vectors = _chosen(embeddings.values, embeddings.counts, chosen)
    values = _cast(vectors.values, kind.value_type.to_pandas_dtype())
    norms = embeddings.norms[chosen].astype(np.float32)
    n_tokens = embeddings.n_tokens[chosen].astype(np.int32)
    truncated = embeddings.truncated[chosen].astype(bool)
    n = len(ords)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), kind.list_size)
    columns: dict[str, pa.Array] = {
        "item_id": items.ids.take(ords),
        "ord": pa.array(ords),
        "norm": pa.array(norms),
        "n_tokens": pa.array(n_tokens),
        "truncated": pa.array(truncated),
        "input_sha": pa.array([block.input_shas[row] for row in chosen.tolist()], pa.string()),
        "batch_id": pa.repeat(pa.scalar(block.batch_id, pa.string()), n),
        "write_number": pa.repeat(pa.scalar(number, pa.int64()), n),
    }
    layouts = None
    if "vectors" in schema.names:
        layouts = columns["layout"] = layouts_of(block).take(chosen)
        columns["vectors"] = pa.ListArray.from_arrays(pa.array(vectors.offsets, pa.int32()), flat)
        columns["n_vectors"] = pa.array(vectors.counts.astype(np.int32))
    else:
        columns["vector"] = flat
    columns["crc"] = pa.array(
        row_checksums(values, vectors.offsets, row_seeds(ords, norms, n_tokens, truncated, layouts))
    )
    if items.languages is not None and items.translators is not None:
        columns["language"] = items.languages.take(ords)
        columns["translator"] = items.translators.take(ords)
    arrays = [columns[field.name].cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def block_checksums(spec: EncoderSpec, block: Block) -> NDArray[np.uint32]:
    """The checksums that the rows of a checked block get when they are stored, in the order of the block."""
    embeddings = block.embeddings
    values = _cast(embeddings.values, np.dtype(spec.storage).type)
    layouts = layouts_of(block) if spec.vectors == "multi" else None
    seeds = row_seeds(block.ords, embeddings.norms, embeddings.n_tokens, embeddings.truncated, layouts)
    return row_checksums(values, offsets_of(embeddings.counts), seeds)


def layouts_of(block: Block) -> pa.Array:
    """The layouts of a block of multi-vectors as a column; empty texts where they are not known."""
    return pa.array(block.embeddings.layouts or [UNKNOWN] * len(block), pa.string())


def write_number() -> int:
    """A number that is unique to one write: nanoseconds since 1970, the lowest 20 bits random.

    Where two processes wrote the same item, sealing keeps the row with the lower number, so that every process that
    seals the set keeps the same row, in whatever order compaction has put them.
    """
    return (time.time_ns() & ~0xFFFFF) | secrets.randbits(20)


def _chosen(values: NDArray[np.float32], counts: NDArray[np.int64], chosen: NDArray[np.int64]) -> Ragged:
    """The vectors of the chosen items, which are ascending; a view if the items are consecutive."""
    vectors = Ragged.from_counts(values, counts)
    first, stop = int(chosen[0]), int(chosen[-1]) + 1
    return vectors.slice(first, stop) if stop - first == len(chosen) else vectors.take(chosen)


def _cast(values: NDArray[np.floating], dtype: type[np.floating]) -> NDArray[np.floating]:
    """Contiguous components of this type; Arrow rounds to float16 exactly as NumPy, in 0.7 of the time."""
    if dtype is not np.float16 or values.dtype != np.float32:
        return np.ascontiguousarray(values, dtype=dtype)
    flat = pa.array(np.ascontiguousarray(values).reshape(-1)).cast(pa.float16())
    halves: NDArray[np.floating] = flat.to_numpy().reshape(values.shape)
    return halves
