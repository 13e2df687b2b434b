"""Intervals and standard errors without resampling: of single proportions and of clustered means."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from tasks.statistics.bootstrap import Interval
from tasks.statistics.clusters import Clusters, checked_values

AT_THE_EDGE = "all queries have the same outcome: Wilson interval over the {n} clusters instead of the bootstrap"


def wilson_interval(successes: float, n: float, *, level: float = 0.95) -> tuple[float, float]:
    """The score interval of a proportion of independent trials (Wilson 1927).

    Args:
        successes: Between 0 and ``n``; may be an expected number where ties are split.
        n: Independent trials, more than 0.
        level: In (0, 1).

    Examples:
        Wilson's centre shrinks towards one half, so the ends never leave 0..1.

        >>> [round(end, 4) for end in wilson_interval(8, 10)]
        [0.4902, 0.9433]
        >>> wilson_interval(0, 10)[0]
        0.0
    """
    if not (n > 0 and 0 <= successes <= n and 0 < level < 1):
        raise ValueError(
            f"a proportion needs n > 0, 0 <= successes <= n and a level in (0, 1), "
            f"got {successes} of {n} at level {level}"
        )
    z = float(ndtri((1 + level) / 2))
    share = successes / n
    centre = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = 0.0 if successes == 0 else (centre - half) / scale
    high = 1.0 if successes == n else (centre + half) / scale
    return low, high


def interval_at_the_edge(interval: Interval, share: float, n_clusters: int, *, level: float) -> Interval:
    """Wilson's interval where every query of a share hits, or every one misses; else the interval as it is.

    The clusters are counted, not the queries: at worst, all queries of an image have the same outcome.
    """
    if interval.low is not None or n_clusters < 2 or share not in (0.0, 1.0):
        return interval
    low, high = wilson_interval(share * n_clusters, n_clusters, level=level)
    reason = AT_THE_EDGE.format(n=n_clusters)
    return Interval(value=interval.value, low=low, high=high, method="wilson", reason=reason)


def cluster_robust_error(values: ArrayLike, clusters: Clusters) -> float:
    """Standard error of a mean over clustered queries, without resampling.

    The linearised (sandwich) estimate: with ``r_c`` the weighted sum of a cluster's deviations from the mean and
    ``W`` the sum of all weights, ``sqrt(G / (G - 1) * sum(r_c^2)) / W`` over the ``G`` clusters with a query. Equal
    to statsmodels' ``OLS(values, 1).fit(cov_type="cluster")``; with one query per cluster, to ``sd / sqrt(n)``.

    Raises:
        ValueError: Fewer than two clusters hold a query.

    Examples:
        Two clusters of two: deviations -1/2 each and +1/2 each, ``sqrt(2 * (1 + 1)) / 4``.

        >>> cluster_robust_error([0.0, 0.0, 1.0, 1.0], Clusters.of([0, 0, 1, 1]))
        0.5
    """
    if clusters.n_occupied < 2:
        raise ValueError(f"a clustered error needs at least 2 clusters with a query, got {clusters.n_occupied}")
    [row] = checked_values(values, clusters)
    residuals = clusters.sums(row[None] - clusters.mean(row))[:, 0]
    correction = clusters.n_occupied / (clusters.n_occupied - 1)
    return math.sqrt(correction * float(np.square(residuals).sum())) / float(clusters.weights.sum())
