"""Confidence intervals of figures over clustered queries: images are the units, the gallery stays as it is.

The method was chosen by simulation (``docs/protocols.md``, section 6): Wilson's for shares and other means within known
bounds, Student's t for other smooth figures (on the scale of logarithms for ranks) and for differences, the bootstrap
for medians and aggregates. All count clusters by their weight. All encoders, metrics and protocols of a corpus share
the same draws (``tasks.statistics.draws``). Sources: Korn and Graubard (1998); Efron and Tibshirani, An Introduction to
the Bootstrap (1993), chapters 13 (percentile) and 14 (BCa); Hesterberg (2015) for the expanded percentile interval.
Where the data allow no interval, its ends are None with a reason; no interval has zero width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from capim.tasks.statistics.clusters import Clusters, checked_values
from capim.tasks.statistics.decision import agreeing_ends
from capim.tasks.statistics.draws import (
    ClusterWeights,
    Nudge,
    Resampling,
    block_rows,
    count_blocks,
    narrowed,
    rounded_to_grid,
    weighted_sums,
)

Aggregate: TypeAlias = Callable[[NDArray[np.float64]], float]
"""Values of some queries, shape ``(n_queries, ...)`` -> one number; NaN where it is not defined."""
Reduce: TypeAlias = Literal["mean", "median"] | Aggregate
DrawnStatistic: TypeAlias = Callable[[NDArray[np.uint8]], NDArray[np.float64]]
"""Cluster weights, uint8 of shape ``(n_samples, n_clusters)`` -> the metrics of each sample, shape ``(n_metrics,
n_samples)``; NaN if empty. What a bootstrap or a permutation test evaluates: the weights are small whole numbers,
bootstrap counts, ones for the sample itself, ones with a zero for the jackknife, zeros and ones for a permutation."""
ClusterStatistic: TypeAlias = Callable[[ClusterWeights], NDArray[np.float64]]
"""The same of smooth functions of means, which can be nudged too (``draws.Nudge``). Sums of metrics (RSUM), macro means
and ratios are one line each."""
Bounds: TypeAlias = tuple[float, float] | None
"""The lowest and the highest value that a mean can have, infinite where there is none; None where that is not known."""


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
    if not callable(reduce) and reduce not in ("mean", "median"):
        raise ValueError(f"reduce must be 'mean' or 'median', got {reduce!r}; or a function of the values")
    if reduce != "mean":
        parts = [
            cluster_aggregates(values, clusters, reduce) if callable(reduce) else cluster_medians(values, clusters)
            for values, clusters in samples
        ]
        return lambda weights: np.concatenate([of_sample(_drawn(weights)) for of_sample in parts])
    n_clusters = samples[0].clusters.n_clusters
    columns: list[NDArray[np.float64]] = []
    positions: dict[bytes, int] = {}  # samples of the same queries share the column of their total weights
    sums_at: list[int] = []
    totals_at: list[int] = []
    for values, clusters in samples:
        sums = clusters.sums(checked_values(values, clusters)).T
        total = rounded_to_grid(clusters.totals, weight=n_clusters)
        position = positions.setdefault(total.tobytes(), len(columns))
        if position == len(columns):
            columns.append(total)
        sums_at += range(len(columns), len(columns) + len(sums))
        totals_at += [position] * len(sums)
        columns += [rounded_to_grid(column, weight=n_clusters) for column in sums]
    table = narrowed(np.column_stack(columns), weight=n_clusters)

    def means(weights: ClusterWeights) -> NDArray[np.float64]:
        summed = weighted_sums(weights, table).T
        with np.errstate(invalid="ignore"):
            divided: NDArray[np.float64] = summed[sums_at] / summed[totals_at]
        return divided

    return means


def _drawn(weights: ClusterWeights) -> NDArray[np.uint8]:
    if isinstance(weights, Nudge):
        raise TypeError("medians and aggregates are not smooth: they have draws, and no nudges")
    return weights


def cluster_aggregates(values: ArrayLike, clusters: Clusters, aggregate: Aggregate) -> DrawnStatistic:
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


def cluster_medians(values: ArrayLike, clusters: Clusters) -> DrawnStatistic:
    """The median over the queries of the drawn clusters; of an even number, the mean of the middle two.

    Weights play no part in a median: every query counts once.

    Examples:
        >>> medians = cluster_medians([[1.0, 4.0, 10.0]], Clusters.of([0, 0, 1]))
        >>> medians(np.uint8([[1, 1], [0, 2], [1, 0]])).tolist()
        [[4.0, 10.0, 2.5]]
    """
    rows = [np.unique(row, return_inverse=True) for row in checked_values(values, clusters)]
    return lambda weights: np.stack([_weighted_median(levels, at, clusters, weights) for levels, at in rows])


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


TOO_FEW_CLUSTERS = "no interval: all queries belong to one cluster (image), at least two clusters are needed"
UNEQUAL = (
    "no interval: few images hold most of the weight, as if there were {effective:.1f} instead of {n}; "
    "the heaviest holds {largest:.0%}"
)
LEAST_EFFECTIVE = 10.0  # clusters, where their weights differ: intervals of equal ones hold from a few on
_EQUAL = 0.9  # of the number of clusters: an effective number above it counts them as equal
NO_SPREAD = "no interval: all images give the same figure"
BIASED = "no interval: the bootstrap does not suit this figure: its replicates are about {mean:.4g}, not {value:.4g}"
NO_WIDTH = "no interval: nearly all replicates are identical, its ends coincide"
WIDENED = "interval widened to 0, which the test does not reject at its level"
NARROWED = "interval ends at 0, which the test rejects at its level"
_LARGEST_EXPONENT = 300.0
DUST = 1e-12  # relative: what rounding leaves, of replicates of a constant scorer where images have 5 or 6 captions


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate with its confidence interval.

    Attributes:
        value: The metric of the sample itself.
        low: Lower end, None where there is no interval.
        high: Upper end, None where there is no interval.
        standard_error: Standard deviation over the replicates; without these the clustered error.
        method: ``wilson`` of a share and of a mean within bounds, ``log-t`` of ranks, ``t`` of other means and of
            differences, ``expanded`` (percentile) of medians and aggregates; ``percentile`` or ``bca`` where that was
            asked for; ``none`` without an interval.
        reason: Why there is no interval, or not by the requested method.
    """

    value: float
    low: float | None = None
    high: float | None = None
    standard_error: float | None = None
    method: str = "none"
    reason: str | None = None


