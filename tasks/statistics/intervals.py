"""Confidence intervals of results over clustered queries: images are the units, the gallery stays as it is.

=================================================== ==================================================================
result                                              interval
=================================================== ==================================================================
a mean within bounds: share, nDCG, MRR, RSUM, a     Wilson's form with the clustered error and Student's t, from ten
mean over languages                                 effective images and five effective hits and misses on
a difference; a mean of unknown bounds              Student's t
a median                                            Woodruff's: Wilson's interval about one half, read on the values
a mean without an upper bound: a mean rank          none
an aggregate of a user's metric                     percentiles of the bootstrap, unless they are biased
=================================================== ==================================================================

``Resampling.method`` "percentile" takes the bootstrap for all of them. Where the data allow no interval, its ends are
None with a reason; no interval has zero width. The methods were chosen by simulation
(``docs/statistical_methods.md``). Sources: Wilson (1927, Probable inference); Korn and Graubard (1998, Confidence
intervals for proportions with small expected number of positive counts); Satterthwaite (1946, An approximate
distribution of estimates of variance components); Woodruff (1952, Confidence intervals for medians); Efron and
Tibshirani (1993), chapter 13.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from capim.tasks.statistics.clusters import Clusters, checked_values, kish
from capim.tasks.statistics.decision import agreeing_ends
from capim.tasks.statistics.draws import Resampling, count_blocks, narrowed, rounded_to_grid, weighted_sums

Aggregate: TypeAlias = Callable[[NDArray[np.float64]], float]
"""Values of some queries, shape ``(n_queries, ...)`` -> one number; NaN where it is not defined."""
Reduce: TypeAlias = Literal["mean", "median"] | Aggregate
Bounds: TypeAlias = tuple[float, float] | None
"""Lowest and highest possible value of a mean, infinite if there is none; None if unknown."""


class ClusteredValues(NamedTuple):
    """Per-query values of several encoders, shape ``(n_encoders, n_queries)``, and the clusters of these queries."""

    values: ArrayLike
    clusters: Clusters


TOO_FEW_CLUSTERS = "no interval: all queries belong to one cluster (image), at least two clusters are needed"
UNEQUAL = (
    "no interval: few images hold most of the weight, as if there were {effective:.1f} instead of {n}; "
    "the heaviest holds {largest:.0%}"
)
LEAST_EFFECTIVE = 10.0  # images of an interval; for a difference only if their weights differ
LEAST_HITS = 5.0  # effective hits, and misses
_EQUAL = 0.9  # fraction of the number of clusters: above it, an effective number counts them as equal
FEW_IMAGES = f"no interval: fewer than {LEAST_EFFECTIVE:.0f} images"
FEW_HITS = f"no interval: {{n:.1f}} effective hits or misses, at least {LEAST_HITS:.0f} of each are needed"
NO_SPREAD = "no interval: all images give the same figure"
UNBOUNDED = "no interval: a few queries decide a mean without an upper bound; see the median rank or MRR"
OF_MEDIANS = "no interval and no test of the difference of two medians"
BIASED = "no interval: the bootstrap does not suit this figure: its replicates are about {mean:.4g}, not {value:.4g}"
NO_WIDTH = "no interval: both of its ends are the value"
WIDENED = "interval widened to 0, which the test does not reject at its level"
NARROWED = "interval ends at 0, which the test rejects at its level"
DUST = 1e-12  # relative rounding error, as in replicates of a constant scorer on images with 5 or 6 captions


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate with its confidence interval.

    Attributes:
        value: The metric of the sample.
        low: Lower end; None without an interval.
        high: Upper end; None without an interval.
        standard_error: Clustered; for a bootstrap, the standard deviation of the replicates.
        method: ``wilson``, ``t``, ``woodruff`` or ``percentile``; ``none`` without an interval.
        reason: Why there is no interval.
    """

    value: float
    low: float | None = None
    high: float | None = None
    standard_error: float | None = None
    method: str = "none"
    reason: str | None = None

    @property
    def is_drawn(self) -> bool:
        """True if it was made from bootstrap draws."""
        return self.method == "percentile"


