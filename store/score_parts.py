"""Parts of an evaluation on their way between processes: a table of its own, which is dropped when they are merged."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store.schema import required
from capim.store.tables.connection import retrying, storage_faults

if TYPE_CHECKING:
    from capim.store.embedding_store import EmbeddingStore

PREFIX = "parts-"
_COLUMNS = pa.schema(
    [*required(pa.string(), "part"), *required(pa.large_binary(), "arrays"), *required(pa.uint32(), "crc")]
)


def write_part(store: EmbeddingStore, evaluation: str, part: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Store the arrays of one part in one commit; another process may write another part at the same time."""
    packed = io.BytesIO()
    np.savez(packed, **arrays)  # type: ignore[arg-type]
    row = {"part": part, "arrays": packed.getvalue(), "crc": zlib.crc32(packed.getvalue())}
    name, connection = PREFIX + evaluation, store.connection

    def append() -> None:
        table = connection.create(name, _COLUMNS)
        connection.append(table, [lambda: pa.RecordBatch.from_pylist([row], schema=_COLUMNS)])

    retrying(f"writing {name!r}", append)


def stored_parts(store: EmbeddingStore, evaluation: str) -> list[str]:
    """The parts of an evaluation that are stored."""
    table = store.connection.find(PREFIX + evaluation)
    if table is None:
        return []
    with storage_faults(f"reading {PREFIX + evaluation!r}"):
        return sorted(set(table.to_table(columns=["part"]).column("part").to_pylist()))


def read_parts(store: EmbeddingStore, evaluation: str) -> Iterator[tuple[str, dict[str, NDArray[Any]]]]:
    """Each stored part once, one in memory at a time; a part that changed on disk is left out."""
    name, read = PREFIX + evaluation, set()
    table = store.connection.find(name)
    if table is None:
        return
    with storage_faults(f"reading {name!r}"):
        for batch in table.scanner(batch_size=1).to_batches():
            for row in batch.to_pylist():
                if row["part"] not in read and zlib.crc32(row["arrays"]) == row["crc"]:
                    read.add(row["part"])
                    with np.load(io.BytesIO(row["arrays"]), allow_pickle=False) as arrays:
                        yield row["part"], dict(arrays)


def drop_parts(store: EmbeddingStore, evaluation: str) -> None:
    """Remove the parts of an evaluation."""
    if store.connection.find(PREFIX + evaluation) is not None:
        store.connection.drop(PREFIX + evaluation)