def no_interval(clusters: Clusters) -> str | None:
    """Why figures over these clusters have no interval, whatever their values; None if they can have one.

    Examples:
        >>> no_interval(Clusters.of([0] * 50 + [1, 2, 3, 4, 5, 6, 7, 8, 9]))[49:]
        'as if there were 1.4 instead of 10; the heaviest holds 85%'
    """
    if clusters.n_occupied < 2:
        return TOO_FEW_CLUSTERS
    if clusters.n_effective >= min(LEAST_EFFECTIVE, _EQUAL * clusters.n_occupied):
        return None
    return UNEQUAL.format(effective=clusters.n_effective, n=clusters.n_occupied, largest=clusters.largest_share)


def bootstrap_samples(
    samples: Sequence[ClusteredValues], resampling: Resampling, reduce: Reduce = "mean", bounds: Bounds = None
) -> list[list[Interval]]:
    """Intervals of many samples of one corpus at once; those that need draws share one pass over them.

    Args:
        samples: Of one corpus.
        resampling: The method, and the draws.
        reduce: How values become a figure.
        bounds: Of the values.

    Returns:
        For each sample one :class:`Interval` per row of its values, the same as for the sample alone.

    Raises:
        ValueError: Values that do not fit their clusters, or clusters of different corpora.

    Examples:
        Two clusters are drawn as (0,0), (0,1), (1,0) or (1,1): the mean is 0, 1/2, 1/2 or 1.

        >>> hits = ClusteredValues([[0.0, 0.0, 1.0, 1.0]], Clusters.of([0, 0, 1, 1]))
        >>> [[interval]] = bootstrap_samples([hits], Resampling(replicates=400, seed=1, method="percentile"))
        >>> interval.value, interval.low, interval.high
        (0.5, 0.0, 1.0)
    """
    if not samples:
        return []
    lengths = [len(np.atleast_2d(np.asarray(sample.values))) for sample in samples]
    of = [sample.clusters for sample, length in zip(samples, lengths, strict=True) for _ in range(length)]
    statistic = stacked_statistic(samples, reduce)
    intervals = iter(bootstrap_statistic(statistic, resampling, of, smooth=reduce == "mean", bounds=bounds))
    return [[next(intervals) for _ in range(length)] for length in lengths]