def no_interval(clusters: Clusters) -> str | None:
    """Return why results over these clusters have no interval, whatever their values; None if they may have one.

    Examples:
        >>> no_interval(Clusters.of([0] * 50 + [1, 2, 3, 4, 5, 6, 7, 8, 9]))[49:]
        'as if there were 1.4 instead of 10; the heaviest holds 85%'
    """
    if clusters.n_occupied < 2:
        return TOO_FEW_CLUSTERS
    if clusters.n_effective >= min(LEAST_EFFECTIVE, _EQUAL * clusters.n_occupied):
        return None
    return UNEQUAL.format(effective=clusters.n_effective, n=clusters.n_occupied, largest=clusters.largest_share)


def interval_of(
    values: ArrayLike,
    clusters: Clusters,
    resampling: Resampling,
    reduce: Reduce = "mean",
    *,
    bounds: Bounds = None,
    share: bool = False,
) -> Interval:
    """Return the interval of one result.

    Args:
        values: Per query, shape ``(n_queries,)``; an aggregate may have several per query: ``(n_queries, ...)``.
        clusters: Clusters of these queries.
        resampling: The level, the method, and the draws of a bootstrap.
        reduce: How the values become the result. Medians and aggregates ignore weights.
        bounds: Bounds of the values.
        share: True if the values are hits and misses: each query is a trial. Otherwise each image is one.

    Raises:
        ValueError: If the values do not fit the clusters.

    Examples:
        Twenty images with two captions each, both hit or both missed:

        >>> hits = [1.0] * 24 + [0.0] * 16
        >>> found = interval_of(hits, Clusters.of(np.repeat(range(20), 2)), Resampling(), bounds=(0, 1), share=True)
        >>> found.value, round(found.low, 2), round(found.high, 2), found.method
        (0.6, 0.37, 0.79, 'wilson')
    """
    if reduce == "mean":
        [row] = checked_values(values, clusters)
        spread = mean_spread(row, clusters, resampling)
        return mean_interval(clusters.mean(row), spread, clusters, resampling, bounds=bounds, share=share)
    table = np.asarray(values, dtype=np.float64)
    estimate = float(np.median(table) if reduce == "median" else reduce(table))
    if (reason := no_interval(clusters)) is not None:
        return Interval(value=estimate, reason=reason)
    if reduce == "median" and resampling.method == "wilson":
        return woodruff_interval(table, clusters, level=resampling.level)
    return percentile_interval(estimate, replicates_of(table, clusters, resampling, reduce), level=resampling.level)


def paired_intervals(
    values: ArrayLike,
    clusters: Clusters,
    pairs: Sequence[tuple[int, int]],
    resampling: Resampling,
    reduce: Reduce = "mean",
) -> list[Interval]:
    """Return the difference of each pair of rows with its paired interval; query effects that both share cancel.

    ``values`` have the shape ``(n_rows, n_queries)``; for each pair, the second row is subtracted from the first. The
    difference of two medians has no interval.

    Examples:
        >>> values = np.array([[1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0]])
        >>> [interval] = paired_intervals(values, Clusters.of([0, 1, 2, 3]), [(0, 1)], Resampling(seed=1))
        >>> interval.value, round(interval.low, 2), round(interval.high, 2), interval.method
        (0.25, -0.55, 1.05, 't')
    """
    table = checked_values(values, clusters) if reduce == "mean" else np.asarray(values, dtype=np.float64)
    if reduce == "median":
        medians = np.median(table, axis=1)
        return [Interval(value=float(medians[a] - medians[b]), reason=OF_MEDIANS) for a, b in pairs]
    if reduce == "mean":
        rows = {at for pair in pairs for at in pair}
        spreads = {at: mean_spread(table[at], clusters, resampling) for at in rows}
        return [
            mean_interval(clusters.mean(table[a] - table[b]), spreads[a] - spreads[b], clusters, resampling)
            for a, b in pairs
        ]
    estimates = [float(reduce(row)) for row in table]
    found = [Interval(value=estimates[a] - estimates[b], reason=no_interval(clusters)) for a, b in pairs]
    if all(each.reason for each in found):
        return found
    drawn = [replicates_of(row, clusters, resampling, reduce) for row in table]
    level = resampling.level
    return [
        percentile_interval(each.value, drawn[a] - drawn[b], level=level)
        for each, (a, b) in zip(found, pairs, strict=True)
    ]


