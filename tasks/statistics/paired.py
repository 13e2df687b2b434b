"""Intervals of differences between encoders that saw the same queries: their replicates, subtracted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.statistics.bootstrap import (
    TOO_FEW_CLUSTERS,
    Interval,
    bootstrap_replicates,
    check_request,
    interval_of,
    jackknife,
    one_value_suffices,
)
from tasks.statistics.clusters import Clusters, checked_values
from tasks.statistics.resampling import IntervalMethod
from tasks.statistics.statistic import Reduce, statistic_of


def paired_intervals(
    values: NDArray[np.float64],
    clusters: Clusters,
    pairs: Sequence[tuple[int, int]],
    *,
    seed: int,
    replicates: int = 10_000,
    level: float = 0.95,
    method: IntervalMethod = "percentile",
    reduce: Reduce = "mean",
) -> list[Interval]:
    """The difference of each pair of rows with its paired cluster-bootstrap interval.

    Every row is bootstrapped once; with shared draws the difference of two rows' replicates is the replicate of
    their difference, and the part that the queries have in common cancels.

    Args:
        values: Per-query values, shape ``(n_rows, n_queries)``.
        clusters: Of those queries.
        pairs: Rows to subtract: the first minus the second.
        seed: Of the draws.
        replicates: Number of draws.
        level: Of the intervals.
        method: ``percentile`` or ``bca``.
        reduce: How a row becomes one number.

    Returns:
        One :class:`Interval` per pair; its ends are None, with the reason, where the data cannot give them.

    Examples:
        >>> values = np.array([[1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0]])
        >>> [interval] = paired_intervals(values, Clusters.of([0, 1, 2, 3]), [(0, 1)], seed=1)
        >>> interval.value, interval.low, interval.high
        (0.25, 0.0, 0.75)
    """
    check_request(level=level, method=method)
    checked = checked_values(values, clusters)
    statistic = statistic_of(checked, clusters, reduce)
    estimates = statistic(np.ones((1, clusters.n_clusters), dtype=np.uint8))[:, 0]
    if clusters.n_occupied < 2:
        return [Interval(value=float(estimates[a] - estimates[b]), reason=TOO_FEW_CLUSTERS) for a, b in pairs]
    drawn = bootstrap_replicates(statistic, clusters.n_clusters, replicates=replicates, seed=seed)
    left_out = jackknife(statistic, clusters.n_clusters) if method == "bca" else None
    return [
        interval_of(
            float(estimates[a] - estimates[b]),
            drawn[a] - drawn[b],
            level=level,
            left_out=None if left_out is None else left_out[a] - left_out[b],
            one_value=one_value_suffices(reduce, clusters.n_occupied, level)
            and not np.array_equal(checked[a], checked[b]),
        )
        for a, b in pairs
    ]