def paired_intervals(
    values: NDArray[np.float64],
    clusters: Clusters,
    pairs: Sequence[tuple[int, int]],
    resampling: Resampling,
    reduce: Reduce = "mean",
) -> list[Interval]:
    """The difference of each pair of rows with its paired interval: what the queries have in common cancels.

    ``values`` have the shape ``(n_rows, n_queries)``; of each pair,
    the second row is subtracted from the first.

    Examples:
        >>> values = np.array([[1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0]])
        >>> [interval] = paired_intervals(values, Clusters.of([0, 1, 2, 3]), [(0, 1)], Resampling(seed=1))
        >>> interval.value, round(interval.low, 2), round(interval.high, 2), interval.method
        (0.25, -0.55, 1.05, 't')
    """
    checked = values if callable(reduce) else checked_values(values, clusters)
    statistic = statistic_of(checked, clusters, reduce)
    first, second = [a for a, _ in pairs], [b for _, b in pairs]

    def differences(weights: ClusterWeights) -> NDArray[np.float64]:
        of_rows = statistic(weights)
        return of_rows[first] - of_rows[second]

    return bootstrap_statistic(differences, resampling, [clusters] * len(pairs), smooth=reduce == "mean")


def bootstrap_statistic(
    statistic: ClusterStatistic,
    resampling: Resampling,
    clusters: Sequence[Clusters],
    *,
    smooth: bool = True,
    bounds: Bounds = None,
) -> list[Interval]:
    """One interval per row of any statistic of clusters, such as a sum over protocols or a ratio.

    Args:
        statistic: Cluster weights -> values (``tasks.statistics.intervals``).
        resampling: The method, and the draws of those that need them.
        clusters: For each row, the clusters of its queries.
        smooth: Whether it is a smooth function of means: medians and aggregates are not.
        bounds: Of the values.

    Examples:
        The ratio of two recalls:

        >>> units = Clusters.of([0, 1, 2, 3])
        >>> both = statistic_of([[1, 1, 1, 0], [1, 0, 1, 0]], units)
        >>> def ratio(weights):
        ...     ours, theirs = both(weights)
        ...     return ours[None] / np.maximum(theirs[None], 0.25)
        >>> [interval] = bootstrap_statistic(ratio, Resampling(), [units])
        >>> interval.value, round(interval.low, 2), round(interval.high, 2)
        (1.5, -0.87, 3.87)
    """
    n_clusters = clusters[0].n_clusters
    estimates = statistic(np.ones((1, n_clusters), dtype=np.uint8))[:, 0].tolist()
    reasons = {id(each): no_interval(each) for each in clusters}
    found = [Interval(value=value, reason=reasons[id(each)]) for value, each in zip(estimates, clusters, strict=True)]
    if all(reasons.values()):
        return found
    by_draws = not smooth or resampling.method != "wilson"
    rows = bootstrap_replicates(statistic, n_clusters, resampling) if by_draws else influences(statistic, clusters)
    left_out = jackknife(statistic, n_clusters) if resampling.method == "bca" else [None] * len(rows)
    for at, (row, without, of_row) in enumerate(zip(rows, left_out, clusters, strict=True)):
        if found[at].reason is not None:
            continue
        if by_draws:
            expanded = of_row.n_effective if resampling.method == "wilson" else None
            found[at] = interval_of(estimates[at], row, level=resampling.level, left_out=without, n_effective=expanded)
        else:
            found[at] = student_interval(
                estimates[at], row, level=resampling.level, n_effective=of_row.n_effective, bounds=bounds
            )
    return found


def influences(statistic: ClusterStatistic, clusters: Sequence[Clusters]) -> NDArray[np.float64]:
    """What each cluster adds to the error of each row, shape ``(n_rows, n_clusters)``: linearised (Efron 1982, ch. 6).

    Half of the difference between one cluster more and one less; of a mean, the cluster's weighted deviations from it
    over the whole weight, exactly.

    Examples:
        >>> units = Clusters.of([0, 0, 1, 1])
        >>> influences(statistic_of([[0.0, 0.0, 1.0, 1.0]], units), [units]).tolist()
        [[-0.25, 0.25]]
    """
    more, less = (statistic(Nudge(by)) for by in (1, -1))
    exact = {id(each): 1 - np.square(each.shares) for each in clusters}
    nudged: NDArray[np.float64] = (more - less) / 2 * np.stack([exact[id(each)] for each in clusters])
    return nudged