def mean_spread(values: NDArray[np.float64], clusters: Clusters, resampling: Resampling) -> NDArray[np.float64]:
    """Return the basis of a mean's interval; for a weighted sum of means, it is the weighted sum of theirs.

    By default each cluster's contribution to the error, shape ``(n_clusters,)``: its deviations from the mean over the
    total weight. For the bootstrap, the mean of every draw, shape ``(replicates,)``.

    Examples:
        >>> mean_spread(np.array([0.0, 0.0, 1.0, 1.0]), Clusters.of([0, 0, 1, 1]), Resampling()).tolist()
        [-0.25, 0.25]
    """
    if resampling.method == "percentile":
        return replicates_of(values, clusters, resampling)
    spread: NDArray[np.float64] = clusters.sums(values[None] - clusters.mean(values))[:, 0] / clusters.totals.sum()
    return spread


def mean_interval(
    estimate: float,
    spread: NDArray[np.float64],
    clusters: Clusters,
    resampling: Resampling,
    *,
    bounds: Bounds = None,
    share: bool = False,
) -> Interval:
    """Return the interval of a mean, or of a weighted sum of means, from its :func:`mean_spread`.

    ``clusters`` are the images with their weights; ``share``: True if the values are hits and misses.
    """
    if (reason := no_interval(clusters)) is not None:
        return Interval(value=estimate, reason=reason)
    if resampling.method == "percentile":
        return percentile_interval(estimate, spread, level=resampling.level)
    hits = Hits(kish(clusters.weights), clusters.shares) if share else None
    n = clusters.n_effective
    return student_interval(estimate, spread, level=resampling.level, n_effective=n, bounds=bounds, hits=hits)


class Hits(NamedTuple):
    """Facts about a share that its cluster errors do not give: each query is a trial.

    Attributes:
        n_queries: Effective number of queries.
        shares: Fraction of the weight in each cluster, shape ``(n_clusters,)``.
    """

    n_queries: float
    shares: NDArray[np.float64]


def student_interval(
    estimate: float,
    influence: NDArray[np.float64],
    *,
    level: float,
    n_effective: float,
    bounds: Bounds = None,
    hits: Hits | None = None,
) -> Interval:
    """Return Student's t interval of a smooth result; between two bounds, in Wilson's form.

    t has one degree of freedom less than there are effective clusters, and at most two per cluster that effectively
    contributes to the spread, ``sum(u^2)^2 / sum(u^4)``: near a ceiling few clusters do (Satterthwaite 1946). For a
    share it has at most one less than there are :func:`carrying_clusters`, but this limit is never below four.

    An interval between two bounds needs ``LEAST_EFFECTIVE`` clusters, and ``LEAST_HITS`` expected hits and misses among
    the independent trials that would have this error; for a share at most as many trials as queries, for another mean
    at most as many as clusters.

    Args:
        estimate: The result.
        influence: Each cluster's contribution to its error, shape ``(n_clusters,)``.
        level: In (0, 1).
        n_effective: Kish's number of clusters, more than 1.
        bounds: Bounds of the result.
        hits: For a share only.

    Examples:
        >>> deviations = np.tile([-0.5, 0.5], 10) / 20
        >>> interval = student_interval(0.5, deviations, level=0.95, n_effective=20.0)
        >>> round(interval.low, 3), round(interval.high, 3), round(interval.standard_error, 3)
        (0.26, 0.74, 0.115)
        >>> inside = student_interval(0.5, deviations, level=0.95, n_effective=20.0, bounds=(0, 1))
        >>> round(inside.low, 3), round(inside.high, 3), inside.method
        (0.284, 0.716, 'wilson')
        >>> student_interval(0.9, deviations, level=0.95, n_effective=20.0, bounds=(0, 1)).reason
        'no interval: 0.7 effective hits or misses, at least 5 of each are needed'
    """
    squares = np.square(influence)
    spread = float(squares.sum())
    error, tail = math.sqrt(n_effective / (n_effective - 1) * spread), (1 + level) / 2
    constant = not error > DUST * max(1.0, abs(estimate))
    lowest, width = (0.0, 0.0) if bounds is None else (bounds[0], bounds[1] - bounds[0])
    if bounds is not None:
        if math.isinf(width):
            return Interval(value=estimate, standard_error=error, reason=UNBOUNDED)
        if n_effective < LEAST_EFFECTIVE * (1 - DUST):
            return Interval(value=estimate, standard_error=error, reason=FEW_IMAGES)
        share = min(1.0, max(0.0, (estimate - lowest) / width))
        most = n_effective if hits is None else hits.n_queries
        independent = most if constant else min(most, share * (1 - share) * (width / error) ** 2)
        fewer = independent * min(share, 1 - share)
        if fewer < LEAST_HITS * (1 - DUST):
            return Interval(value=estimate, standard_error=error, reason=FEW_HITS.format(n=fewer))
    if constant:
        return Interval(value=estimate, reason=NO_SPREAD)
    freedom = max(1.0, min(n_effective - 1, 2 * spread**2 / float(np.square(squares).sum())))
    if hits is not None:
        carrying = carrying_clusters(hits, error**2 * hits.n_queries / (share * (1 - share)))
        freedom = min(freedom, max(carrying - 1, min(4.0, n_effective - 1)))
    t = float(scipy.special.stdtrit(freedom, tail))
    if bounds is None:
        low, high, method = estimate - t * error, estimate + t * error, "t"
    else:
        counted = share * (1 - share) * (width / error * float(scipy.special.ndtri(tail)) / t) ** 2
        low, high = (lowest + width * end for end in wilson_interval(share * counted, counted, level=level))
        method = "wilson"
    return Interval(value=estimate, low=low, high=high, standard_error=error, method=method)


