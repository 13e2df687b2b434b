"""Intervals by the cluster bootstrap: images are drawn with replacement, the gallery stays as it is.

All encoders, metrics and protocols of a corpus see the same draws (``tasks.statistics.draws``), so replicates can
be subtracted from each other: that is what makes comparisons paired. Sources: Efron and Tibshirani, An
Introduction to the Bootstrap (1993), chapters 13 (percentile) and 14 (BCa); Cameron, Gelbach and Miller (2008)
for drawing clusters. For want of data an interval is None with a reason, never of width zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from tasks.statistics.clusters import Clusters
from tasks.statistics.draws import block_rows, count_blocks
from tasks.statistics.resampling import METHODS, IntervalMethod
from tasks.statistics.statistic import ClusterStatistic, Reduce, Sample, stacked_means, statistic_of

TOO_FEW_CLUSTERS = "one cluster: at least two independent images are needed for an interval"
NO_SPREAD = "the metric is the same in every replicate: the data show no spread to make an interval of"


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value with the range that the data leave open.

    Attributes:
        value: The metric of the sample itself.
        low: Lower end, None if it cannot be known.
        high: Upper end, None if it cannot be known.
        standard_error: Standard deviation over the replicates.
        method: ``percentile`` or ``bca``; ``wilson`` where a caller fell back to it; ``none`` without an interval.
        reason: Why there is no interval, or not the one asked for.
    """

    value: float
    low: float | None = None
    high: float | None = None
    standard_error: float | None = None
    method: str = "none"
    reason: str | None = None


def cluster_bootstrap(
    values: ArrayLike,
    clusters: ArrayLike,
    *,
    seed: int,
    n_clusters: int | None = None,
    weights: ArrayLike | None = None,
    replicates: int = 10_000,
    level: float = 0.95,
    method: IntervalMethod = "percentile",
    reduce: Reduce = "mean",
) -> list[Interval]:
    """One interval per metric, by drawing clusters with replacement.

    Args:
        values: Per-query values, shape ``(n_metrics, n_queries)`` or ``(n_queries,)`` for one metric.
        clusters: The cluster of each query, integers of shape ``(n_queries,)``.
        seed: Not negative; the same seed and ``n_clusters`` give the same draws.
        n_clusters: Images of the corpus; left out, one more than the highest label.
        weights: What each query counts in a mean, shape ``(n_queries,)``; left out, all the same.
        replicates: Number of draws.
        level: Of the interval, in (0, 1).
        method: ``percentile``, or ``bca`` (bias-corrected and accelerated).
        reduce: How a row of values becomes one number.

    Returns:
        One :class:`Interval` per row of ``values``. Its ends are None, with the reason, for fewer than two
        clusters and for a mean that is the same in every replicate. A median often is: most queries have the one
        rank. Its interval is then that one value, given enough clusters for an interval of order statistics
        (``2 * 0.5 ** n <= 1 - level``: six at 95 %).

    Raises:
        ValueError: Arguments out of range, or shapes that do not fit.

    Examples:
        Two clusters are drawn as (0,0), (0,1), (1,0) or (1,1): the mean is 0, 1/2, 1/2 or 1.

        >>> [interval] = cluster_bootstrap([[0.0, 0.0, 1.0, 1.0]], [0, 0, 1, 1], seed=1, replicates=400)
        >>> interval.value, interval.low, interval.high
        (0.5, 0.0, 1.0)
        >>> cluster_bootstrap([[0.0, 1.0]], [0, 0], seed=1)[0].reason
        'one cluster: at least two independent images are needed for an interval'
    """
    units = Clusters.of(clusters, n_clusters, weights)
    statistic = statistic_of(values, units, reduce)
    occupied = [units.n_occupied] * len(np.atleast_2d(np.asarray(values)))
    return bootstrap_statistic(
        statistic,
        n_clusters=units.n_clusters,
        occupied=occupied,
        seed=seed,
        replicates=replicates,
        level=level,
        method=method,
        reduce=reduce,
    )