def student_interval(
    estimate: float,
    influence: NDArray[np.float64],
    *,
    level: float,
    n_effective: float,
    bounds: Bounds = None,
) -> Interval:
    """Student's t interval of a smooth figure, on the scale that its bounds suggest.

    Between two bounds that of Wilson's interval, above one that of logarithms, else as it is. t has one degree of
    freedom less than there are effective clusters, and at most two for each cluster that the spread effectively comes
    from, ``sum(u^2)^2 / sum(u^4)``: near a ceiling few clusters have all of it (as in Satterthwaite 1946).

    Args:
        estimate: The figure.
        influence: What each cluster adds to its error, shape ``(n_clusters,)``.
        level: In (0, 1).
        n_effective: Kish's number of clusters, more than 1.
        bounds: Of the figure.

    Examples:
        >>> deviations = np.array([-0.5, 0.5, -0.5, 0.5]) / 4
        >>> interval = student_interval(0.5, deviations, level=0.95, n_effective=4.0)
        >>> round(interval.low, 3), round(interval.high, 3), round(interval.standard_error, 3)
        (-0.419, 1.419, 0.289)
        >>> inside = student_interval(0.5, deviations, level=0.95, n_effective=4.0, bounds=(0, 1))
        >>> round(inside.low, 3), round(inside.high, 3), inside.method
        (0.061, 0.939, 'wilson')
    """
    squares = np.square(influence)
    spread = float(squares.sum())
    error = math.sqrt(n_effective / (n_effective - 1) * spread)
    if not error > DUST * max(1.0, abs(estimate)):
        return Interval(value=estimate, reason=NO_SPREAD)
    freedom = max(1.0, min(n_effective - 1, 2 * spread**2 / float(np.square(squares).sum())))
    tail = (1 + level) / 2
    t = float(scipy.special.stdtrit(freedom, tail))
    if bounds is None:
        low, high, method = estimate - t * error, estimate + t * error, "t"
    elif not bounds[0] < estimate < bounds[1]:
        return Interval(value=estimate, reason=NO_SPREAD)
    elif math.isinf(bounds[1]):
        above = estimate - bounds[0]
        factor = math.exp(min(t * error / above, _LARGEST_EXPONENT))
        low, high, method = bounds[0] + above / factor, bounds[0] + above * factor, "log-t"
    else:
        lowest, width = bounds[0], bounds[1] - bounds[0]
        share = (estimate - lowest) / width
        trials = share * (1 - share) * (width / error * float(scipy.special.ndtri(tail)) / t) ** 2
        low, high = (lowest + width * end for end in wilson_interval(share * trials, trials, level=level))
        method = "wilson"
    return Interval(value=estimate, low=low, high=high, standard_error=error, method=method)


def bootstrap_replicates(statistic: DrawnStatistic, n_clusters: int, resampling: Resampling) -> NDArray[np.float64]:
    """The statistic of every draw: float64, shape ``(n_metrics, replicates)``.

    NaN where a draw holds no query of the sample (only where few of the clusters have one).
    """
    blocks = count_blocks(n_clusters, replicates=resampling.replicates, seed=resampling.seed)
    return np.concatenate([statistic(counts) for counts in blocks], axis=1)


def jackknife(statistic: DrawnStatistic, n_clusters: int) -> NDArray[np.float64]:
    """The statistic without each cluster in turn: float64, shape ``(n_metrics, n_clusters)``."""
    columns = []
    step = block_rows(n_clusters)
    for start in range(0, n_clusters, step):
        rows = min(step, n_clusters - start)
        weights = np.ones((rows, n_clusters), dtype=np.uint8)
        weights[np.arange(rows), start + np.arange(rows)] = 0
        columns.append(statistic(weights))
    return np.concatenate(columns, axis=1)


