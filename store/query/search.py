"""Nearest items: exact over a stored set, or through an index that is asked for and then checked exactly.

Metrics never come from here (they need every rank); this is for looking at what a model finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store.embedding_store import EmbeddingStore
from store.errors import RequestError
from store.keys import table_of
from store.tables.connection import storage_faults
from store.tables.metadata import quoted
from store.types import Embeddings, Modality, SetKey

if TYPE_CHECKING:
    import lancedb

HITS = pa.schema(
    [
        pa.field("query", pa.int32(), nullable=False),  # position among the queries
        pa.field("rank", pa.int32(), nullable=False),  # from 1; equal scores in corpus order
        pa.field("item_id", pa.string(), nullable=False),
        pa.field("ord", pa.int32(), nullable=False),
        pa.field("score", pa.float32(), nullable=False),  # cosine, or MaxSim; higher is closer
    ]
)

INDEX_ROWS = 256  # an index of fewer rows cannot be trained and would save nothing
_WINDOW = {"single": 8192, "multi": 64}
_CANDIDATES = 20  # taken from the index for every hit asked for, then scored exactly


def search(
    store: EmbeddingStore,
    queries: Embeddings,
    *,
    encoder: str,
    corpus: str,
    modality: Modality,
    k: int = 10,
    language: str | None = None,
    translator: str | None = None,
    use_index: bool = False,
) -> pa.Table:
    """The ``k`` items nearest to each query.

    Args:
        store: Where.
        queries: Embeddings by the same encoder, of the other modality or of the same one.
        encoder: Name or fingerprint.
        corpus: Name or fingerprint.
        modality: Of the items that are searched. MaxSim sums over the tokens of the captions: over the queries' where
            images are searched, over the items' where captions are searched.
        k: Hits per query; fewer come back where the corpus has fewer items.
        language: Only captions in this language.
        translator: Only captions by this translator.
        use_index: Take candidates from the index that :func:`build_index` made; their scores are exact, but an item
            that the index does not propose is not found.

    Returns:
        :data:`HITS`, by query and rank.

    Raises:
        RequestError: The queries do not fit the encoder, ``k`` is not positive, or there is no index.
    """
    key = store.key(encoder=encoder, corpus=corpus, modality=modality)
    spec = store.encoder(key.encoder_fingerprint)
    faults = []
    if k < 1:
        faults.append(f"k must be at least 1, got {k}")
    if queries.values.shape[1] != spec.dim:
        faults.append(f"queries have {queries.values.shape[1]} components, encoder {spec.name!r} has dim {spec.dim}")
    if (queries.offsets is not None) != (spec.vectors == "multi"):
        faults.append(f"queries must be {spec.vectors}-vector embeddings, as encoder {spec.name!r} gives them")
    if faults:
        raise RequestError(faults)
    per_query = [queries.values[start:stop] for start, stop in _bounds(queries)]
    if use_index:
        found = [_through_index(store, key, query, k, language, translator) for query in per_query]
    else:
        found = _exact(store, key, per_query, k, language, translator)
    ids = store.items(key.corpus_fingerprint, modality).column("id")
    rows = [
        {"query": number, "rank": rank + 1, "item_id": ids[int(position)].as_py(), "ord": position, "score": score}
        for number, (ords, scores) in enumerate(found)
        for rank, (position, score) in enumerate(zip(ords.tolist(), scores.tolist(), strict=True))
    ]
    return pa.Table.from_pylist(rows, schema=HITS)


def build_index(store: EmbeddingStore, *, encoder: str, corpus: str, modality: Modality) -> None:
    """Makes a cosine index (IVF with RaBitQ codes, under a tenth of the set's size) over a sealed set, once.

    Raises:
        RequestError: The set is not sealed, was written to since, or is too small for an index to help.
    """
    key = store.key(encoder=encoder, corpus=corpus, modality=modality)
    name = table_of(key)
    state = store.sealed(key)
    if state is None:
        raise RequestError(f"set {name!r} is not sealed. Run `capim embed` to the end first")
    if state.n_rows < INDEX_ROWS:
        raise RequestError(f"set {name!r} has {state.n_rows} rows; below {INDEX_ROWS} exact search is faster")
    table = store.connection.database.open_table(name)
    if table.count_rows() != state.n_rows:
        raise RequestError(
            f"set {name!r} has {table.count_rows()} rows, sealed were {state.n_rows}: run `capim store compact`"
        )
    if _is_indexed(table, key):
        return
    with storage_faults(f"indexing {name!r}"):
        table.create_index(metric="cosine", index_type="IVF_RQ", vector_column_name=_column(key), replace=True)


def _is_indexed(table: lancedb.table.Table, key: SetKey) -> bool:
    return any(_column(key) in index.columns for index in table.list_indices())


def _bounds(queries: Embeddings) -> Iterator[tuple[int, int]]:
    offsets = range(len(queries) + 1) if queries.offsets is None else queries.offsets.tolist()
    return pairwise(offsets)


def _column(key: SetKey) -> str:
    return "vector" if key.vectors == "single" else "vectors"


def _scores(
    query: NDArray[np.float32], values: NDArray[np.float32], offsets: NDArray[np.int64] | None, modality: Modality
) -> NDArray[np.float32]:
    """Scores of a block of items for one query, shape ``(n_items,)``."""
    products: NDArray[np.float32] = values @ query.T  # (vectors of all items, vectors of the query)
    if offsets is None:
        return products[:, 0]
    starts = offsets[:-1]
    if modality == "image":
        best_patch: NDArray[np.float32] = np.maximum.reduceat(products, starts, axis=0)
        summed: NDArray[np.float32] = best_patch.sum(axis=1)
        return summed
    over_tokens: NDArray[np.float32] = np.add.reduceat(products.max(axis=1), starts)
    return over_tokens


def _best(
    ords: NDArray[np.int32], scores: NDArray[np.float32], k: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The ``k`` highest, equal scores by position."""
    order = np.lexsort((ords, -scores))[:k]
    return ords[order], scores[order]


def _blocks(
    store: EmbeddingStore, key: SetKey, language: str | None, translator: str | None
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int64] | None]]:
    """Positions, vectors as float32 and offsets, in bounded memory."""
    whose = {"encoder": key.encoder_fingerprint, "corpus": key.corpus_fingerprint, "window": _WINDOW[key.vectors]}
    filters = {"language": language, "translator": translator, "modality": key.modality}
    if key.vectors == "single":
        for block in store.iter_vectors(**whose, **filters):  # type: ignore[arg-type]
            yield block.ords, block.matrix, None
    else:
        for ragged in store.multivectors(**whose, **filters):  # type: ignore[arg-type]
            yield ragged.ords, ragged.values.astype(np.float32), ragged.offsets


