"""The cost of compressed vectors and approximate search, against exact search with the stored vectors.

A method keeps vectors in fewer bytes, or searches them without comparing all: it turns the items' vectors into an
:class:`Index`; queries stay in float32. All methods answer the same queries in one process. The results of a method are
not re-ranked: its loss is that of its own order, and ``depth`` is the number of its first items that exact scores have
to re-rank for the result of exact search. Torch is loaded when the first method is searched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from capim.store.errors import RequestError
from capim.store.sets.search import KINDS, NPROBES, Index, indexed
from capim.store.vectors import Ragged
from capim.tasks.analyses.ablations import MOST_QUERIES, renumbered, sample_queries
from capim.tasks.analyses.analysis import AnalysisInput, Matrix, Slice, as_change
from capim.tasks.analyses.transforms import BYTES, pooled, reach, token_trees
from capim.tasks.metrics import METRICS
from capim.tasks.metrics.table import headline_of
from capim.tasks.ranking.drawn import drawn_clusters
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import Interval, interval_of, paired_intervals

ANALYSIS = "approximate-search"
LATE_QUERIES = 400  # at most, for late interaction: a score costs thousands of times more than a dot product
POOLING_FACTORS = (2, 3, 4, 6)
BEST = 10  # items of a result
DEPTHS = (10, 20, 50, 100)
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
    every, seed = data.task.with_own_rows(), data.resampling.seed
    for encoder in data.encoders:
        items = data.items(encoder, "image", gallery)
        if items is None:
            continue
        spec = data.specs[encoder]
        many = spec.vectors == "multi"
        task = sample_queries(every, LATE_QUERIES if many else MOST_QUERIES, seed=seed)
        queries = cast("Ragged", data.items(encoder, "caption", task.query_ords))
        queries = queries.with_values(queries.values.astype(np.float32))
        found = measured(methods_of(items, storage=spec.storage, many=many, seed=seed), queries, task, metric)
        clusters = Clusters.of(task.clusters, drawn_clusters(data.corpus, data.protocol), task.weights)
        yield from frontier(encoder, found, clusters, data.resampling, metric=metric, n_all_queries=len(every.queries))


class Measured(NamedTuple):
    """One method at one setting, on some queries.

    Attributes:
        values: The metric of every query, shape ``(n_queries,)``; empty if the method cannot be built.
        depths: From :func:`depths_of`, same shape.
        detail: Bytes per item, and seconds per query if all are given at once; empty if the method cannot be built.
    """

    method: Method
    values: NDArray[np.float64]
    depths: NDArray[np.float64]
    detail: Mapping[str, float]
    reason: str = ""


def measured(methods: Iterable[Method], queries: Ragged, task: RetrievalTask, metric: str) -> Iterator[Measured]:
    """Yield the measurements of every method in turn; the first one is exact search.

    Args:
        methods: Methods over the items of the task's one gallery, numbered from 0.
        queries: float32 vectors of the task's queries, in its order.
        task: Text to image.
    """
    exact: NDArray[np.float32] | None = None
    for method in methods:
        try:
            with method.open() as index:
                index.scores(queries.slice(0, 1))  # the preparations of a first search are not counted
                ready = time.perf_counter()
                scores = index.scores(queries)
                seconds = (time.perf_counter() - ready) / len(queries)
        except RequestError as error:
            yield Measured(method, np.empty(0), np.empty(0), {}, str(error))
            continue
        exact = scores if exact is None else exact
        detail = {"bytes_per_item": index.bytes_per_item, "seconds_per_query": seconds}
        yield Measured(method, _values(scores, task, metric), depths_of(scores, exact), detail)


def depths_of(scores: NDArray[np.float32], exact: NDArray[np.float32], *, best: int = BEST) -> NDArray[np.float64]:
    """Return how many of a method's first items include the exact ``best`` ones; infinite if it lacks one of these.

    So many have to be scored exactly for the exact result.

    Equal scores of the method are in corpus order. Items that tie with the last of the exact result are
    interchangeable.

    Args:
        scores: Scores of the method, shape ``(n_queries, n_items)``; ``-inf`` for items that it does not return.
        exact: The exact scores, same shape.
        best: Number of items in a result; all if there are fewer.

    Examples:
        >>> exact = np.float32([[4, 3, 2, 1]])
        >>> methods = np.float32([[4, 3, 2, 1], [4, 1, 3, 2], [9, -np.inf, 1, 1]])
        >>> [depths_of(row[None], exact, best=2).tolist() for row in methods]
        [[2.0], [4.0], [inf]]
    """
    best = min(best, exact.shape[1])
    places = np.empty(exact.shape)
    order = np.argsort(-scores, axis=1, kind="stable")
    np.put_along_axis(places, order, np.arange(1.0, exact.shape[1] + 1)[None], axis=1)
    places[np.isneginf(scores)] = np.inf
    last = np.partition(exact, exact.shape[1] - best, axis=1)[:, exact.shape[1] - best, None]
    above = np.where(exact > last, places, 0).max(axis=1)
    enough = np.partition(np.where(exact >= last, places, np.inf), best - 1, axis=1)[:, best - 1]
    deepest: NDArray[np.float64] = np.maximum(above, enough)
    return deepest


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
            detail |= {f"equal_at_{depth}": float((row.depths <= depth).mean()) for depth in DEPTHS}
            deepest = row.depths.max()
            detail["depth"] = int(deepest) if np.isfinite(deepest) else None
        figure, counts = (encoder, ANALYSIS, row.method.name, metric), (len(values[0]), clusters.n_occupied)
        yield Slice(*figure, mean, *counts, level_name=row.method.setting, detail=detail)


def methods_of(items: Ragged, *, storage: str, many: bool, seed: int) -> Iterator[Method]:
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
    if many:
        for encoding in ENCODINGS:
            shape = f"{encoding.repetitions} x {2**encoding.planes} x {encoding.inner}"
            setting = f"{shape} to {encoding.final}" if encoding.final else shape
            yield Method(name="muvera", setting=setting, open=partial(_encoded, items, replace(encoding, seed=seed)))
    for name in KINDS:
        setting = f"{NPROBES} partitions read"
        yield Method(name=name, setting=setting, open=partial(indexed, items, name, many=many))
    if many:
        from capim.tasks.ranking.maxsim import plaid

        yield Method(name="fast-plaid", open=partial(plaid, items, seed=seed))


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


def _encoded(items: Ragged, encoding: FixedEncoding) -> AbstractContextManager[Index]:
    encodings = encoding.of_items(items)
    return nullcontext(Index(encodings.nbytes / len(items), lambda queries: encoding.of_queries(queries) @ encodings.T))


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


@dataclass(frozen=True, kw_only=True)
class FixedEncoding:
    """Fixed dimensional encodings: one vector per item with dot products that estimate MaxSim.

    MUVERA: Multi-Vector Retrieval via Fixed Dimensional Encodings, Dhulipala et al., 2024 (arXiv 2405.19504),
    section 2. Encodings of equal fields are equal.

    In every repetition, ``planes`` random hyperplanes divide the space (SimHash). A query's encoding holds the sum of
    its vectors in each part, an item's their mean; an item's empty part gets the vector on
    the other side of the fewest planes (the first of several). Each of these is projected to ``inner`` random signs.

    Attributes:
        repetitions: Number of independent partitions; their encodings are concatenated.
        planes: Number of hyperplanes of one partition, which has ``2 ** planes`` parts.
        inner: Number of components that every part is projected to; None keeps all.
        final: Number of components of a final count sketch of the whole (section 2, final projections); None: no
            sketch.
    """

    repetitions: int
    planes: int
    inner: int | None
    final: int | None = None
    seed: int = 0

    def of_queries(self, vectors: Ragged) -> Matrix:
        """Return encodings of queries, float32, shape ``(n_queries, n_components)``."""
        return self._encoded(vectors, items=False)

    def of_items(self, vectors: Ragged) -> Matrix:
        """Return encodings of items, float32, shape ``(n_items, n_components)``.

        The dot product with a query's encoding, divided by ``repetitions`` here, estimates their MaxSim.
        """
        return self._encoded(vectors, items=True) / np.float32(self.repetitions)

    def _encoded(self, vectors: Ragged, *, items: bool) -> Matrix:
        dim = vectors.values.shape[1]
        rng = np.random.default_rng(self.seed)
        normals = rng.standard_normal((self.repetitions, dim, self.planes)).astype(np.float32)
        inner = self.inner or dim
        signs = _signs(rng, self.repetitions, dim, inner) / np.float32(np.sqrt(inner))
        n_components = self.repetitions * 2**self.planes * inner
        sketch = sparse.eye(n_components, dtype=np.float32, format="csr")
        if self.final is not None:
            target = rng.integers(self.final, size=n_components)
            cells = np.arange(n_components), target
            sketch = sparse.csr_matrix((_signs(rng, n_components), cells), (n_components, self.final))
        encoded = np.empty((len(vectors), sketch.shape[1]), dtype=np.float32)
        for start in range(0, len(vectors), _WINDOW):
            block = vectors.slice(start, start + _WINDOW)
            values = block.values.astype(np.float32)
            parts = [
                _repetition(block, values @ planes > 0, values if self.inner is None else values @ sign, items=items)
                for planes, sign in zip(normals, signs, strict=True)
            ]
            encoded[start : start + len(block)] = np.concatenate(parts, axis=1) @ sketch
        return encoded


def _signs(rng: np.random.Generator, *shape: int) -> Matrix:
    return rng.choice(np.array([-1, 1], np.float32), shape)


def _repetition(block: Ragged, sides: NDArray[np.bool_], projected: Matrix, *, items: bool) -> Matrix:
    """Return one repetition of a few items or queries: shape ``(n_items, n_parts * n_components)``.

    Args:
        sides: Side of every plane for each vector, shape ``(n_vectors, planes)``.
        projected: The vectors, projected, shape ``(n_vectors, n_components)``.
        items: True for items (means, and vectors in empty parts), else sums.
    """
    n, n_vectors, n_parts = len(block), len(projected), 2 ** sides.shape[1]
    codes = sides @ (1 << np.arange(sides.shape[1]))
    cells = np.repeat(np.arange(n), block.counts) * n_parts + codes
    sums = sparse.csr_matrix((np.ones(n_vectors, np.float32), (cells, np.arange(n_vectors))), (n * n_parts, n_vectors))
    filled: Matrix = sums @ projected
    if items:
        counts = np.bincount(cells, minlength=n * n_parts)
        filled /= np.maximum(counts, 1)[:, None]
        first = np.full(n * n_parts, -1)
        first[cells[::-1]] = np.arange(n_vectors)[::-1]
        numbers = np.arange(n_parts)
        apart = np.bitwise_count(numbers[:, None] ^ numbers).astype(np.int64)  # planes between two parts
        # the nearest part with vectors; among several, the one with the earliest vector
        far = np.iinfo(np.int64).max
        order = np.where(first < 0, far, first).reshape(n, 1, n_parts)
        order = np.where(order < far, order + apart * (n_vectors + 1), far)
        nearest = order.argmin(axis=2) + np.arange(n)[:, None] * n_parts
        filled = np.where((counts == 0)[:, None], projected[first[nearest.ravel()]], filled)
    return filled.reshape(n, -1)


ENCODINGS = (  # (repetitions, planes, inner): result 3 of the paper; the last one also with a final projection
    FixedEncoding(repetitions=20, planes=3, inner=8),
    FixedEncoding(repetitions=20, planes=4, inner=8),
    FixedEncoding(repetitions=20, planes=5, inner=16),
    FixedEncoding(repetitions=20, planes=5, inner=16, final=2560),
)
