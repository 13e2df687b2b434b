"""Statistics of a weighted sample of clusters: the functions that a bootstrap or a permutation test evaluates.

A :data:`ClusterStatistic` maps cluster weights to the metrics of that sample. The weights are small whole numbers:
bootstrap counts, ones for the sample itself, ones with a zero for the jackknife, zeros and ones for a permutation. Any
function of this form can be bootstrapped; sums of metrics (RSUM), macro means and ratios are one line each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capim.tasks.statistics.clusters import Clusters, checked_values
from capim.tasks.statistics.draws import narrowed, on_grid, weighted_sums

Aggregate: TypeAlias = Callable[[NDArray[np.float64]], float]
"""Values of some queries, shape ``(n_queries, ...)`` -> one number; NaN where it is not defined."""
Reduce: TypeAlias = Literal["mean", "median"] | Aggregate
REDUCTIONS = ("mean", "median")
ClusterStatistic: TypeAlias = Callable[[NDArray[np.uint8]], NDArray[np.float64]]
"""Weights, uint8 of shape ``(n_samples, n_clusters)`` -> values of shape ``(n_metrics, n_samples)``; NaN if empty."""


class ClusteredValues(NamedTuple):
    """Per-query values of several metrics, shape ``(n_metrics, n_queries)``, and the clusters of these queries.

    For an aggregate a query may have several numbers: shape ``(n_metrics, n_queries, ...)``.
    """

    values: ArrayLike
    clusters: Clusters


def statistic_of(values: ArrayLike, clusters: Clusters, reduce: Reduce = "mean") -> ClusterStatistic:
    """The statistic that reduces per-query values, shape ``(n_metrics, n_queries)``: mean, median or aggregate.

    A mean is weighted, over the queries of the drawn clusters: a ratio of sums, as clusters differ in size.

    Raises:
        ValueError: Values that do not fit the clusters.

    Examples:
        >>> means = statistic_of([[1.0, 0.0, 1.0]], Clusters.of([0, 0, 1]))
        >>> means(np.uint8([[1, 1], [0, 2], [1, 0]])).tolist()
        [[0.6666666666666666, 1.0, 0.5]]
    """
    return stacked_statistic([ClusteredValues(values, clusters)], reduce)


def stacked_statistic(samples: Sequence[ClusteredValues], reduce: Reduce = "mean") -> ClusterStatistic:
    """The figures of several samples of one corpus, one after the other; means by one product of matrices.

    Raises:
        ValueError: Samples of corpora with different numbers of clusters, or values that do not fit their clusters.

    Examples:
        >>> first, second = Clusters.of([0, 0, 1]), Clusters.of([0, 1])
        >>> means = stacked_statistic([ClusteredValues([1, 0, 1], first), ClusteredValues([[1, 0], [0, 0]], second)])
        >>> means(np.uint8([[0, 2]])).tolist()
        [[1.0], [0.0], [0.0]]
    """
    if len({sample.clusters.n_clusters for sample in samples}) != 1:
        raise ValueError("samples that share their draws must have the same n_clusters: the images of one corpus")
    if not callable(reduce) and reduce not in REDUCTIONS:
        raise ValueError(f"reduce must be 'mean' or 'median', got {reduce!r}; or a function of the values")
    if reduce != "mean":
        parts = [
            cluster_aggregates(values, clusters, reduce) if callable(reduce) else cluster_medians(values, clusters)
            for values, clusters in samples
        ]
        return lambda weights: np.concatenate([of_sample(weights) for of_sample in parts])
    n_clusters = samples[0].clusters.n_clusters
    columns: list[NDArray[np.float64]] = []
    positions: dict[bytes, int] = {}  # samples of the same queries share the column of their total weights
    sums_at: list[int] = []
    totals_at: list[int] = []
    for values, clusters in samples:
        sums = clusters.sums(checked_values(values, clusters)).T
        total = on_grid(clusters.totals, weight=n_clusters)
        position = positions.setdefault(total.tobytes(), len(columns))
        if position == len(columns):
            columns.append(total)
        sums_at += range(len(columns), len(columns) + len(sums))
        totals_at += [position] * len(sums)
        columns += [on_grid(column, weight=n_clusters) for column in sums]
    table = narrowed(np.column_stack(columns), weight=n_clusters)

    def means(weights: NDArray[np.uint8]) -> NDArray[np.float64]:
        summed = weighted_sums(weights, table).T
        with np.errstate(invalid="ignore"):
            divided: NDArray[np.float64] = summed[sums_at] / summed[totals_at]
        return divided

    return means


def cluster_aggregates(values: ArrayLike, clusters: Clusters, aggregate: Aggregate) -> ClusterStatistic:
    """Any function of the queries of the drawn clusters, each query as often as its cluster was drawn.

    Weights play no part, as in a median. ``values`` have the shape ``(n_metrics, n_queries, ...)``.

    Raises:
        ValueError: Values of another number of queries than the clusters have.

    Examples:
        >>> ranges = cluster_aggregates([[1.0, 4.0, 10.0]], Clusters.of([0, 0, 1]), np.ptp)
        >>> ranges(np.uint8([[1, 1], [0, 2], [1, 0]])).tolist()
        [[9.0, 0.0, 3.0]]
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim < 2 or table.shape[1] != clusters.n_queries:
        raise ValueError(f"values have shape {table.shape}, but the clusters are those of {clusters.n_queries} queries")
    positions = np.arange(clusters.n_queries)

    def aggregates(weights: NDArray[np.uint8]) -> NDArray[np.float64]:
        found = np.full((len(table), len(weights)), np.nan)
        for sample, counts in enumerate(weights):
            drawn = np.repeat(positions, counts[clusters.labels])
            if len(drawn):
                found[:, sample] = [aggregate(row[drawn]) for row in table]
        return found

    return aggregates