def bootstrap_samples(
    samples: Sequence[Sample],
    *,
    seed: int,
    replicates: int = 10_000,
    level: float = 0.95,
    method: IntervalMethod = "percentile",
) -> list[list[Interval]]:
    """Intervals of the means of many samples of one corpus at once: all encoders, protocols and metrics.

    The same intervals as :func:`cluster_bootstrap` gives for each sample alone, an order of magnitude faster.

    Args:
        samples: Values and clusters; all clusters of the same ``n_clusters``.
        seed: Of the draws.
        replicates: Number of draws.
        level: Of the intervals.
        method: ``percentile`` or ``bca``.

    Returns:
        For each sample one :class:`Interval` per row of its values.

    Examples:
        >>> captions, images = Clusters.of([0, 0, 1, 1, 2, 2]), Clusters.of([0, 1, 2])
        >>> samples = [Sample([[1, 0, 1, 1, 0, 0]], captions), Sample([[1, 1, 0], [0, 1, 0]], images)]
        >>> [[round(interval.value, 3) for interval in row] for row in bootstrap_samples(samples, seed=1)]
        [[0.5], [0.667, 0.333]]
    """
    if not samples:
        return []
    lengths = [len(np.atleast_2d(np.asarray(sample.values))) for sample in samples]
    occupied = [s.clusters.n_occupied for s, length in zip(samples, lengths, strict=True) for _ in range(length)]
    found = iter(
        bootstrap_statistic(
            stacked_means(samples),
            n_clusters=samples[0].clusters.n_clusters,
            occupied=occupied,
            seed=seed,
            replicates=replicates,
            level=level,
            method=method,
        )
    )
    return [[next(found) for _ in range(length)] for length in lengths]


def bootstrap_statistic(
    statistic: ClusterStatistic,
    *,
    n_clusters: int,
    occupied: Sequence[int],
    seed: int,
    replicates: int = 10_000,
    level: float = 0.95,
    method: IntervalMethod = "percentile",
    reduce: Reduce = "mean",
) -> list[Interval]:
    """One interval per row of any statistic: sums over protocols, ratios, what you will.

    Args:
        statistic: Cluster weights -> values (``tasks.statistics.statistic``).
        n_clusters: Images of the corpus.
        occupied: For each row, how many clusters it has data in.
        seed: Of the draws.
        replicates: Number of draws.
        level: Of the intervals.
        method: ``percentile`` or ``bca``.
        reduce: ``median`` if a row that never moves is known rather than without spread.

    Examples:
        The ratio of two recalls:

        >>> both = statistic_of([[1, 1, 1, 0], [1, 0, 1, 0]], Clusters.of([0, 1, 2, 3]))
        >>> def ratio(weights):
        ...     ours, theirs = both(weights)
        ...     return ours[None] / np.maximum(theirs[None], 0.25)
        >>> [interval] = bootstrap_statistic(ratio, n_clusters=4, occupied=[4], seed=1, replicates=100)
        >>> interval.value
        1.5
    """
    check_request(level=level, method=method)
    estimates = statistic(np.ones((1, n_clusters), dtype=np.uint8))[:, 0]
    if max(occupied) < 2:
        return [Interval(value=float(v), reason=TOO_FEW_CLUSTERS) for v in estimates]
    drawn = bootstrap_replicates(statistic, n_clusters, replicates=replicates, seed=seed)
    left_out = jackknife(statistic, n_clusters) if method == "bca" else [None] * len(estimates)
    return [
        interval_of(float(estimate), row, level=level, left_out=without, one_value=one_value_suffices(reduce, n, level))
        if n > 1
        else Interval(value=float(estimate), reason=TOO_FEW_CLUSTERS)
        for estimate, row, without, n in zip(estimates, drawn, left_out, occupied, strict=True)
    ]


