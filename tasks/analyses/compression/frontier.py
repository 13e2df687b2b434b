"""What every method loses against exact search, what it takes, and how deep exact re-ranking has to go.

All methods answer the same queries in one process. A method is not re-ranked itself: its loss is that of its own order,
and ``depth`` says how many of its first items exact scores have to order again for the result of exact search.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.store.values import Ragged
from capim.tasks.analyses.ablations.forms import renumbered
from capim.tasks.analyses.compression.methods import Method
from capim.tasks.analyses.slices import Slice
from capim.tasks.metrics import METRICS
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.intervals import ClusteredValues, Interval, bootstrap_samples, paired_intervals
from capim.tasks.statistics.resampling import Resampling

ANALYSIS = "ann"
BEST = 10  # items of a result
DEPTHS = (10, 20, 50, 100)
_ABSENT = np.finfo(np.float32).min


class Measured(NamedTuple):
    """One method at one setting, on some queries.

    Attributes:
        values: The metric of every query, shape ``(n_queries,)``; empty where the method cannot be built.
        depths: From :func:`depths_of`, same shape.
        detail: Bytes per item, and seconds per query where all are given at once; empty likewise.
    """

    method: Method
    values: NDArray[np.float64]
    depths: NDArray[np.float64]
    detail: Mapping[str, float]
    reason: str = ""


def measured(methods: Iterable[Method], queries: Ragged, task: RetrievalTask, metric: str) -> Iterator[Measured]:
    """Every method in turn; the first one is exact search.

    Args:
        methods: Over the items of the task's one gallery, numbered from 0.
        queries: float32 vectors of the task's queries, in its order.
        task: Text to image.
    """
    exact: NDArray[np.float32] | None = None
    for method in methods:
        try:
            with method.open() as index:
                index.scores(queries.slice(0, 1))  # what a first search prepares is not counted
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
    """How many of a method's first items hold the exact ``best`` ones; infinite if it does not return one of these.

    So many have to be scored exactly for the exact result.

    Equal scores of the method are in corpus order. Of items that tie with the last of the exact result, any will do.

    Args:
        scores: Of the method, shape ``(n_queries, n_items)``; ``-inf`` where it does not return an item.
        exact: The exact scores, same shape.
        best: Items of a result; all where there are fewer.

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
    """The metric of every query. A relevant item that the method does not return comes after all other items."""
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
    threads: int,
) -> list[Slice]:
    """A slice per method and setting: its metric, and its change from exact search with the paired interval.

    Args:
        n_all_queries: Queries that these are a sample of.
        threads: That scores are computed on.
    """
    rows = list(found)
    built = [row for row in rows if not row.reason]
    values = np.stack([row.values for row in built])
    [means] = bootstrap_samples([ClusteredValues(values, clusters)], resampling)
    changes = paired_intervals(values, clusters, [(at, 0) for at in range(len(built))], resampling)
    intervals = {id(row): each for row, *each in zip(built, means, changes, strict=True)}
    slices = []
    for row in rows:
        detail: dict[str, object] = {"n_all_queries": n_all_queries, "threads": threads, **row.detail}
        mean = Interval(value=float("nan"), reason=row.reason)
        if not row.reason:
            mean, change = intervals[id(row)]
            detail |= {"change": change.value, "change_low": change.low, "change_high": change.high}
            detail |= {f"equal_at_{depth}": float((row.depths <= depth).mean()) for depth in DEPTHS}
            deepest = row.depths.max()
            detail["depth"] = int(deepest) if np.isfinite(deepest) else None
        slices.append(
            Slice(
                encoder=encoder,
                analysis=ANALYSIS,
                feature=row.method.name,
                level_name=row.method.setting,
                metric=metric,
                interval=mean,
                n_queries=len(values[0]),
                n_clusters=clusters.n_occupied,
                detail=detail,
            )
        )
    return slices