def carrying_clusters(hits: Hits, design_effect: float) -> float:
    """Return Kish's number, with the variance of each cluster in the place of its weight (Satterthwaite 1946).

    A cluster with ``m`` of ``n_queries`` has the variance ``m (1 + (m - 1) r)``, where the intraclass correlation ``r``
    follows from the design effect: among 100 images, three with 20 captions have 38% of the queries, and nearly all of
    the variance if captions hit together.

    Examples:
        >>> [round(carrying_clusters(Hits(40, np.full(8, 1 / 8)), effect), 6) for effect in (1, 3)]
        [8.0, 8.0]
        >>> shares = np.array([20] * 3 + [1] * 97) / 157
        >>> [round(carrying_clusters(Hits(157, shares), effect), 1) for effect in (1, 4, 8)]
        [19.0, 4.2, 3.5]
    """
    n_queries, shares = hits
    excess = n_queries * float(np.square(shares).sum()) - 1
    correlation = min(max((design_effect - 1) / excess, 0.0), 1.0) if excess > DUST else 0.0
    variance = shares * (1 - correlation + correlation * n_queries * shares)
    return kish(variance)


def woodruff_interval(values: NDArray[np.float64], clusters: Clusters, *, level: float) -> Interval:
    """Return the interval of a median: that of the share of queries up to it, about one half, read on the values.

    The share counts the queries below the median or those up to it, whichever is nearer to one half. Every query counts
    once.

    Examples:
        >>> found = woodruff_interval(np.arange(1.0, 42.0), Clusters.of(range(41)), level=0.95)
        >>> found.value, found.low, found.high, found.method
        (21.0, 15.0, 27.0, 'woodruff')
    """
    each, value = Clusters.of(clusters.labels, clusters.n_clusters), float(np.median(values))
    inside = min(values < value, values <= value, key=lambda of: abs(float(of.mean()) - 0.5)).astype(np.float64)
    share = float(inside.mean())
    if share in (0.0, 1.0):
        return Interval(value=value, reason=NO_SPREAD)
    scale = 0.5 / math.sqrt(share * (1 - share))
    influence = scale * each.sums(inside[None] - share)[:, 0] / len(values)
    of_share = student_interval(0.5, influence, level=level, n_effective=each.n_effective, bounds=(0, 1))
    if of_share.low is None or of_share.high is None:
        return Interval(value=value, reason=of_share.reason)
    low, high = np.quantile(values, (of_share.low, of_share.high), method="inverted_cdf").tolist()
    if low == high:
        return Interval(value=value, reason=NO_WIDTH)
    return Interval(value=value, low=low, high=high, method="woodruff")


