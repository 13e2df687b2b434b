"""Intervals and standard errors without resampling: of single proportions and of clustered means."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri, stdtrit

from capim.tasks.statistics.bootstrap import NO_SPREAD, TOO_FEW_CLUSTERS, Interval
from capim.tasks.statistics.clusters import Clusters, checked_values
from capim.tasks.statistics.multiplicity import ALPHA

AT_THE_EDGE = "all queries have the same outcome: Wilson interval over the {n} clusters instead of the queries"
_FREEDOM = 3.0  # degrees of freedom of a clustered error for each hit or miss, whichever are fewer
_LEAST_FREEDOM = 15.0  # of independent queries, whose error follows from the share: for the discreteness of few hits
_ROUNDING = 1e-12


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


def share_interval(values: ArrayLike, clusters: Clusters, *, level: float) -> Interval:
    """The interval of the share of hits among the queries of some clusters; ``values``, shape ``(n_queries,)``.

    :func:`clustered_wilson` with the clustered error; its ends are None, with the reason, for fewer than two clusters
    and where all values are the same fraction.

    Examples:
        Ten images with two captions each, of which both hit or both miss: Wilson over 6.75 trials, not 20.

        >>> interval = share_interval([1.0] * 12 + [0.0] * 8, Clusters.of(np.repeat(np.arange(10), 2)), level=0.95)
        >>> interval.value, round(interval.low, 2), round(interval.high, 2), interval.method
        (0.6, 0.27, 0.86, 'wilson')
    """
    [row] = checked_values(values, clusters)
    share, weights = clusters.mean(row), clusters.weights
    if clusters.n_occupied < 2:
        return Interval(value=share, reason=TOO_FEW_CLUSTERS)
    return clustered_wilson(
        share,
        cluster_robust_error(row, clusters),
        n_queries=float(weights.sum() ** 2 / np.square(weights).sum()),
        n_clusters=clusters.n_occupied,
        level=level,
    )


def clustered_wilson(share: float, error: float, *, n_queries: float, n_clusters: int, level: float) -> Interval:
    """Wilson's interval over the effective number of queries (Korn and Graubard 1998; Dean and Pagano 2015).

    As many independent queries as have the clustered ``error``, at most ``n_queries``; and fewer by ``(z / t)^2``,
    because the error is itself estimated. That estimate rests on the hits or the misses, whichever are fewer: t has
    three degrees of freedom for each effective one, at most ``n_clusters - 1``. Korn and Graubard always take the
    latter, which covers a share of .05 in 30 clusters in 89 % of samples. The three was chosen by simulation
    (``docs/protocols.md``, section 6), and so were the at least 15 of independent queries, one per cluster.

    Where every query hits, or every one misses, the trials are the clusters: at worst, all queries of an image have
    the same outcome.
    """
    if abs(share - round(share)) <= _ROUNDING:
        return _at_the_edge(share, n_clusters, level)
    if error <= _ROUNDING:
        return Interval(value=share, reason=NO_SPREAD)
    effective = min(share * (1 - share) / error**2, n_queries)
    fewer = effective * min(share, 1 - share)
    least = _LEAST_FREEDOM if n_queries == n_clusters else 1.0
    freedom = min(max(_FREEDOM * fewer, least), n_clusters - 1.0)

    def ends(level: float) -> tuple[float, float]:
        tail = (1 + level) / 2
        trials = effective * float(ndtri(tail) / stdtrit(freedom, tail)) ** 2
        return wilson_interval(share * trials, trials, level=level)

    low, high = ends(level)
    return Interval(value=share, low=low, high=high, standard_error=error, method="wilson", claim=ends(1 - ALPHA))


def interval_at_the_edge(interval: Interval, share: float, n_clusters: int, *, level: float) -> Interval:
    """Wilson's interval where every query of a share hits, or every one misses; else the interval as it is.

    The clusters are counted, not the queries: at worst, all queries of an image have the same outcome.
    """
    if interval.low is not None or n_clusters < 2 or share not in (0.0, 1.0):
        return interval
    return _at_the_edge(interval.value, n_clusters, level)


def _at_the_edge(share: float, n_clusters: int, level: float) -> Interval:
    (low, high), claim = (wilson_interval(round(share) * n_clusters, n_clusters, level=x) for x in (level, 1 - ALPHA))
    return Interval(
        value=share, low=low, high=high, method="wilson", reason=AT_THE_EDGE.format(n=n_clusters), claim=claim
    )


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