def interval_of(
    estimate: float,
    replicates: NDArray[np.float64],
    *,
    level: float,
    left_out: NDArray[np.float64] | None = None,
    n_effective: float | None = None,
) -> Interval:
    """The percentile interval of some replicates, or with ``left_out`` (the jackknife) the BCa interval.

    Replicates that are NaN (a draw without a query) are left out. Quantiles interpolate linearly, as in NumPy and
    SciPy. With ``n_effective`` clusters they are further out, so that the interval of a mean is as wide as Student's
    (Hesterberg 2015, section 5.3). Replicates that are identical, or ends that are, give no interval; nor do replicates
    that lie beside the estimate: an interval without it, or a bias of a standard error or more (of hubness or Gini's
    coefficient, as draws repeat images).

    Examples:
        >>> interval_of(2.0, np.array([1.0, 2.0, 3.0]), level=0.5)
        Interval(value=2.0, low=1.5, high=2.5, standard_error=1.0, method='percentile', reason=None)
    """
    drawn = replicates[np.isfinite(replicates)]
    if drawn.size < 2 or np.ptp(drawn) <= DUST * max(1.0, abs(estimate)):
        return Interval(value=estimate, reason=NO_SPREAD)
    error, mean = float(drawn.std(ddof=1)), float(drawn.mean())
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    method = "percentile" if left_out is None else "bca"
    if left_out is not None:
        tails = _bca_tails(estimate, drawn, left_out, tails)
        if not np.isfinite(tails).all():
            reason = "no BCa interval: all replicates lie on one side of the estimate, the bias correction is infinite"
            return Interval(value=estimate, standard_error=error, reason=reason)
    elif n_effective is not None:
        method, wider = "expanded", math.sqrt(n_effective / (n_effective - 1))
        tails = scipy.special.ndtr(wider * scipy.special.stdtrit(n_effective - 1, tails))
    low, high = np.quantile(drawn, tails).tolist()
    if high - low <= DUST * max(1.0, abs(estimate)):
        return Interval(value=estimate, standard_error=error, reason=NO_WIDTH)
    if not low <= estimate <= high or abs(mean - estimate) >= error:
        return Interval(value=estimate, reason=BIASED.format(mean=mean, value=estimate))
    return Interval(value=estimate, low=low, high=high, standard_error=error, method=method)


def agreeing_with_test(interval: Interval, p: float | None, *, level: float) -> Interval:
    """The interval of a difference, which holds 0 if and only if the test beside it does not reject at the same level.

    The test by permutation is exact for any number of clusters, the bootstrap is not: with five wins and no loss it
    leaves 0 out, although p is .0625. Its end next to 0 then moves to 0. The opposite happens by random rounding
    only, where p is just below ``1 - level``; the end then moves to the smallest number on its side of 0.

    Examples:
        >>> five_wins = Interval(value=0.05, low=0.01, high=0.1, method="percentile")
        >>> agreeing_with_test(five_wins, 0.0625, level=0.95).low, agreeing_with_test(five_wins, 0.0313, level=0.95).low
        (0.0, 0.01)
    """
    if p is None or interval.low is None or interval.high is None:
        return interval
    alpha = 1 - level - DUST
    low, high = agreeing_ends((interval.low, interval.high), p, interval.value, alpha=alpha)
    if (low, high) == (interval.low, interval.high):
        return interval
    return replace(interval, low=low, high=high, reason=NARROWED if p < alpha else WIDENED)


