"""Writing an embedding set: which items are missing, and appending blocks so that every item is stored once.

A block is appended in one commit: all of its new rows or none. When two processes append the same item at the same
time, both succeed; sealing, without which nothing is read, keeps the row of the earlier write. (A merge on the primary
key instead was measured to cost twice as much per row after 400,000 rows as at the start; appending costs the same
throughout.)
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store.connection import Connection, retrying, storage_faults, table_version
from capim.store.errors import RequestError, WorkError
from capim.store.sets.rows import ItemIndex, StoredRows, row_checksums, row_seeds, set_schema, vector_type
from capim.store.types import Embeddings, EncoderSpec, SetKey
from capim.store.vectors import UNKNOWN, Ragged, layout_fault, offsets_of

if TYPE_CHECKING:
    import lance

# --- Checks of a block of embeddings before any row of it is written; every fault names the row and the item.


UNIT_TOLERANCE = 1e-3  # of a float32 norm: encoders normalise in float32, whatever the precision of the model
_SHOWN = 5  # faults of one kind that a message lists


@dataclass(frozen=True, kw_only=True)
class Block:
    """Embeddings of some items of a corpus, to be written to the store.

    Attributes:
        ords: int32, shape ``(n,)``: positions of the items in the corpus, each once, in any order.
        embeddings: float32, unit norm, row ``i`` for ``ords[i]``.
        input_shas: blake2b-128 of the encoded bytes or text, hexadecimal; empty where unknown.
        batch_id: Key of the row of table ``batches`` with time, host and device.
    """

    ords: NDArray[np.int32]
    embeddings: Embeddings
    input_shas: Sequence[str]
    batch_id: str

    def __len__(self) -> int:
        return len(self.ords)


def check_block(key: SetKey, spec: EncoderSpec, block: Block, items: ItemIndex) -> None:
    """Raise :class:`RequestError` with errors of every kind in the block, if it has any."""
    faults = list(_shape_faults(spec, block, items)) or list(_value_faults(block, items))
    if faults:
        raise RequestError([f"{key.modality}s of {key.corpus!r} by {key.encoder!r}: {fault}" for fault in faults])


def _shape_faults(spec: EncoderSpec, block: Block, items: ItemIndex) -> Iterator[str]:
    n = len(block)
    if not len(block.embeddings) == len(block.input_shas) == n:
        found = f"{len(block.embeddings)} embeddings and {len(block.input_shas)} input hashes"
        yield f"expected {n} embeddings and input hashes for {n} positions, got {found}"
    if len(outside := block.ords[(block.ords < 0) | (block.ords >= len(items))]):
        yield f"position {outside[0]} is outside the corpus, which has {len(items)} {items.modality}s"
    if len(np.unique(block.ords)) < n:
        yield "a position occurs twice"
    if block.embeddings.values.shape[1] != spec.dim:
        yield f"vectors have {block.embeddings.values.shape[1]} components, encoder {spec.name!r} has dim {spec.dim}"
    if (block.embeddings.offsets is not None) != (spec.vectors == "multi"):
        given = "single" if block.embeddings.offsets is None else "multi"
        yield f"vectors are {given}, encoder {spec.name!r} gives {spec.vectors}"


def _value_faults(block: Block, items: ItemIndex) -> Iterator[str]:
    embeddings, ids = block.embeddings, items.ids.take(block.ords)
    yield from _rows(embeddings.counts < 1, ids, lambda _: "no vector")
    squares = np.einsum("ij,ij->i", embeddings.values, embeddings.values, dtype=np.float32)
    finite = np.isfinite(squares)
    norms = np.sqrt(np.where(finite, squares, 0.0))
    wrong = ~finite | (np.abs(norms - 1.0) > UNIT_TOLERANCE)
    first_bad = np.full(len(block), -1, dtype=np.int64)  # of every item: its first wrong vector
    if wrong.any():
        vectors = np.flatnonzero(wrong)[::-1]
        owners = np.searchsorted(offsets_of(embeddings.counts), vectors, side="right") - 1
        first_bad[owners] = vectors
        yield from _rows(first_bad >= 0, ids, lambda row: _vector_words(embeddings, int(first_bad[row]), row))
    bad_norm = (~np.isfinite(embeddings.norms) | (embeddings.norms <= 0)) & (first_bad < 0) & (embeddings.counts > 0)
    yield from _rows(bad_norm, ids, lambda row: f"norm before normalisation is {embeddings.norms[row]}, expected > 0")
    layouts = embeddings.layouts or ()
    faults = [layout_fault(*each) for each in zip(layouts, embeddings.counts.tolist(), strict=True)] if layouts else []
    bad_layout = np.array([fault is not None for fault in faults], bool)
    yield from _rows(bad_layout, ids, lambda row: f"layout: {faults[row]}")
    yield from _rows(embeddings.n_tokens < 0, ids, lambda row: f"{embeddings.n_tokens[row]} tokens")


def _vector_words(embeddings: Embeddings, vector: int, row: int) -> str:
    values = embeddings.values[vector]
    which = "" if embeddings.offsets is None else f"vector {vector - int(embeddings.offsets[row])}: "
    for words, wrong in (("NaN", np.isnan(values)), ("infinity", np.isinf(values))):
        if wrong.any():
            return f"{which}{words} at component {int(wrong.argmax())}"
    if not values.any():
        return f"{which}all components are zero"
    norm = float(np.linalg.norm(values.astype(np.float64)))
    return f"{which}norm is {norm:g}, expected 1 within {UNIT_TOLERANCE:g}: normalise before storing"


def _rows(wrong: NDArray[np.bool_], ids: pa.Array, words: Callable[[int], str]) -> Iterator[str]:
    """Yield a fault for each of the first few wrong rows, and the number of further ones."""
    rows = np.flatnonzero(wrong)
    for row in rows[:_SHOWN].tolist():
        yield f"{ids[row].as_py()!r}: {words(row)}"  # its row here is not that of the file
    if len(rows) > _SHOWN:
        yield f"… and {len(rows) - _SHOWN} more rows with the same fault"


class SetWriter:
    """Appends blocks to one embedding set and tracks the stored positions, of other processes too; thread-safe."""

    def __init__(self, connection: Connection, key: SetKey, items: ItemIndex) -> None:
        self._connection = connection
        self._key = key
        self._items = items
        self._lock = threading.Lock()
        self._version = 0  # of the table that these positions were read from
        self._fragments: set[int] = set()
        self._present = np.zeros(len(items), dtype=bool)

    def missing(self) -> NDArray[np.int32]:
        """Return the positions without a row, ascending, shape ``(n_missing,)``."""
        with self._lock:
            self._refresh()
            return np.flatnonzero(~self._present).astype(np.int32)

    def put(self, spec: EncoderSpec, block: Block) -> int:
        """Append the rows of a block that are not stored yet; return their number."""
        if spec.fingerprint != self._key.encoder_fingerprint:
            raise RequestError(
                f"encoder {spec.name!r} has fingerprint {spec.fingerprint}, the set is of "
                f"{self._key.encoder_fingerprint}: a different revision, precision, prompt or option makes another set"
            )
        check_block(self._key, spec, block, self._items)
        with self._lock:
            self._refresh()
            fresh = np.flatnonzero(~self._present[block.ords])
            if len(fresh):
                self._append(spec, block, fresh)
                self._present[block.ords] = True
        return len(fresh)

    def put_all(self, spec: EncoderSpec, blocks: Iterable[Block]) -> None:
        """Fill an empty set with blocks that passed :func:`check_block`, in one commit and in large files.

        Until then no reader sees a row.
        """
        name, schema, number = self._key.table, set_schema(self._key, spec), write_number()
        batches = (to_rows(schema, block, self._items, number) for block in blocks)
        rows = pa.RecordBatchReader.from_batches(schema, batches)
        with self._lock, storage_faults(f"writing {name!r}"):
            self._connection.append(self._connection.create(name, schema), rows)
            self._version = 0

    def _append(self, spec: EncoderSpec, block: Block, fresh: NDArray[np.int64]) -> None:
        name, schema = self._key.table, set_schema(self._key, spec)
        rows = to_rows(schema, block, self._items, write_number())
        rows = rows if len(fresh) == len(block) else rows.take(fresh)

        def append() -> int:
            latest = self._connection.find(name)
            if latest is None and self._version:
                raise WorkError(f"set {name!r} was dropped during the write", remedy="Run the same `capim embed` again")
            return int(self._connection.append(latest or self._connection.create(name, schema), rows).version)

        version = retrying(f"writing {len(fresh)} rows to {name!r}", append)
        if version == self._version + 1:
            self._version = version  # nobody else wrote in between

    def _refresh(self) -> None:
        """Add the rows that other processes have written to the set since the last time."""
        retrying(f"reading {self._key.table!r}", self._read_positions)

    def _read_positions(self) -> None:
        latest = self._connection.find(self._key.table)
        version = table_version(latest)
        if version < self._version:  # dropped, and perhaps created again
            self._forget()
        if latest is not None and version != self._version:
            self._add_positions(latest)
            if latest.count_rows() < self._present.sum():  # rows were removed
                self._forget()
                self._add_positions(latest)
        self._version = version

    def _add_positions(self, table: lance.LanceDataset) -> None:
        """Read the positions in the fragments that are new: with many writers, most fragments are known."""
        if added := [part for part in table.get_fragments() if part.fragment_id not in self._fragments]:
            for batch in table.scanner(columns=["ord"], fragments=added).to_batches():
                self._present[batch.column("ord").to_numpy()] = True
        self._fragments.update(part.fragment_id for part in added)

    def _forget(self) -> None:
        self._fragments.clear()
        self._present[:] = False


def to_rows(schema: pa.Schema, block: Block, items: ItemIndex, number: int) -> pa.RecordBatch:
    """Return the rows of a checked block as stored, with checksums; ``number`` is of :func:`write_number`."""
    kind = vector_type(schema)
    rows = _stored(block, kind.value_type.to_pandas_dtype())
    flat = pa.FixedSizeListArray.from_arrays(pa.array(rows.vectors.values.reshape(-1)), kind.list_size)
    columns: dict[str, Any] = {
        "item_id": items.ids.take(rows.ords),
        "ord": pa.array(rows.ords),
        "vector": flat,
        "vectors": None
        if rows.layouts is None
        else pa.ListArray.from_arrays(pa.array(rows.vectors.offsets, pa.int32()), flat),
        "n_vectors": pa.array(rows.vectors.counts.astype(np.int32)),
        "layout": rows.layouts,
        "norm": pa.array(rows.norms),
        "n_tokens": pa.array(rows.n_tokens),
        "truncated": pa.array(rows.truncated),
        "input_sha": pa.array(block.input_shas, pa.string()),
        "crc": pa.array(rows.crc),
        "batch_id": pa.repeat(pa.scalar(block.batch_id, pa.string()), len(block)),
        "write_number": pa.repeat(pa.scalar(number, pa.int64()), len(block)),
        **{name: column.take(rows.ords) for name, column in items.columns.items()},
    }
    return pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in schema], schema=schema)


def _stored(block: Block, dtype: type[np.floating]) -> StoredRows:
    """Return the rows of a checked block as they are stored, their vectors rounded to this type."""
    embeddings = block.embeddings
    vectors = Ragged.from_counts(np.ascontiguousarray(embeddings.values, dtype), embeddings.counts, block.ords)
    layouts = None
    if embeddings.offsets is not None:
        layouts = pa.array(embeddings.layouts or [UNKNOWN] * len(block), pa.string())
    norms, n_tokens = embeddings.norms.astype(np.float32), embeddings.n_tokens.astype(np.int32)
    truncated = embeddings.truncated.astype(bool)
    seeds = row_seeds(vectors.ords, norms, n_tokens, truncated, layouts)
    return StoredRows(
        vectors=vectors,
        norms=norms,
        n_tokens=n_tokens,
        truncated=truncated,
        crc=row_checksums(vectors.values, vectors.offsets, seeds),
        layouts=layouts,
    )


def block_checksums(spec: EncoderSpec, block: Block) -> NDArray[np.uint32]:
    """Return the checksums that the rows of a checked block get when they are stored, in the order of the block."""
    return _stored(block, np.dtype(spec.storage).type).crc


def write_number() -> int:
    """Return a number that is unique to one write: nanoseconds since 1970, the lowest 20 bits random.

    If two processes wrote the same item, sealing keeps the row with the lower number, so that every process that
    seals the set keeps the same row, in whatever order compaction has put them.
    """
    return (time.time_ns() & ~0xFFFFF) | secrets.randbits(20)
