"""LanceDB's vector indexes over a copy of some vectors, to measure what they lose against exact search.

The copy is in a temporary folder: measuring never changes a sealed set.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store.errors import RequestError, unknown
from capim.store.ragged import Ragged
from capim.store.schema import TOP

KINDS = ("IVF_PQ", "IVF_HNSW_SQ", "IVF_RQ")
SMALLEST = 256  # vectors needed to train a product quantiser
NPROBES = 20


class Index(NamedTuple):
    """Some items, ready to be searched.

    Attributes:
        bytes_per_item: What it takes on disk or in memory, without the vectors that it was made from.
        scores: Queries -> float32 scores of all items, shape ``(n_queries, n_items)``, higher is closer; ``-inf`` for
            items that the search does not return.
    """

    bytes_per_item: float
    scores: Callable[[Ragged], NDArray[np.float32]]


@contextmanager
def indexed(items: Ragged, kind: str, *, many: bool, nprobes: int = NPROBES, k: int = TOP) -> Iterator[Index]:
    """An index of LanceDB with its default settings; it is removed when the block ends.

    Args:
        items: Unit vectors; indexed as float16, as in a store.
        kind: One of :data:`KINDS`, cosine.
        many: Whether items and queries have several vectors each. LanceDB then searches query by query, with the
            vectors of one query at a time, and its distances are estimates.
        nprobes: Partitions that a search reads.
        k: Items that a search returns.

    Raises:
        RequestError: The kind is unknown or there are too few vectors to train it.
    """
    if kind not in KINDS:
        raise RequestError(unknown("index", kind, KINDS))
    if len(items.values) < SMALLEST:
        raise RequestError(f"an index needs at least {SMALLEST} vectors, got {len(items.values)}; use exact search")
    import lancedb

    with tempfile.TemporaryDirectory(prefix="capim-index-") as folder:
        flat = pa.array(items.values.astype(np.float16, copy=False).reshape(-1))
        column: Any = pa.FixedSizeListArray.from_arrays(flat, items.values.shape[1])
        if many:
            offsets: Any = pa.array(items.offsets, pa.int32())
            column = pa.ListArray.from_arrays(offsets, column)
        rows = pa.table({"ord": pa.array(np.arange(len(items), dtype=np.int32)), "vector": column})
        table = lancedb.connect(folder).create_table("vectors", rows)
        table.create_index(metric="cosine", index_type=kind, vector_column_name="vector")

        def hits(query: Any) -> pa.Table:
            found = table.search(query, vector_column_name="vector").metric("cosine").nprobes(nprobes).limit(k)
            answer: pa.Table = found.select(["ord", "_distance"]).to_arrow()
            return answer

        def scores(queries: Ragged) -> NDArray[np.float32]:
            found = np.full((len(queries), len(items)), -np.inf, dtype=np.float32)
            vectors = queries.values.astype(np.float16)
            for at, query in enumerate(queries.with_values(vectors)) if many else [(0, list(vectors))]:
                answer = hits(query)
                row = answer["query_index"].to_numpy() if "query_index" in answer.column_names else 0
                found[at + row, answer["ord"].to_numpy()] = -answer["_distance"].to_numpy()
            return found

        yield Index((table.list_indices()[0].size_bytes or 0) / len(items), scores)