def replicates_of(
    values: ArrayLike, clusters: Clusters, resampling: Resampling, reduce: Reduce = "mean"
) -> NDArray[np.float64]:
    """Return a result in every bootstrap draw, shape ``(replicates,)``; NaN if a draw holds no query.

    Each query counts as often as its cluster was drawn; a mean is weighted, hence a ratio of sums.

    Examples:
        >>> ranges = replicates_of([1.0, 4.0, 10.0], Clusters.of([0, 0, 1]), Resampling(replicates=50), np.ptp)
        >>> sorted({*ranges.tolist()})
        [0.0, 3.0, 9.0]
    """
    draws = count_blocks(clusters.n_clusters, replicates=resampling.replicates, seed=resampling.seed)
    if reduce == "mean":
        [row] = checked_values(values, clusters)
        sums = [clusters.sums(row[None])[:, 0], clusters.totals]
        table = np.column_stack([rounded_to_grid(each, weight=clusters.n_clusters) for each in sums])
        drawn = np.concatenate([weighted_sums(counts, narrowed(table, weight=clusters.n_clusters)) for counts in draws])
        with np.errstate(invalid="ignore"):
            means: NDArray[np.float64] = drawn[:, 0] / drawn[:, 1]
        return means
    of_queries: Aggregate = np.median if reduce == "median" else reduce
    rows, positions = np.asarray(values, dtype=np.float64), np.arange(clusters.n_queries)
    found = []
    for counts in (row for block in draws for row in block):
        chosen = np.repeat(positions, counts[clusters.labels])
        found.append(float(of_queries(rows[chosen])) if len(chosen) else math.nan)
    return np.array(found)


def percentile_interval(estimate: float, replicates: NDArray[np.float64], *, level: float) -> Interval:
    """Return the percentile interval of some replicates.

    Replicates that are NaN (a draw without a query) are left out. Quantiles interpolate linearly. There is no interval
    if all replicates or both ends are identical, if the interval does not contain the estimate, or if the bias is a
    standard error or more (as of hubness or Gini's coefficient, because draws repeat images).

    Examples:
        >>> percentile_interval(2.0, np.array([1.0, 2.0, 3.0]), level=0.5)
        Interval(value=2.0, low=1.5, high=2.5, standard_error=1.0, method='percentile', reason=None)
    """
    drawn = replicates[np.isfinite(replicates)]
    least = DUST * max(1.0, abs(estimate))
    if drawn.size < 2 or np.ptp(drawn) <= least:
        return Interval(value=estimate, reason=NO_SPREAD)
    error, mean = float(drawn.std(ddof=1)), float(drawn.mean())
    low, high = np.quantile(drawn, ((1 - level) / 2, (1 + level) / 2)).tolist()
    if high - low <= least:
        return Interval(value=estimate, standard_error=error, reason=NO_WIDTH)
    if not low <= estimate <= high or abs(mean - estimate) >= error:
        return Interval(value=estimate, reason=BIASED.format(mean=mean, value=estimate))
    return Interval(value=estimate, low=low, high=high, standard_error=error, method="percentile")


def agreeing_with_test(interval: Interval, p: float | None, *, level: float) -> Interval:
    """Return the interval of a difference, which holds 0 if and only if its test does not reject at the same level.

    The permutation test is exact for any number of clusters, the bootstrap is not: with five wins and no loss it
    excludes 0, although p is .0625. Its end nearer to 0 then moves to 0. The opposite happens by random rounding only,
    if p is just below ``1 - level``; the end then moves just beyond 0, to the side of the difference
    (``agreeing_ends``).

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


def wilson_interval(successes: float, n: float, *, level: float = 0.95) -> tuple[float, float]:
    """Return the score interval of a proportion of independent trials (Wilson 1927).

    Args:
        successes: Between 0 and ``n``; may be an expected number if ties are split.
        n: Number of independent trials, more than 0.
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


def cluster_robust_error(values: ArrayLike, clusters: Clusters) -> float:
    """Return the standard error of a mean over clustered queries, without resampling.

    The linearised (sandwich) estimate: with ``r_c`` the weighted sum of a cluster's deviations from the mean and
    ``W`` the sum of all weights, ``sqrt(G / (G - 1) * sum(r_c^2)) / W`` over the ``G`` clusters with a query. Equal
    to statsmodels' ``OLS(values, 1).fit(cov_type="cluster")``; with one query per cluster, to ``sd / sqrt(n)``.

    Raises:
        ValueError: If fewer than two clusters hold a query.

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
