"""Writing an embedding set: what is missing, and adding blocks so that every item ends up there once.

A block is appended in one commit: all of its rows are there, or none. Rows that are already there are left out before.
Two writers that append the same item within the same moment both succeed; sealing keeps the row of the earlier write,
and until then every reading takes one of them. (LanceDB's own guard, a merge on the key, was measured to cost twice as
much per row after 400,000 rows as at the start; this costs the same throughout.)
"""

from __future__ import annotations

import secrets
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store.checksums import row_checksums, row_seeds
from store.errors import WorkError
from store.keys import table_of
from store.sets.checks import Block, check_block, check_key
from store.tables.connection import Connection, retrying
from store.tables.corpora import ItemIndex
from store.tables.evolution import widen
from store.tables.schemas import set_schema
from store.types import Embeddings, EncoderSpec, SetKey

if TYPE_CHECKING:
    import lance

_PARTS = 2  # files that a block is written as, at once; more would leave more small files than they save time
_PART_BYTES = 8 << 20  # of float32 vectors; a smaller block is one file: every commit lists all files of the set


class SetWriter:
    """Adds blocks to one embedding set and knows which positions are there, other writers' included.

    May be shared by threads.
    """

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
        """Appends those rows of a block that are not there; returns how many these were."""
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

    def _append(self, spec: EncoderSpec, block: Block, fresh: NDArray[np.int64]) -> None:
        name, schema, number = table_of(self._key), set_schema(self._key, spec), put_number()
        n_bytes = block.embeddings.values.nbytes * len(fresh) // len(block)
        parts = [
            partial(to_rows, schema, block, self._items, chosen, number)
            for chosen in np.array_split(fresh, max(1, min(_PARTS, n_bytes // _PART_BYTES)))
        ]

        def append() -> lance.LanceDataset:
            latest = self._connection.latest(name, self._table)
            if latest is None:
                raise WorkError(f"set {name!r} was dropped while it was written: run the same `capim embed` again")
            return self._connection.append(widen(latest, schema), parts)

        self._table = retrying(f"writing {len(fresh)} rows to {name!r}", append)
        if self._table.version == self._version + 1:
            self._version += 1  # nobody else wrote in between

    def _refresh(self) -> None:
        """Takes in what was committed since the last look, reading only new fragments' positions."""
        retrying(f"reading {table_of(self._key)!r}", self._look)

    def _look(self) -> None:
        latest = self._connection.latest(table_of(self._key), self._table)
        if latest is None or latest.version < self._version:  # dropped meanwhile, or dropped and begun again
            self._forget()
        self._table = latest
        if latest is None or latest.version == self._version:
            return
        self._take_in(latest)
        if latest.count_rows() < int(self._present.sum()):  # rows were taken out, by a repair
            self._forget()
            self._take_in(latest)
        self._version = latest.version

    def _take_in(self, latest: lance.LanceDataset) -> None:
        unseen = [part for part in latest.get_fragments() if part.fragment_id not in self._fragments]
        if unseen:
            for batch in latest.scanner(columns=["ord"], fragments=unseen).to_batches():
                self._present[batch.column("ord").to_numpy()] = True
        self._fragments.update(part.fragment_id for part in unseen)

    def _forget(self) -> None:
        self._version = 0
        self._fragments.clear()
        self._present[:] = False


def to_rows(
    schema: pa.Schema, block: Block, items: ItemIndex, chosen: NDArray[np.int64], number: int
) -> pa.RecordBatch:
    """The chosen rows of a checked block as they are stored: components cast, checksums computed.

    Args:
        schema: Of the set.
        block: Checked.
        items: Of the set's corpus.
        chosen: Rows of the block, ascending.
        number: Of the write, from :func:`put_number`.
    """
    ords = np.ascontiguousarray(block.ords[chosen], dtype=np.int32)
    embeddings = block.embeddings
    multi = embeddings.offsets is not None
    kind = schema.field("vectors").type.value_type if multi else schema.field("vector").type
    values, offsets = stored_values(embeddings, chosen, kind.value_type.to_pandas_dtype())
    norms = embeddings.norms[chosen].astype(np.float32)
    n_tokens = embeddings.n_tokens[chosen].astype(np.int32)
    truncated = embeddings.truncated[chosen].astype(bool)
    n = len(ords)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), kind.list_size)
    columns = {
        "item_id": items.ids.take(pa.array(ords)),
        "ord": pa.array(ords),
        "norm": pa.array(norms),
        "n_tokens": pa.array(n_tokens),
        "truncated": pa.array(truncated),
        "input_sha": pa.array([block.input_shas[row] for row in chosen.tolist()], pa.string()),
        "crc": pa.array(row_checksums(values, offsets, row_seeds(ords, norms, n_tokens, truncated))),
        "batch_id": pa.repeat(pa.scalar(block.batch_id, pa.string()), n),
        "put": pa.repeat(pa.scalar(number, pa.int64()), n),
    }
    if multi:
        columns["vectors"] = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), flat)
        columns["n_vectors"] = pa.array(np.diff(offsets).astype(np.int32))
    else:
        columns["vector"] = flat
    if items.languages is not None and items.translators is not None:
        columns["language"] = items.languages.take(pa.array(ords))
        columns["translator"] = items.translators.take(pa.array(ords))
    arrays = [columns[field.name].cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def put_number() -> int:
    """A number that no other write has: nanoseconds since 1970, the lowest 20 bits random.

    Where two writers added the same item, the row with the lower number stays. Every process that seals the set thus
    keeps the same one, however compaction has ordered the rows; "the first on disk" would not be the same for all.
    """
    return (time.time_ns() & ~0xFFFFF) | secrets.randbits(20)


def stored_values(
    embeddings: Embeddings, chosen: NDArray[np.int64], dtype: type[np.floating]
) -> tuple[NDArray[np.floating], NDArray[np.int64]]:
    """The chosen items' components in the type they are stored in, one vector after the other, and their offsets.

    ``chosen`` is ascending; items that follow each other are cast where they lie, without a copy before.
    """
    first, stop = int(chosen[0]), int(chosen[-1]) + 1
    following = stop - first == len(chosen)
    if embeddings.offsets is None:
        values = embeddings.values[first:stop] if following else embeddings.values[chosen]
        return _cast(values, dtype), np.arange(len(chosen) + 1, dtype=np.int64)
    counts = embeddings.counts[chosen]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    starts = embeddings.offsets[:-1][chosen]
    if following:
        values = embeddings.values[starts[0] : starts[0] + offsets[-1]]
    else:
        values = embeddings.values[np.repeat(starts - offsets[:-1], counts) + np.arange(offsets[-1])]
    return _cast(values, dtype), offsets


def _cast(values: NDArray[np.floating], dtype: type[np.floating]) -> NDArray[np.floating]:
    """Contiguous components of this type; Arrow rounds to float16 as NumPy does, bit for bit, in 0.7 of its time."""
    if dtype is not np.float16 or values.dtype != np.float32:
        return np.ascontiguousarray(values, dtype=dtype)
    flat = pa.array(np.ascontiguousarray(values).reshape(-1)).cast(pa.float16())
    halves: NDArray[np.floating] = flat.to_numpy().reshape(values.shape)
    return halves
