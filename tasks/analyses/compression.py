"""The cost of compressed vectors and approximate search, against exact search with the stored vectors.

A method keeps vectors in fewer bytes, or searches them without comparing all: it turns the items' vectors into an
:class:`Index`; queries stay in float32. All methods answer the same queries in one process. The results of a method are
not re-ranked: its loss is that of its own order. Torch is loaded when the first method is searched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.store.sets.search import KINDS, NPROBES, Index, indexed
from capim.store.vectors import Ragged
from capim.tasks.analyses.ablations import MOST_QUERIES, renumbered, sample_queries
from capim.tasks.analyses.analysis import AnalysisInput, Slice, as_change
from capim.tasks.analyses.transforms import BYTES, pooled, reach, token_trees
from capim.tasks.metrics import METRICS
from capim.tasks.metrics.table import headline_of
from capim.tasks.ranking.protocols import drawn_clusters
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import Interval, interval_of, paired_intervals

ANALYSIS = "approximate-search"
LATE_QUERIES = 400  # at most, for late interaction: a score costs thousands of times more than a dot product
POOLING_FACTORS = (2, 3, 4, 6)
_ABSENT = np.finfo(np.float32).min
_WINDOW = 64  # items that are widened to float32, or encoded, at a time


@dataclass(frozen=True, kw_only=True)
class Method:
    """One method at one setting; ``open`` builds it, and raises RequestError if it cannot be built."""

    name: str
    setting: str = ""
    open: Callable[[], AbstractContextManager[Index]]


def approximate_search(data: AnalysisInput) -> Iterator[Slice]:
    """Yield a slice per method and setting of every encoder with stored vectors, by the headline text-to-image metric.

    All items are in memory in their storage type, and all queries, or a sample of them, in float32.
    """
    if data.protocol.is_of_language or len(data.task.galleries) > 1:
        return
    [gallery] = data.task.galleries
    [(_, metric)] = headline_of([data.protocol])
    every = data.task.with_own_rows()
    for encoder in data.encoders:
        items = data.items(encoder, "image", gallery)
        if items is None:
            continue
        spec = data.specs[encoder]
        many = spec.vectors == "multi"
        task = sample_queries(every, LATE_QUERIES if many else MOST_QUERIES, seed=data.resampling.seed)
        queries = cast("Ragged", data.items(encoder, "caption", task.query_ords))
        queries = queries.with_values(queries.values.astype(np.float32))
        found = measured(methods_of(items, storage=spec.storage, many=many), queries, task, metric)
        clusters = Clusters.of(task.clusters, drawn_clusters(data.corpus, data.protocol), task.weights)
        yield from frontier(encoder, found, clusters, data.resampling, metric=metric, n_all_queries=len(every.queries))


class Measured(NamedTuple):
    """One method at one setting, on some queries.

    Attributes:
        values: The metric of every query, shape ``(n_queries,)``; empty if the method cannot be built.
        detail: Bytes per item, and seconds per query if all are given at once; empty if the method cannot be built.
    """

    method: Method
    values: NDArray[np.float64]
    detail: Mapping[str, float]
    reason: str = ""


def measured(methods: Iterable[Method], queries: Ragged, task: RetrievalTask, metric: str) -> Iterator[Measured]:
    """Yield the measurements of every method in turn; the first one is exact search.

    Args:
        methods: Methods over the items of the task's one gallery, numbered from 0.
        queries: float32 vectors of the task's queries, in its order.
        task: Text to image.
    """
    for method in methods:
        try:
            with method.open() as index:
                index.scores(queries.slice(0, 1))  # the preparations of a first search are not counted
                ready = time.perf_counter()
                scores = index.scores(queries)
                seconds = (time.perf_counter() - ready) / len(queries)
        except RequestError as error:
            yield Measured(method, np.empty(0), {}, str(error))
            continue
        detail = {"bytes_per_item": index.bytes_per_item, "seconds_per_query": seconds}
        yield Measured(method, _values(scores, task, metric), detail)


def _values(scores: NDArray[np.float32], task: RetrievalTask, metric: str) -> NDArray[np.float64]:
    """Return the metric of every query. A relevant item that the method does not return ranks after all other items."""
    from capim.tasks.ranking.ranker import retrieval_outcomes, rows_of_table

    absent = np.isneginf(scores)
    if absent.any():
        scores = np.where(absent, _ABSENT / 2, scores)
        pairs = task.query_of_relevant, task.relevant
        scores[pairs] = np.where(absent[pairs], _ABSENT, scores[pairs])
    [outcomes] = retrieval_outcomes(rows_of_table(scores), [renumbered(task)]).values()
    return METRICS[metric].per_query(outcomes)


def frontier(
    encoder: str,
    found: Iterable[Measured],
    clusters: Clusters,
    resampling: Resampling,
    *,
    metric: str,
    n_all_queries: int,
) -> Iterator[Slice]:
    """Yield a slice per method and setting: its metric, and its change from exact search with the paired interval.

    Args:
        n_all_queries: Number of queries that these are a sample of.
    """
    rows = list(found)
    built = [row for row in rows if not row.reason]
    values = np.stack([row.values for row in built])
    means = [interval_of(row, clusters, resampling, bounds=METRICS[metric].bounds) for row in values]
    changes = paired_intervals(values, clusters, [(at, 0) for at in range(len(built))], resampling)
    intervals = iter(zip(means, changes, strict=True))
    for row in rows:
        detail: dict[str, object] = {"n_all_queries": n_all_queries, **row.detail}
        mean = Interval(value=float("nan"), reason=row.reason)
        if not row.reason:
            mean, change = next(intervals)
            detail |= as_change(change)
        figure, counts = (encoder, ANALYSIS, row.method.name, metric), (len(values[0]), clusters.n_occupied)
        yield Slice(*figure, mean, *counts, level_name=row.method.setting, detail=detail)


def methods_of(items: Ragged, *, storage: str, many: bool) -> Iterator[Method]:
    """Yield exact search, then every setting of the methods that apply to these items.

    Args:
        items: Unit vectors, numbered from 0.
        storage: Their storage type.
        many: True if an item may have several vectors; if not, methods for several are left out.
    """
    yield Method(name="exact", open=partial(_kept, items, storage, many=many))
    if many:
        for name, like in (("pooling", False), ("colpali_engine pooling", True)):
            trees = cache(partial(token_trees, items, like_colpali_engine=like))
            for factor in POOLING_FACTORS:
                yield Method(name=name, setting=f"1 of {factor}", open=partial(_pooled, items, trees, factor, storage))
    yield Method(name="int8", open=partial(_int8, items, many=many))
    for setting, both in (("items", False), ("items and queries", True)):
        yield Method(name="binary", setting=setting, open=partial(_binary, items, many=many, both=both))
    for name in KINDS:
        setting = f"{NPROBES} partitions read"
        yield Method(name=name, setting=setting, open=partial(indexed, items, name, many=many))


def _kept(items: Ragged, storage: str, *, many: bool) -> AbstractContextManager[Index]:
    n_bytes = BYTES[storage] * items.values.size / len(items)
    return nullcontext(Index(n_bytes, partial(_scores, lambda: _windows(items), len(items), many=many)))


def _pooled(
    items: Ragged, trees: Callable[[], list[NDArray[np.float64]]], factor: int, storage: str
) -> AbstractContextManager[Index]:
    merged = pooled(items, trees(), factor)
    return _kept(merged.with_values(merged.values.astype(items.values.dtype)), storage, many=True)


def _int8(items: Ragged, *, many: bool) -> AbstractContextManager[Index]:
    """Store components in 255 steps up to their largest absolute value among the items; the steps scale the queries."""
    step = np.maximum(reach(items.values, items.values[:1]).astype(np.float32), np.finfo(np.float32).tiny) / 127
    codes = np.concatenate([np.rint(block.values / step).astype(np.int8) for block in _windows(items)])
    stored = items.with_values(codes)  # widened to float32 by the scorer

    def scores(queries: Ragged) -> NDArray[np.float32]:
        return _scores(lambda: _windows(stored), len(items), queries.with_values(queries.values * step), many=many)

    return nullcontext(Index(codes.nbytes / len(items), scores))


def _binary(items: Ragged, *, many: bool, both: bool) -> AbstractContextManager[Index]:
    """Store the sign of each component, eight in a byte; they are unpacked to 1 and -1 for comparison."""
    dim = items.values.shape[1]
    bits = np.packbits(items.values > 0, axis=1)

    def unpacked() -> Iterator[Ragged]:
        for block in _windows(items):
            first = items.offsets[block.ords[0]]
            packed = bits[first : first + len(block.values)]
            signs = 2 * np.unpackbits(packed, axis=1, count=dim).astype(np.int8) - 1
            yield block.with_values(signs)  # type: ignore[arg-type]  # widened to float32 by the scorer

    def scores(queries: Ragged) -> NDArray[np.float32]:
        signs = np.where(queries.values > 0, np.float32(1), np.float32(-1))
        return _scores(unpacked, len(items), queries.with_values(signs) if both else queries, many=many)

    return nullcontext(Index(bits.nbytes / len(items), scores))


def _windows(items: Ragged) -> Iterator[Ragged]:
    return (items.slice(start, start + _WINDOW) for start in range(0, len(items), _WINDOW))


def _scores(
    blocks: Callable[[], Iterable[Ragged]], n_items: int, queries: Ragged, *, many: bool
) -> NDArray[np.float32]:
    """Return MaxSim of float32 queries with all items, or the dot products of single vectors."""
    from capim.tasks.ranking.cosine import score_blocks
    from capim.tasks.ranking.maxsim_products import maxsim_scores

    if many:
        return maxsim_scores(blocks, queries, range(n_items))
    widened = np.concatenate([block.values.astype(np.float32) for block in blocks()])
    return np.concatenate([rows.scores.numpy().copy() for rows in score_blocks(queries.values, widened)])
