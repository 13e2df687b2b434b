"""LanceDB's vector indexes over a copy of some vectors, to be measured against exact search.

The copy lies in a temporary folder: measuring never touches a sealed set.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store.errors import RequestError

if TYPE_CHECKING:
    from lancedb.table import Table

# float32 queries (n, dim) and k -> int32 positions (n, k), best first, -1 where the index gives fewer
Search: TypeAlias = Callable[[NDArray[np.float32], int], NDArray[np.int32]]

KINDS = ("IVF_PQ", "IVF_HNSW_SQ", "IVF_RQ")
SMALLEST = 256  # rows that a product quantiser needs for training


@contextmanager
def indexed(vectors: NDArray[np.float32], kind: str, *, nprobes: int = 20, refine: int = 10) -> Iterator[Search]:
    """An index over vectors, as a function that searches it; gone when the block ends.

    Args:
        vectors: Unit vectors, shape ``(n, dim)``, stored as float16 as everything in a store.
        kind: One of :data:`KINDS`, cosine.
        nprobes: Partitions that a search looks into.
        refine: Candidates per result that are scored again with the full vectors.

    Raises:
        RequestError: The kind is unknown or there are too few vectors to train it.
    """
    if kind not in KINDS:
        raise RequestError(f"index {kind!r} is unknown; known are {', '.join(KINDS)}")
    if len(vectors) < SMALLEST:
        raise RequestError(f"an index needs at least {SMALLEST} vectors, got {len(vectors)}; exact search is faster")
    import lancedb

    with tempfile.TemporaryDirectory(prefix="capim-index-") as folder:
        flat = pa.array(vectors.astype(np.float16).reshape(-1))
        column = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
        rows = pa.table({"ord": pa.array(np.arange(len(vectors), dtype=np.int32)), "vector": column})
        table = lancedb.connect(folder).create_table("vectors", rows)
        table.create_index(metric="cosine", index_type=kind, vector_column_name="vector")
        yield _searching(table, nprobes, refine)


def _searching(table: Table, nprobes: int, refine: int) -> Search:
    def search(queries: NDArray[np.float32], k: int) -> NDArray[np.int32]:
        found = np.full((len(queries), k), -1, dtype=np.int32)
        asked = table.search(list(queries.astype(np.float16)), vector_column_name="vector").metric("cosine")
        answer = asked.nprobes(nprobes).refine_factor(refine).limit(k).select(["ord", "_distance"]).to_arrow()
        if "query_index" in answer.column_names:
            numbers = answer["query_index"].to_numpy()
        else:  # one query alone
            numbers = np.zeros(len(answer), dtype=np.int64)
        ords, distances = answer["ord"].to_numpy(), answer["_distance"].to_numpy()
        for number in range(len(queries)):
            mine = numbers == number
            best = ords[mine][np.argsort(distances[mine], kind="stable")][:k]
            found[number, : len(best)] = best
        return found

    return search
