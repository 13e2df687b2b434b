"""LanceDB's vector indexes over a copy of some vectors, to measure their recall against exact search.

The copy is in a temporary folder: measuring never changes a sealed set.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store.errors import RequestError, unknown

# float32 queries (n, dim) and k -> int32 positions (n, k), best first, -1 where the index returns fewer
Search: TypeAlias = Callable[[NDArray[np.float32], int], NDArray[np.int32]]

KINDS = ("IVF_PQ", "IVF_HNSW_SQ", "IVF_RQ")
SMALLEST = 256  # rows needed to train a product quantiser


@contextmanager
def indexed(vectors: NDArray[np.float32], kind: str, *, nprobes: int = 20, refine: int = 10) -> Iterator[Search]:
    """A function that searches an index over vectors; the index is removed when the block ends.

    Args:
        vectors: Unit vectors, shape ``(n, dim)``; indexed as float16, as in a store.
        kind: One of :data:`KINDS`, cosine.
        nprobes: Partitions that a search reads.
        refine: Candidates per result that are scored again with the full vectors.

    Raises:
        RequestError: The kind is unknown or there are too few vectors to train it.
    """
    if kind not in KINDS:
        raise RequestError(unknown("index", kind, KINDS))
    if len(vectors) < SMALLEST:
        raise RequestError(f"an index needs at least {SMALLEST} vectors, got {len(vectors)}; exact search is faster")
    import lancedb

    with tempfile.TemporaryDirectory(prefix="capim-index-") as folder:
        flat = pa.array(vectors.astype(np.float16).reshape(-1))
        column = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
        rows = pa.table({"ord": pa.array(np.arange(len(vectors), dtype=np.int32)), "vector": column})
        table = lancedb.connect(folder).create_table("vectors", rows)
        table.create_index(metric="cosine", index_type=kind, vector_column_name="vector")

        def search(queries: NDArray[np.float32], k: int) -> NDArray[np.int32]:
            best = np.full((len(queries), k), -1, dtype=np.int32)
            query = table.search(list(queries.astype(np.float16)), vector_column_name="vector").metric("cosine")
            hits = query.nprobes(nprobes).refine_factor(refine).limit(k).select(["ord", "_distance"]).to_arrow()
            if "query_index" in hits.column_names:
                numbers = hits["query_index"].to_numpy()
            else:  # there is one query
                numbers = np.zeros(len(hits), dtype=np.int64)
            ords, distances = hits["ord"].to_numpy(), hits["_distance"].to_numpy()
            for number in range(len(queries)):
                rows = np.flatnonzero(numbers == number)
                nearest = ords[rows[np.argsort(distances[rows], kind="stable")]][:k]
                best[number, : len(nearest)] = nearest
            return best

        yield search