def cluster_medians(values: ArrayLike, clusters: Clusters) -> ClusterStatistic:
    """The median over the queries of the drawn clusters; of an even number, the mean of the middle two.

    Weights play no part in a median: every query counts once.

    Examples:
        >>> medians = cluster_medians([[1.0, 4.0, 10.0]], Clusters.of([0, 0, 1]))
        >>> medians(np.uint8([[1, 1], [0, 2], [1, 0]])).tolist()
        [[4.0, 10.0, 2.5]]
    """
    rows = [np.unique(row, return_inverse=True) for row in checked_values(values, clusters)]

    def medians(weights: NDArray[np.uint8]) -> NDArray[np.float64]:
        return np.stack([_weighted_median(levels, at, clusters, weights) for levels, at in rows])

    return medians


def _weighted_median(
    levels: NDArray[np.float64], at: NDArray[np.intp], clusters: Clusters, weights: NDArray[np.uint8]
) -> NDArray[np.float64]:
    """Medians of one metric, from counts of queries at or below each of its distinct values.

    Only the levels near the middle are counted; the window doubles until it holds the middle of every sample.
    ``levels`` are the distinct values, ascending; ``at`` is the level of every query, shape ``(n_queries,)``.
    """
    total = weights @ clusters.sizes  # whole numbers in int64
    middle, half = int(np.median(at)), 8
    while True:
        first, last = max(0, middle - half), min(len(levels) - 1, middle + half)
        counts = narrowed(clusters.counts_up_to(at, first, last), weight=clusters.n_clusters)
        medians = medians_in_window(weighted_sums(weights, counts), total, levels, first)
        if medians is not None:
            medians[total == 0] = np.nan
            return medians
        half *= 2


def medians_in_window(
    below: NDArray[np.float64], total: NDArray[np.int64], levels: NDArray[np.float64], first: int
) -> NDArray[np.float64] | None:
    """Medians from counts of queries; None if the window of levels does not hold the middle of every sample.

    Args:
        below: Queries at or below each level of the window, shape ``(n_samples, n_levels_of_the_window)``.
        total: Queries of each sample, shape ``(n_samples,)``.
        levels: All distinct values, ascending.
        first: Position in ``levels`` of the first level of the window.
    """
    lower, upper = (total + 1) // 2, total // 2 + 1  # positions of the middle two, from 1
    width = below.shape[1]
    holds_lower = first == 0 or bool((below[:, 0] < lower).all())
    holds_upper = first + width == len(levels) or bool((below[:, -1] >= upper).all())
    if not (holds_lower and holds_upper):
        return None
    of_lower, of_upper = (
        levels[first + np.minimum((below < position[:, None]).sum(axis=1), width - 1)] for position in (lower, upper)
    )
    medians: NDArray[np.float64] = (of_lower + of_upper) / 2
    return medians
