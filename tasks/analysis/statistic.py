"""Statistics of a weighted sample of clusters: what a bootstrap or a permutation evaluates.

A :data:`ClusterStatistic` takes how often each cluster counts and gives the metrics of that sample. The weights
are whole numbers: bootstrap counts, ones for the sample itself, ones with a zero for a jackknife, zeros and
ones for a permutation. Any function of this form can be bootstrapped; sums of metrics (RSUM), macro means and
ratios are one line each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasks.analysis.clusters import Clusters, checked_values
from tasks.analysis.draws import on_grid

Reduce: TypeAlias = Literal["mean", "median"]
ClusterStatistic: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Weights of shape ``(n_samples, n_clusters)`` -> values of shape ``(n_metrics, n_samples)``; NaN: an empty sample."""


def statistic_of(values: ArrayLike, clusters: Clusters, reduce: Reduce = "mean") -> ClusterStatistic:
    """The statistic that reduces per-query values by their mean or median.

    Args:
        values: Shape ``(n_metrics, n_queries)``.
        clusters: Of those queries.
        reduce: How one number is made of one row of values.

    Raises:
        ValueError: An unknown reduction, or values that do not fit the clusters.
    """
    match reduce:
        case "mean":
            return cluster_means(values, clusters)
        case "median":
            return cluster_medians(values, clusters)
    raise ValueError(f"reduce must be 'mean' or 'median', got {reduce!r}")


def cluster_means(values: ArrayLike, clusters: Clusters) -> ClusterStatistic:
    """The weighted mean over the queries of the drawn clusters: a ratio of sums, as clusters differ in size.

    Examples:
        >>> means = cluster_means([[1.0, 0.0, 1.0]], Clusters.of([0, 0, 1]))
        >>> means(np.array([[1.0, 1.0], [0.0, 2.0], [1.0, 0.0]])).tolist()
        [[0.6666666666666666, 1.0, 0.5]]
    """
    rows = np.vstack([checked_values(values, clusters), np.ones(clusters.n_queries)])
    columns = np.column_stack([on_grid(column, weight=clusters.n_clusters) for column in clusters.sums(rows).T])

    def means(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        totals = weights @ columns
        with np.errstate(invalid="ignore"):
            return np.ascontiguousarray((totals[:, :-1] / totals[:, -1:]).T)

    return means


def cluster_medians(values: ArrayLike, clusters: Clusters) -> ClusterStatistic:
    """The median over the queries of the drawn clusters; of an even number, the mean of the middle two.

    Weights play no part in a median: every query counts once.

    Examples:
        >>> medians = cluster_medians([[1.0, 4.0, 10.0]], Clusters.of([0, 0, 1]))
        >>> medians(np.array([[1.0, 1.0], [0.0, 2.0], [1.0, 0.0]])).tolist()
        [[4.0, 10.0, 2.5]]
    """
    rows = [np.unique(row, return_inverse=True) for row in checked_values(values, clusters)]

    def medians(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.stack([_weighted_median(levels, at, clusters, weights) for levels, at in rows])

    return medians


def _weighted_median(
    levels: NDArray[np.float64], at: NDArray[np.intp], clusters: Clusters, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Medians of one metric, from counts of queries at or below each of its distinct values.

    Only the levels near the middle are counted; the window doubles until it holds the middle of every sample.

    Args:
        levels: The distinct values, ascending, shape ``(n_levels,)``.
        at: The level of every query, shape ``(n_queries,)``.
        clusters: Of those queries.
        weights: Shape ``(n_samples, n_clusters)``.
    """
    total = weights @ clusters.sizes
    lower, upper = (total + 1) // 2, total // 2 + 1  # positions of the middle two, from 1
    middle = int(np.median(at))
    half = 8
    while True:
        first, last = max(0, middle - half), min(len(levels) - 1, middle + half)
        below = weights @ _queries_at_or_below(at, first, last, clusters)
        holds_lower = first == 0 or bool((below[:, 0] < lower).all())
        holds_upper = last == len(levels) - 1 or bool((below[:, -1] >= upper).all())
        if holds_lower and holds_upper:
            break
        half *= 2
    of_lower, of_upper = (
        levels[first + np.minimum((below < position[:, None]).sum(axis=1), last - first)] for position in (lower, upper)
    )
    medians: NDArray[np.float64] = (of_lower + of_upper) / 2
    medians[total == 0] = np.nan
    return medians


def _queries_at_or_below(at: NDArray[np.intp], first: int, last: int, clusters: Clusters) -> NDArray[np.float64]:
    """Queries of each cluster at or below the levels ``first .. last``: shape ``(n_clusters, last - first + 1)``."""
    width = last - first + 1
    inside = at <= last
    cell = clusters.labels[inside] * width + np.maximum(at[inside] - first, 0)
    counts = np.bincount(cell, minlength=clusters.n_clusters * width)
    return counts.reshape(clusters.n_clusters, width).cumsum(axis=1).astype(np.float64)
