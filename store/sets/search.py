"""The nearest items in an embedding set, by exact scores; and what LanceDB's vector indexes would give instead.

Metrics are not computed from these hits: they need every rank.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store.embedding_store import EmbeddingStore
from capim.store.errors import RequestError, unknown
from capim.store.schema import TOP
from capim.store.sets.rows import ROWS_AT_ONCE
from capim.store.types import Modality, SetKey
from capim.store.vectors import Ragged, unit_vectors


def search(
    store: EmbeddingStore, query: NDArray[np.float32], *, encoder: str, corpus: str, modality: Modality, k: int = 10
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the positions in the corpus and the scores of the ``k`` items nearest to a query, best first.

    Scores are cosines or MaxSim; equal ones come in the order of the corpus.

    Args:
        store: The store.
        query: Unit vectors of one item by the same encoder, shape ``(n_vectors, dim)``.
        encoder: Name or fingerprint.
        corpus: Name or fingerprint.
        modality: Of the items. MaxSim sums over the tokens of the captions, which are the query if images are
            searched and the items if captions are searched.
        k: How many; fewer if the corpus has fewer items.

    Raises:
        RequestError: If ``k`` is not positive.
    """
    if k < 1:
        raise RequestError(f"k must be at least 1, got {k}")
    key = store.key(encoder=encoder, corpus=corpus, modality=modality)
    ords, scores = np.empty(0, np.int32), np.empty(0, np.float32)
    for rows in store.stored_blocks(key, window=ROWS_AT_ONCE[key.vectors]):
        values = rows.vectors.values
        as_scored = unit_vectors(values) if key.vectors == "single" else values.astype(np.float32)
        ords = np.concatenate([ords, rows.ords])
        scores = np.concatenate([scores, _scores(query, rows.vectors.with_values(as_scored), key)])
        best = np.lexsort((ords, -scores))[:k]
        ords, scores = ords[best], scores[best]
    return ords, scores


def _scores(query: NDArray[np.float32], items: Ragged, key: SetKey) -> NDArray[np.float32]:
    """Return the scores of some items for one query, shape ``(n_items,)``."""
    products = np.asarray(items.values @ query.T, dtype=np.float32)  # (vectors of all items, vectors of the query)
    if key.vectors == "single":
        return products[:, 0]
    starts = items.offsets[:-1]
    summed: NDArray[np.float32]
    if key.modality == "image":
        summed = np.maximum.reduceat(products, starts, axis=0).sum(axis=1)  # of the best patch of every token
    else:
        summed = np.add.reduceat(products.max(axis=1), starts)
    return summed


# --- LanceDB's vector indexes over a copy of some vectors, to measure their loss against exact search.
#
# The copy is in a temporary folder: measuring never changes a sealed set.


KINDS = ("IVF_PQ", "IVF_HNSW_SQ", "IVF_RQ")
SMALLEST = 256  # vectors needed to train a product quantiser
NPROBES = 20


class Index(NamedTuple):
    """Some items, ready to be searched.

    Attributes:
        bytes_per_item: Bytes on disk or in memory, without the vectors that it was made from.
        scores: Queries -> float32 scores of all items, shape ``(n_queries, n_items)``, higher is closer; ``-inf`` for
            items that the search does not return.
    """

    bytes_per_item: float
    scores: Callable[[Ragged], NDArray[np.float32]]


@contextmanager
def indexed(items: Ragged, kind: str, *, many: bool) -> Iterator[Index]:
    """Yield an index of LanceDB with its default settings, with ``NPROBES`` partitions read and ``TOP`` items returned.

    It is removed when the block ends.

    Args:
        items: Unit vectors; indexed as float16, as in a store.
        kind: One of :data:`KINDS`, cosine.
        many: True if items and queries have several vectors each. LanceDB then searches query by query, with the
            vectors of one query at a time, and its distances are estimates.

    Raises:
        RequestError: If the kind is unknown, or if there are too few vectors to train it.
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
            found = table.search(query, vector_column_name="vector").metric("cosine").nprobes(NPROBES).limit(TOP)
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
