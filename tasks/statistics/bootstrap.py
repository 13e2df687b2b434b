"""Confidence intervals by the cluster bootstrap: images are drawn with replacement, the gallery stays as it is.

All encoders, metrics and protocols of a corpus share the same draws (``tasks.statistics.draws``), so replicates can be
subtracted from each other: that is what makes comparisons paired. Sources: Efron and Tibshirani, An Introduction to
the Bootstrap (1993), chapters 13 (percentile) and 14 (BCa); Cameron, Gelbach and Miller (2008) for drawing clusters.
Where the data allow no interval, its ends are None with a reason; an interval never has zero width by default.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from capim.tasks.statistics.clusters import Clusters, checked_values
from capim.tasks.statistics.draws import block_rows, count_blocks
from capim.tasks.statistics.multiplicity import ALPHA
from capim.tasks.statistics.resampling import Resampling
from capim.tasks.statistics.statistic import ClusteredValues, ClusterStatistic, Reduce, stacked_statistic, statistic_of

TOO_FEW_CLUSTERS = "no interval: all queries belong to one cluster (image), at least two clusters are needed"
NO_SPREAD = "no interval: all replicates are identical"
WIDENED = "interval widened to 0, which the test does not reject at its level"
NARROWED = "interval ends at 0, which the test rejects at its level"
_ROUNDING = 1e-12  # relative: replicates of a constant scorer differ by it where images have 5 or 6 captions


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate with its confidence interval.

    Attributes:
        value: The metric of the sample itself.
        low: Lower end, None where there is no interval.
        high: Upper end, None where there is no interval.
        standard_error: Standard deviation over the replicates; of a Wilson interval, the clustered error.
        method: ``percentile`` or ``bca``; ``wilson`` of a share of hits; ``none`` without an interval.
        reason: Why there is no interval, or not by the requested method.
        claim: The ends at ``1 - ALPHA`` by the same method, whatever the level: what is said of chance is read from
            them. None where nothing is said.
    """

    value: float
    low: float | None = None
    high: float | None = None
    standard_error: float | None = None
    method: str = "none"
    reason: str | None = None
    claim: tuple[float, float] | None = field(default=None, repr=False, compare=False)


def bootstrap_samples(
    samples: Sequence[ClusteredValues], resampling: Resampling, reduce: Reduce = "mean"
) -> list[list[Interval]]:
    """Intervals of many samples of one corpus at once, in one pass over the draws that they share.

    Returns:
        For each sample one :class:`Interval` per row of its values, the same as for the sample alone. Its ends are
        None, with the reason, for fewer than two clusters and for a mean that is identical in every replicate. A
        median or another aggregate often is, because most queries have the same rank: its interval is then that one
        value, given enough clusters for an interval of order statistics (``2 * 0.5 ** n <= 1 - level``: six at 95 %).

    Raises:
        ValueError: Values that do not fit their clusters, or clusters of different corpora.

    Examples:
        Two clusters are drawn as (0,0), (0,1), (1,0) or (1,1): the mean is 0, 1/2, 1/2 or 1.

        >>> hits = ClusteredValues([[0.0, 0.0, 1.0, 1.0]], Clusters.of([0, 0, 1, 1]))
        >>> [[interval]] = bootstrap_samples([hits], Resampling(replicates=400, seed=1))
        >>> interval.value, interval.low, interval.high
        (0.5, 0.0, 1.0)
    """
    if not samples:
        return []
    lengths = [len(np.atleast_2d(np.asarray(sample.values))) for sample in samples]
    occupied = [s.clusters.n_occupied for s, length in zip(samples, lengths, strict=True) for _ in range(length)]
    intervals = iter(
        bootstrap_statistic(
            stacked_statistic(samples, reduce),
            resampling,
            n_clusters=samples[0].clusters.n_clusters,
            occupied=occupied,
            may_be_constant=[reduce != "mean"] * len(occupied),
        )
    )
    return [[next(intervals) for _ in range(length)] for length in lengths]


def paired_intervals(
    values: NDArray[np.float64],
    clusters: Clusters,
    pairs: Sequence[tuple[int, int]],
    resampling: Resampling,
    reduce: Reduce = "mean",
) -> list[Interval]:
    """The difference of each pair of rows with its paired cluster-bootstrap interval.

    With shared draws the difference of the replicates of two rows is the replicate of their difference, and the
    variation that the queries have in common cancels. ``values`` have the shape ``(n_rows, n_queries)``; of each pair,
    the second row is subtracted from the first.

    Examples:
        >>> values = np.array([[1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0]])
        >>> [interval] = paired_intervals(values, Clusters.of([0, 1, 2, 3]), [(0, 1)], Resampling(seed=1))
        >>> interval.value, interval.low, interval.high
        (0.25, 0.0, 0.75)
    """
    checked = values if callable(reduce) else checked_values(values, clusters)
    statistic = statistic_of(checked, clusters, reduce)
    first, second = [a for a, _ in pairs], [b for _, b in pairs]

    def differences(weights: NDArray[np.uint8]) -> NDArray[np.float64]:
        of_rows = statistic(weights)
        return of_rows[first] - of_rows[second]

    return bootstrap_statistic(
        differences,
        resampling,
        n_clusters=clusters.n_clusters,
        occupied=[clusters.n_occupied] * len(pairs),
        may_be_constant=[reduce != "mean" and not np.array_equal(checked[a], checked[b]) for a, b in pairs],
    )


