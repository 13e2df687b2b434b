"""Approximate nearest neighbours against exact retrieval: what an index loses, and what it gains in speed.

An index is a function ``(queries, k) -> ords``; the store's are LanceDB's. Headline metrics never come from an index.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.tasks import RetrievalTask

# float32 queries (n, dim) and k -> int32 ords (n, k), best first, -1 where the index gives fewer
Search: TypeAlias = Callable[[NDArray[np.float32], int], NDArray[np.int32]]


class Approximation(NamedTuple):
    """One index at one setting.

    Attributes:
        name: The index and its settings.
        k: Length of the lists.
        recall: Share of the exact top ``k`` that the index found, mean over queries (an item that ties with the
            ``k``-th counts as one of them).
        hit: Share of queries with a relevant item in the index' top ``k``.
        exact_hit: The same by exact search, ties in corpus order as in the index.
        queries_per_second: Over all queries, in batches as given.
        p95_seconds: 95th percentile of it.
        batch: Queries per call.
    """

    name: str
    k: int
    recall: float
    hit: float
    exact_hit: float
    queries_per_second: float
    p95_seconds: float
    batch: int

    @property
    def hit_change(self) -> float:
        """R@k with the index minus R@k by exact search."""
        return self.hit - self.exact_hit


def measure(
    search: Search,
    queries: NDArray[np.float32],
    exact: Outcomes,
    task: RetrievalTask,
    *,
    name: str,
    ks: Sequence[int] = (1, 5, 10),
    batch: int = 1,
    warmup: int = 10,
) -> list[Approximation]:
    """Search every query through an index and compare with the exact outcomes.

    Args:
        search: The index.
        queries: float32 unit vectors, one per query of the task, in its order.
        exact: Outcomes of the same vectors, with lists at least as long as the largest k.
        task: The task of these outcomes.
        name: Name of the index in the rows.
        ks: List lengths; one search at the largest serves all.
        batch: Queries per call: 1 measures latency, more measure throughput.
        warmup: Number of batches that are searched first and not timed.

    Returns:
        One row per k.

    Raises:
        ValueError: Numbers of queries that differ, lists that are too short, or an index that gives lists of another
            shape.
    """
    longest = max(ks)
    if exact.top_ords is None or exact.top_scores is None or exact.top_ords.shape[1] < longest:
        raise ValueError(f"{name}: exact lists of at least {longest} items are needed")
    if not len(queries) == len(exact) == len(task.queries):
        raise ValueError(
            f"{name}: expected vectors and outcomes of {len(task.queries)} queries, got {len(queries)} and {len(exact)}"
        )
    for start in range(0, min(len(queries), warmup * batch), batch):
        search(queries[start : start + batch], longest)
    seconds, parts = [], []
    for start in range(0, len(queries), batch):
        started = time.perf_counter()
        parts.append(search(queries[start : start + batch], longest))
        seconds.append(time.perf_counter() - started)
    found = np.concatenate(parts)
    if found.shape != (len(queries), longest):
        raise ValueError(f"{name} returned lists of shape {found.shape}, expected {(len(queries), longest)}")
    return [
        Approximation(
            name=name,
            k=k,
            recall=_recall(found[:, :k], exact.top_ords, exact.top_scores, k),
            hit=_hit(found[:, :k], task),
            exact_hit=_hit(exact.top_ords[:, :k], task),
            queries_per_second=len(queries) / sum(seconds),
            p95_seconds=float(np.percentile(seconds, 95)),
            batch=batch,
        )
        for k in ks
    ]


def _recall(found: NDArray[np.int32], ords: NDArray[np.int32], scores: NDArray[np.float32], k: int) -> float:
    """Items of the exact list with at least the k-th score are right, but no more than k of them count."""
    right = scores >= scores[:, k - 1 : k]
    hits = ((found[:, :, None] == ords[:, None, :]) & right[:, None, :]).any(axis=2).sum(axis=1)
    return float(np.minimum(hits, k).mean() / k)


def _hit(lists: NDArray[np.int32], task: RetrievalTask) -> float:
    query = task.query_of_relevant
    hits = (lists[query] == task.relevant[:, None]).any(axis=1)
    return float((np.bincount(query[hits], minlength=len(lists)) > 0).mean())