def _bca_tails(
    estimate: float, drawn: NDArray[np.float64], left_out: NDArray[np.float64], tails: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The quantiles that BCa reads instead of ``tails`` (Efron and Tibshirani 1993, equations 14.10-14.15).

    Replicates equal to the estimate count half on each side, as in SciPy; a jackknife without spread or third
    moment has acceleration 0.
    """
    bias = scipy.special.ndtri(((drawn < estimate).mean() + (drawn <= estimate).mean()) / 2)
    influence = np.nanmean(left_out) - left_out[np.isfinite(left_out)]
    spread = float((influence**2).sum())
    acceleration = float((influence**3).sum()) / (6 * spread**1.5) if spread > 0 else 0.0
    normal = bias + scipy.special.ndtri(tails)
    shifted: NDArray[np.float64] = scipy.special.ndtr(bias + normal / (1 - acceleration * normal))
    return shifted


AT_THE_EDGE = "all queries have the same outcome: Wilson interval over the {n:g} clusters instead of the queries"
_EQUAL_SIZES = 1e-6  # queries per cluster, less one, up to which each query counts as a cluster of its own
_LEAST_CARRYING = 4.0  # degrees of freedom where few heavy clusters carry the variance of a share
_FREEDOM = 3.0  # degrees of freedom of a clustered error for each hit or miss, whichever are fewer
_LEAST_FREEDOM = 15.0  # of independent queries, whose error follows from the share: for the discreteness of few hits


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
    z = float(scipy.special.ndtri((1 + level) / 2))
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
    if (reason := no_interval(clusters)) is not None:
        return Interval(value=share, reason=reason)
    return clustered_wilson(
        share,
        cluster_robust_error(row, clusters),
        n_queries=float(weights.sum() ** 2 / np.square(weights).sum()),
        shares=clusters.shares,
        level=level,
    )


def clustered_wilson(
    share: float, error: float, *, n_queries: float, shares: NDArray[np.float64], level: float
) -> Interval:
    """Wilson's interval over the effective number of queries (Korn and Graubard 1998; Dean and Pagano 2015).

    As many independent queries as have the clustered ``error``, at most ``n_queries``; and fewer by ``(z / t)^2``,
    because the error is itself estimated. That estimate rests on the hits or the misses, whichever are fewer: t has
    three degrees of freedom for each effective one, at most one less than there are clusters that carry the variance
    (:func:`carrying_clusters`). Korn and Graubard always take the latter, which covers a share of .05 in 30 clusters in
    89 % of samples. The three was chosen by simulation (``docs/protocols.md``, section 6), and so were the at least 15
    of independent queries, one per cluster.

    Where every query hits, or every one misses, the trials are the effective clusters: at worst, all queries of an
    image have the same outcome. ``shares``: of the weight, that each cluster holds, shape ``(n_clusters,)``.
    """
    n_effective = 1 / float(np.square(shares).sum())
    if abs(share - round(share)) <= DUST:
        return edge_interval(share, n_effective, level=level)
    if error <= DUST:
        return Interval(value=share, reason=NO_SPREAD)
    effective = min(share * (1 - share) / error**2, n_queries)
    fewer = effective * min(share, 1 - share)
    least = _LEAST_FREEDOM if n_queries < (1 + _EQUAL_SIZES) * n_effective else 1.0
    carrying = carrying_clusters(shares, n_queries, error**2 * n_queries / (share * (1 - share)))
    freedom = min(max(_FREEDOM * fewer, least), max(carrying - 1, min(_LEAST_CARRYING, n_effective - 1)))

    tail = (1 + level) / 2
    trials = effective * float(scipy.special.ndtri(tail) / scipy.special.stdtrit(freedom, tail)) ** 2
    low, high = wilson_interval(share * trials, trials, level=level)
    return Interval(value=share, low=low, high=high, standard_error=error, method="wilson")


def carrying_clusters(shares: NDArray[np.float64], n_queries: float, design_effect: float) -> float:
    """Kish's number with the variance that each cluster brings in the place of its weight (Satterthwaite 1946).

    A cluster with ``m`` of ``n_queries`` brings ``m (1 + (m - 1) r)``, where the intraclass correlation ``r`` follows
    from the design effect: among 100 images three with 20 captions are 38 % of the queries, and where captions hit
    together nearly all of the variance.

    Examples:
        >>> [round(carrying_clusters(np.full(8, 1 / 8), 40, effect), 6) for effect in (1, 3)]
        [8.0, 8.0]
        >>> shares = np.array([20] * 3 + [1] * 97) / 157
        >>> [round(carrying_clusters(shares, 157, effect), 1) for effect in (1, 4, 8)]
        [19.0, 4.2, 3.5]
    """
    excess = n_queries * float(np.square(shares).sum()) - 1
    correlation = min(max((design_effect - 1) / excess, 0.0), 1.0) if excess > _EQUAL_SIZES else 0.0
    variance = shares * (1 - correlation + correlation * n_queries * shares)
    return float(variance.sum() ** 2 / np.square(variance).sum())


def edge_interval(share: float, n_clusters: float, *, level: float) -> Interval:
    """Wilson's interval where every query of a share hits, or every one misses; ``share`` is 0 or 1 but for rounding.

    The effective clusters are counted, not the queries: at worst, all queries of an image have the same outcome.
    """
    low, high = wilson_interval(round(share) * n_clusters, n_clusters, level=level)
    reason = AT_THE_EDGE.format(n=round(n_clusters, 1))
    return Interval(value=share, low=low, high=high, method="wilson", reason=reason)


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