def check_request(*, level: float, method: str) -> None:
    """Raises ``ValueError`` for a level outside (0, 1) or an unknown method."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level}; 0.95 is usual")
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")


def bootstrap_replicates(
    statistic: ClusterStatistic, n_clusters: int, *, replicates: int, seed: int
) -> NDArray[np.float64]:
    """The statistic of every draw: float64, shape ``(n_metrics, replicates)``.

    NaN where a draw holds no query of the sample (only where few of the clusters have one).
    """
    blocks = count_blocks(n_clusters, replicates=replicates, seed=seed)
    return np.concatenate([statistic(counts) for counts in blocks], axis=1)


def jackknife(statistic: ClusterStatistic, n_clusters: int) -> NDArray[np.float64]:
    """The statistic without each cluster in turn: float64, shape ``(n_metrics, n_clusters)``."""
    columns = []
    step = block_rows(n_clusters)
    for start in range(0, n_clusters, step):
        rows = min(step, n_clusters - start)
        weights = np.ones((rows, n_clusters), dtype=np.uint8)
        weights[np.arange(rows), start + np.arange(rows)] = 0
        columns.append(statistic(weights))
    return np.concatenate(columns, axis=1)


def one_value_suffices(reduce: Reduce, n_clusters: int, level: float) -> bool:
    """Whether a statistic that is the same in every replicate is known, rather than without spread.

    Examples:
        >>> [one_value_suffices("median", n, 0.95) for n in (5, 6)], one_value_suffices("mean", 5000, 0.95)
        ([False, True], False)
    """
    return reduce == "median" and 2 * 0.5**n_clusters <= 1 - level


def interval_of(
    estimate: float,
    replicates: NDArray[np.float64],
    *,
    level: float,
    left_out: NDArray[np.float64] | None = None,
    one_value: bool = False,
) -> Interval:
    """The percentile interval of some replicates, or with ``left_out`` (the jackknife) the BCa interval.

    Replicates that are NaN (drew no query) are left out. Quantiles interpolate linearly, as NumPy and SciPy do.
    Replicates that are all the same give no interval, or with ``one_value`` that value.

    Examples:
        >>> interval_of(2.0, np.array([1.0, 2.0, 3.0]), level=0.5)
        Interval(value=2.0, low=1.5, high=2.5, standard_error=1.0, method='percentile', reason=None)
    """
    drawn = replicates[np.isfinite(replicates)]
    if drawn.size < 2 or drawn.min() == drawn.max():
        if one_value and drawn.size > 1:
            only = float(drawn[0])
            method = "percentile" if left_out is None else "bca"
            return Interval(value=estimate, low=only, high=only, standard_error=0.0, method=method)
        return Interval(value=estimate, reason=NO_SPREAD)
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    method = "percentile"
    if left_out is not None:
        tails, method = _bca_tails(estimate, drawn, left_out, tails), "bca"
        if not np.isfinite(tails).all():
            return Interval(
                value=estimate,
                standard_error=float(drawn.std(ddof=1)),
                reason="every replicate lies on one side of the estimate: the bias correction is infinite",
            )
    low, high = np.quantile(drawn, tails)
    return Interval(
        value=estimate, low=float(low), high=float(high), standard_error=float(drawn.std(ddof=1)), method=method
    )


def _bca_tails(
    estimate: float, drawn: NDArray[np.float64], left_out: NDArray[np.float64], tails: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The quantiles that BCa reads instead of ``tails`` (Efron and Tibshirani 1993, equations 14.10-14.15).

    Replicates equal to the estimate count half on each side, as in SciPy; a jackknife without spread or third
    moment has acceleration 0.
    """
    bias = ndtri(((drawn < estimate).mean() + (drawn <= estimate).mean()) / 2)
    influence = np.nanmean(left_out) - left_out[np.isfinite(left_out)]
    spread = float((influence**2).sum())
    acceleration = float((influence**3).sum()) / (6 * spread**1.5) if spread > 0 else 0.0
    normal = bias + ndtri(tails)
    shifted: NDArray[np.float64] = ndtr(bias + normal / (1 - acceleration * normal))
    return shifted