def _exact(
    store: EmbeddingStore,
    key: SetKey,
    queries: list[NDArray[np.float32]],
    k: int,
    language: str | None,
    translator: str | None,
) -> list[tuple[NDArray[np.int32], NDArray[np.float32]]]:
    found = [(np.empty(0, np.int32), np.empty(0, np.float32)) for _ in queries]
    for ords, values, offsets in _blocks(store, key, language, translator):
        for number, query in enumerate(queries):
            scores = _scores(query, values, offsets, key.modality)
            known_ords, known_scores = found[number]
            found[number] = _best(np.concatenate([known_ords, ords]), np.concatenate([known_scores, scores]), k)
    return found


def _through_index(
    store: EmbeddingStore,
    key: SetKey,
    query: NDArray[np.float32],
    k: int,
    language: str | None,
    translator: str | None,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    name = table_of(key)
    table = store.connection.database.open_table(name)
    if not _is_indexed(table, key):
        raise RequestError(f"set {name!r} has no index: build one, or search exactly")
    column = _column(key)
    # Lance casts a query to the column's type; doing it here keeps its distances free of mixed-precision error.
    stored = query.astype(np.float16 if "halffloat" in str(table.schema.field(column).type) else np.float32)
    asked = table.search(stored[0] if key.vectors == "single" else stored, vector_column_name=column)
    asked = asked.metric("cosine").nprobes(50).limit(k * _CANDIDATES).select(["ord"])
    conditions = [
        f"{field} = {quoted(text)}" for field, text in (("language", language), ("translator", translator)) if text
    ]
    if conditions:
        asked = asked.where(" AND ".join(conditions), prefilter=True)
    with storage_faults(f"searching {name!r}"):
        ords = np.unique(asked.to_arrow().column("ord").to_numpy())
    rows = store.read_positions(key, ords)
    values = rows.values.astype(np.float32)
    offsets = None if key.vectors == "single" else rows.offsets
    return _best(rows.ords, _scores(query, values, offsets, key.modality), k)