def bootstrap_statistic(
    statistic: ClusterStatistic,
    resampling: Resampling,
    *,
    n_clusters: int,
    occupied: Sequence[int],
    may_be_constant: Sequence[bool] = (),
) -> list[Interval]:
    """One interval per row of any statistic of clusters, such as a sum over protocols or a ratio.

    Args:
        statistic: Cluster weights -> values (``tasks.statistics.statistic``).
        n_clusters: Images of the corpus.
        occupied: For each row, how many clusters it has data in.
        may_be_constant: For each row, whether identical replicates give an interval of that one value, as medians do,
            instead of none; left out, none do.

    Examples:
        The ratio of two recalls:

        >>> both = statistic_of([[1, 1, 1, 0], [1, 0, 1, 0]], Clusters.of([0, 1, 2, 3]))
        >>> def ratio(weights):
        ...     ours, theirs = both(weights)
        ...     return ours[None] / np.maximum(theirs[None], 0.25)
        >>> [interval] = bootstrap_statistic(ratio, Resampling(replicates=100, seed=1), n_clusters=4, occupied=[4])
        >>> interval.value
        1.5
    """
    estimates = statistic(np.ones((1, n_clusters), dtype=np.uint8))[:, 0].tolist()
    if max(occupied) < 2:
        return [Interval(value=value, reason=TOO_FEW_CLUSTERS) for value in estimates]
    drawn = bootstrap_replicates(statistic, n_clusters, resampling)
    left_out = jackknife(statistic, n_clusters) if resampling.method == "bca" else [None] * len(estimates)
    return [
        interval_of(
            estimate,
            row,
            level=resampling.level,
            left_out=without,
            one_value=constant and 2 * 0.5**n <= 1 - resampling.level,
        )
        if n > 1
        else Interval(value=estimate, reason=TOO_FEW_CLUSTERS)
        for estimate, row, without, n, constant in zip(
            estimates, drawn, left_out, occupied, may_be_constant or [False] * len(estimates), strict=True
        )
    ]


def bootstrap_replicates(statistic: ClusterStatistic, n_clusters: int, resampling: Resampling) -> NDArray[np.float64]:
    """The statistic of every draw: float64, shape ``(n_metrics, replicates)``.

    NaN where a draw holds no query of the sample (only where few of the clusters have one).
    """
    blocks = count_blocks(n_clusters, replicates=resampling.replicates, seed=resampling.seed)
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


def interval_of(
    estimate: float,
    replicates: NDArray[np.float64],
    *,
    level: float,
    left_out: NDArray[np.float64] | None = None,
    one_value: bool = False,
) -> Interval:
    """The percentile interval of some replicates, or with ``left_out`` (the jackknife) the BCa interval.

    Replicates that are NaN (a draw without a query) are left out. Quantiles interpolate linearly, as in NumPy and
    SciPy. Identical replicates give no interval, or with ``one_value`` an interval of that value.

    Examples:
        >>> interval_of(2.0, np.array([1.0, 2.0, 3.0]), level=0.5)
        Interval(value=2.0, low=1.5, high=2.5, standard_error=1.0, method='percentile', reason=None)
    """
    drawn = replicates[np.isfinite(replicates)]
    method = "percentile" if left_out is None else "bca"
    if drawn.size < 2 or np.ptp(drawn) <= _ROUNDING * max(1.0, abs(estimate)):
        if one_value and drawn.size > 1:
            only = float(drawn[0])
            return Interval(value=estimate, low=only, high=only, standard_error=0.0, method=method)
        return Interval(value=estimate, reason=NO_SPREAD)
    error = float(drawn.std(ddof=1))
    tails = np.array([(1 - level) / 2, (1 + level) / 2, ALPHA / 2, 1 - ALPHA / 2])
    if left_out is not None:
        tails = _bca_tails(estimate, drawn, left_out, tails)
        if not np.isfinite(tails).all():
            reason = "no BCa interval: all replicates lie on one side of the estimate, the bias correction is infinite"
            return Interval(value=estimate, standard_error=error, reason=reason)
    low, high, *claim = np.quantile(drawn, tails).tolist()
    return Interval(value=estimate, low=low, high=high, standard_error=error, method=method, claim=(claim[0], claim[1]))


def in_agreement(interval: Interval, p: float | None, *, level: float) -> Interval:
    """The interval of a difference, which holds 0 if and only if the test beside it does not reject at the same level.

    The test by permutation is exact for any number of clusters, the bootstrap is not: with five wins and no loss it
    leaves 0 out, although p is .0625. Its end next to 0 then moves to 0. The opposite happens by random rounding
    only, where p is just below ``1 - level``; the end then moves to the smallest number on its side of 0.

    Examples:
        >>> five_wins = Interval(value=0.05, low=0.01, high=0.1, method="percentile")
        >>> in_agreement(five_wins, 0.0625, level=0.95).low, in_agreement(five_wins, 0.0313, level=0.95).low
        (0.0, 0.01)
    """
    low, high = interval.low, interval.high
    if p is None or low is None or high is None:
        return interval
    rejected, holds_zero = p < 1 - level - _ROUNDING, low <= 0 <= high
    if not rejected and not holds_zero:
        return replace(interval, low=min(low, 0.0), high=max(high, 0.0), reason=WIDENED)
    if rejected and holds_zero and interval.value > 0:
        return replace(interval, low=math.ulp(0.0), reason=NARROWED)
    if rejected and holds_zero and interval.value < 0:
        return replace(interval, high=-math.ulp(0.0), reason=NARROWED)
    return interval


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
