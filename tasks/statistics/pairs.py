"""Paired comparisons of encoders on the same queries: the difference, its uncertainty and its size.

Two encoders are never compared by the overlap of their intervals, nor by a difference over pooled standard deviations
read as a z value: both ignore that the encoders were evaluated on the same images.

"Encoder" means anything that gives each query a value: models, two revisions of one model (regression watch), two
precisions of its vectors, two translators of the same captions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from capim.tasks.statistics.clusters import Clusters, known_queries
from capim.tasks.statistics.decision import ALPHA, ON_COMMON, SHARERS, Ends, adjusted, agreeing_ends, least_p
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.flips import NO_TEST, FlipTest, sign_flip_tests
from capim.tasks.statistics.intervals import (
    DUST,
    Interval,
    Reduce,
    agreeing_with_test,
    cluster_robust_error,
    no_interval,
    paired_intervals,
    student_interval,
    wilson_interval,
)

IDENTICAL = "no test: the encoders have the same value on every query"
POWER = 0.8  # of a detectable effect
LEAST_STUDIED = 30.0  # effective clusters from which a detectable effect is reported
AGGREGATE = "no test and no effect size: the metric is an aggregate over queries, no mean of their values"
SKEWED = "no interval and no test: a few queries decide a mean without an upper bound; see the median rank or MRR"
HEAVY = "no claim: so few images hold so much of the weight that no difference can be told from another"
NO_ENDS = "no claim: an interval that holds for all pairs would have no width"
NO_COMMON_QUERY = "no comparison: no query has a value of both encoders"
TWO_SIDED = 1.959963984540054  # ndtri(0.975): the studentised difference at which one pair is significant at 5%
_ORDER = 5  # the stream of random numbers that orders clusters, independent of the seed
_LARGEST_BET = 0.9  # fraction of the largest possible loss in a round


def tally(a: NDArray[np.float64], b: NDArray[np.float64], *, lower_is_better: bool = False) -> tuple[int, int, int]:
    """Return the number of queries on which ``a`` wins, ties and loses against ``b``.

    Examples:
        >>> tally(np.array([1.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0]))
        (1, 2, 0)
    """
    above, below = int((a > b).sum()), int((a < b).sum())
    wins, losses = (below, above) if lower_is_better else (above, below)
    return wins, len(a) - above - below, losses


def cohen_dz(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    """Return the mean difference in standard deviations of the per-query differences (Cohen 1988, section 2.3.5).

    An effect size, not a test: queries count equally, whatever their cluster. None for fewer than two queries or if all
    differences are equal.

    Examples:
        Differences 1, 0, 1, 0: mean 1/2, standard deviation ``sqrt(1/3)``.

        >>> round(cohen_dz(np.array([1.0, 1.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0, 0.0])), 4)
        0.866
    """
    difference = a - b
    return float(difference.mean() / difference.std(ddof=1)) if np.ptp(difference) > 0 else None


def detectable_effect(
    difference: NDArray[np.float64], clusters: Clusters, *, critical: float, share: bool = False
) -> float | None:
    """Return the true difference that the sign-flip test finds with 80% power, in the unit of the metric.

    This describes the study and is not evidence. The error of a share grows with the difference, because a difference
    of ``d`` needs at least a share ``d`` of queries on which the encoders differ; and the test needs a least number of
    clusters that all differ in one direction, whatever their error. Both are rough with few clusters: there is no
    result below ``LEAST_STUDIED`` effective ones (with 10, the difference had a power of .39 to .64).

    Args:
        difference: First minus second encoder, per query, shape ``(n_queries,)``.
        critical: Studentised difference at which the test is significant: 1.96 for one pair at 5%, more for many.
        share: True if the values are hits and misses.

    Returns:
        The difference; None with fewer effective clusters, and for other metrics if the encoders never differ.

    Examples:
        One win in 200 queries: six wins without a loss are significant, and 4 points give six in four of five studies.

        >>> one_win = np.zeros(200)
        >>> one_win[0] = 1
        >>> round(detectable_effect(one_win, Clusters.of(range(200)), critical=1.96, share=True), 3)
        0.039
    """
    if clusters.n_effective < LEAST_STUDIED:
        return None
    error, n_effective = cluster_robust_error(difference, clusters), clusters.n_effective
    inside = max(1 - critical**2 / n_effective, 1 / n_effective)  # the test's own error grows with the difference
    multiple = critical / math.sqrt(inside) + float(scipy.special.stdtrit(n_effective - 1, POWER))
    if not share:
        return multiple * error or None
    n, spread = clusters.n_queries, float(np.var(difference))
    design_effect = error**2 * n / spread if spread > 0 else 1.0
    lost = min(float((difference > 0).mean()), float((difference < 0).mean()))
    scale = multiple**2 * design_effect / n
    by_error = (scale + math.sqrt(scale**2 + 8 * lost * scale * (1 + scale))) / (2 * (1 + scale))
    means = np.abs(clusters.sums(difference[None])[:, 0]) / np.maximum(clusters.sizes, 1)
    size = float(means[means > 0].mean()) if (means > 0).any() else 1.0  # difference of a cluster that differs
    p = 2 * float(scipy.special.ndtr(-critical))
    least = math.ceil(1 - math.log2(p))  # clusters, all in one direction: p = 2 ** (1 - least)
    if least > n_effective:
        return 1.0
    by_count = size * float(scipy.special.betaincinv(least, n_effective - least + 1, POWER))
    return min(1.0, max(by_error, by_count))


def equivalence_p(
    difference: NDArray[np.float64], clusters: Clusters, *, margin: float, span: float = 1.0
) -> float | None:
    """Return the p-value that the true difference is within ``margin``, by betting on bounded means; for any weights.

    Waudby-Smith and Ramdas (2024, Estimating means of bounded random variables by betting, JRSS B 86, section 4): for
    each side, a cluster's contribution to the difference, less the margin's part of it, is a number within known
    bounds. Its mean is not below 0 if the difference is the margin or more. A gambler who bets on less, in an order
    that does not depend on the data, multiplies the stake by more than ``1 / p`` with a probability of at most ``p``
    (Ville's inequality). Unequal cluster weights and rare large differences, which invalidate t tests, do not
    invalidate this.

    Args:
        difference: First minus second encoder, per query, shape ``(n_queries,)``, none larger than ``span``.
        margin: In the unit of the metric, less than ``span``.
        span: The largest difference that the metric can have, in its unit.

    Returns:
        The larger p-value of both sides; None for fewer than two clusters.

    Examples:
        No difference in 100 queries is likely even if 1% of all queries differ; in 1,000 it is not.

        >>> [round(equivalence_p(np.zeros(n), Clusters.of(range(n)), margin=0.01), 4) for n in (100, 1000)]
        [0.4261, 0.0001]
    """
    if clusters.n_occupied < 2:
        return None
    occupied = clusters.sizes > 0
    order = np.random.default_rng((_ORDER, clusters.n_occupied)).permutation(clusters.n_occupied)
    weights = (clusters.totals[occupied] / clusters.totals.max())[order]
    sums = clusters.sums(difference[None] / span)[occupied, 0][order] / clusters.totals.max()
    share = margin / span
    return max(_least_stake(side * sums - share * weights, largest=1 - share) for side in (1, -1))


def _least_stake(excess: NDArray[np.float64], *, largest: float) -> float:
    """Return one over the largest wealth, at most 1, of a gambler who bets that the mean of ``excess`` is below 0.

    Half of the stake is bet by Kelly's rule, the other half for the number of rounds; each bet depends on earlier
    rounds. ``excess``, shape ``(n_rounds,)``, is at most ``largest``.
    """
    rounds = np.arange(len(excess))
    before = np.concatenate([[0.0], np.cumsum(excess)[:-1]]) / np.maximum(rounds, 1)
    spread = (0.25 + np.concatenate([[0.0], np.cumsum(np.square(excess))[:-1]])) / (rounds + 1)
    bets = np.stack([-before / spread, np.sqrt(-2 * math.log(ALPHA) / (spread * len(excess)))])
    wealth = np.cumsum(np.log1p(-np.clip(bets, 0.0, _LARGEST_BET / largest) * excess), axis=1)
    return math.exp(-max(0.0, float(np.logaddexp(*wealth).max()) - math.log(2)))


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How per-query values become a result, and how its differences are interpreted.

    Attributes:
        reduce: How the values become the result. Only means are tested: for a median or an aggregate, a query has no
            winner.
        lower_is_better: For ranks: wins are queries with the lower value. The difference stays ``a`` minus ``b``.
        share: True if values are hits and misses, or expected hits if scores tie.
        span: Largest possible difference of the result, in its unit: ``Resampling.margin`` is a percentage of it. None
            if unknown: equivalence is not tested. Infinite for a mean rank: nothing is tested.
    """

    reduce: Reduce = "mean"
    lower_is_better: bool = False
    share: bool = False
    span: float | None = None

    @property
    def tested(self) -> bool:
        """True if differences of the result are tested."""
        return self.reduce == "mean" and self.span != math.inf

    def margin(self, resampling: Resampling) -> float | None:
        """Return the largest difference of equivalent encoders, in the unit of the result; None if not tested."""
        return resampling.margin / 100 * self.span if self.span is not None and self.tested else None


PLAIN_MEAN = Scale()


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Comparison of two encoders, ``a`` minus ``b``, under one metric.

    Attributes:
        difference: With the paired interval, in the metric's unit; its value is NaN without a common query. The
            interval holds 0 if and only if the unadjusted test of this pair does not reject at its level.
        simultaneous: Ends of the difference's interval that holds for all pairs compared together at ``1 - ALPHA``,
            whatever the level: it excludes 0 if ``p_adjusted`` is below ``ALPHA``. None without a test, if so few
            clusters have so much of the weight that no result has an interval, or if it would have no width: then
            nothing is claimed.
        shared: The ends if several results share ``ALPHA``, for each of ``decision.SHARERS``, before they are made to
            agree with a p-value over these results; the last ones are missing if they have no end.
        p_adjusted: The sign-flip p-value adjusted over all pairs compared together.
        detectable_effect: True difference that this comparison detects with 80% power, at the adjusted level.
        p_equivalent: p-value that the true difference is within the margin, adjusted (Holm) over all pairs; None for a
            metric without a range.
        wins: Number of queries on which the first is better; None, like ``ties`` and ``losses``, for an aggregate.
        cohen_dz: Mean difference in standard deviations of the differences.
        n_queries: Number of queries on which both have a value.
        n_clusters: Number of images of these queries.
        n_effective: Kish's number of these images.
        reason: Why values are None; several reasons are joined by ``"; "``.
    """

    a: str
    b: str
    difference: Interval
    simultaneous: Ends | None
    shared: tuple[Ends, ...]
    flip_test: FlipTest
    p_adjusted: float | None
    wins: int | None
    ties: int | None
    losses: int | None
    cohen_dz: float | None
    detectable_effect: float | None
    p_equivalent: float | None
    n_queries: int
    n_clusters: int
    n_effective: float
    reason: str | None


def _differences(
    values: NDArray[np.float64],
    clusters: Clusters,
    pairs: Sequence[tuple[int, int]],
    resampling: Resampling,
    scale: Scale,
) -> list[Interval]:
    """Return the paired intervals of rows that have both values on each of these queries."""
    if not clusters.n_queries:
        return [Interval(value=np.nan, reason=NO_COMMON_QUERY)] * len(pairs)
    if scale.reduce == "mean" and not scale.tested:
        return [Interval(value=clusters.mean(values[a] - values[b]), reason=SKEWED) for a, b in pairs]
    rows = sorted({row for pair in pairs for row in pair})  # other rows may lack a value on these queries
    places = [(rows.index(a), rows.index(b)) for a, b in pairs]
    return paired_intervals(values[rows], clusters, places, resampling, scale.reduce)


def compare_encoders(
    values: Mapping[str, ArrayLike], clusters: Clusters, resampling: Resampling, scale: Scale = PLAIN_MEAN
) -> list[Comparison]:
    """Compare every pair of encoders under one metric.

    Args:
        values: Encoder -> per-query values, shape ``(n_queries,)``, with the queries in the same order for all. A pair
            is compared on the queries where neither is NaN. For an aggregate a query may have several numbers, shape
            ``(n_queries, ...)``.
        clusters: Clusters of these queries, with their weights.
        resampling: Settings of the intervals and random flips.

    Returns:
        One :class:`Comparison` per pair, in the order of ``itertools.combinations`` of the keys.

    Raises:
        ValueError: If an encoder has another number of queries than the clusters, or an infinite value.

    Examples:
        >>> hits = {"old": [0, 0, 0, 1, 0, 0], "new": [1, 1, 1, 1, 1, 1]}
        >>> [c] = compare_encoders(hits, Clusters.of(range(6)), Resampling())
        >>> round(c.difference.value, 3), c.wins, c.losses, c.flip_test.p
        (-0.833, 0, 5, 0.0625)
    """
    names = list(values)
    pairs = list(combinations(range(len(names)), 2))
    if not pairs:
        return []
    table = np.stack([_row(name, row, clusters) for name, row in values.items()])
    known = np.stack([known_queries(row) for row in table])
    common = [known[a] & known[b] for a, b in pairs]
    alike: dict[bytes, list[int]] = {}  # the pairs that have the same queries in common
    for at, queries in enumerate(common):
        alike.setdefault(queries.tobytes(), []).append(at)
    tested = [at for at, queries in enumerate(common) if queries.any() and scale.tested]
    drawn = sign_flip_tests(table, clusters, [pairs[at] for at in tested], resampling) if tested else []
    tests = dict(zip(tested, drawn, strict=True))
    found: dict[int, Comparison] = {}
    for places in alike.values():
        queries, members = common[places[0]], [pairs[at] for at in places]
        inside = clusters if queries.all() else clusters.only(queries)
        differences = _differences(table[:, queries], inside, members, resampling, scale)
        for at, (a, b), difference in zip(places, members, differences, strict=True):
            fewer = bool((known[[a, b]] & ~queries).any())
            of_both, test = (table[a][queries], table[b][queries]), tests.get(at, NO_TEST)
            found[at] = _compared(
                (names[a], names[b]), of_both, inside, difference, test, resampling, scale, fewer=fewer
            )
    compared = [found[at] for at in range(len(pairs))]
    p_equivalent = adjusted([each.p_equivalent for each in compared])
    return [replace(each, p_equivalent=same) for each, same in zip(compared, p_equivalent, strict=True)]


def _compared(
    names: tuple[str, str],
    values: tuple[NDArray[np.float64], NDArray[np.float64]],
    clusters: Clusters,
    difference: Interval,
    flip: FlipTest,
    resampling: Resampling,
    scale: Scale,
    *,
    fewer: bool,
) -> Comparison:
    """Compare two encoders by their values, their difference and their test; the equivalence p-value is not adjusted.

    ``values`` are given on the queries of ``clusters``, which both have; ``fewer``: True if one encoder has more
    queries.
    """
    per_query, p_equivalent, detectable = values[0] - values[1], None, None
    won: tuple[int, int, int] | tuple[None, None, None] = (None, None, None)
    dz = None
    reasons = [AGGREGATE] if clusters.n_queries and callable(scale.reduce) else []
    if clusters.n_queries and not callable(scale.reduce):
        won, dz = tally(*values, lower_is_better=scale.lower_is_better), cohen_dz(*values)
        reasons = reasons if won[0] + won[2] else [IDENTICAL]
    if clusters.n_queries and (margin := scale.margin(resampling)) is not None:
        p_equivalent = equivalence_p(per_query, clusters, margin=margin, span=scale.span or 1.0)
    difference = agreeing_with_test(difference, flip.p, level=resampling.level)
    if scale.span is not None and difference.low is not None and difference.high is not None:
        difference = replace(difference, low=max(difference.low, -scale.span), high=min(difference.high, scale.span))
    if IDENTICAL not in reasons:  # the only reason for encoders that never differ
        reasons = [difference.reason, *reasons] if difference.reason else reasons
        if scale.tested and clusters.n_queries:
            critical = (flip.criticals or (TWO_SIDED,))[0]
            detectable = detectable_effect(per_query, clusters, critical=critical, share=scale.share)
    own = difference if resampling.level <= 1 - ALPHA else Interval(value=difference.value)
    criticals = () if (unsure := no_interval(clusters) is not None) else flip.criticals
    shared = tuple(_simultaneous(per_query, own, clusters, criticals, scale)) if criticals else ()
    simultaneous, p_adjusted = None, None
    if shared:  # made to agree with the adjusted p-value
        p_adjusted = max(flip.p_adjusted or 0.0, least_p(clusters.n_effective))
        simultaneous = agreeing_ends(shared[0], p_adjusted, difference.value)
    elif flip.criticals:
        reasons.append(HEAVY if unsure else NO_ENDS)
    reasons += [ON_COMMON.format(n=clusters.n_queries)] * (fewer and clusters.n_queries > 0)
    return Comparison(
        a=names[0],
        b=names[1],
        difference=difference,
        simultaneous=simultaneous,
        shared=shared,
        flip_test=flip,
        p_adjusted=p_adjusted,
        wins=won[0],
        ties=won[1],
        losses=won[2],
        cohen_dz=dz,
        detectable_effect=detectable,
        p_equivalent=p_equivalent,
        n_queries=clusters.n_queries,
        n_clusters=clusters.n_occupied,
        n_effective=clusters.n_effective,
        reason="; ".join(reasons) or None,
    )


def _row(name: str, row: ArrayLike, clusters: Clusters) -> NDArray[np.float64]:
    values = np.asarray(row, dtype=np.float64)
    if values.shape[:1] != (clusters.n_queries,):
        raise ValueError(
            f"encoder {name!r}: values have shape {values.shape}, but the clusters are those of {clusters.n_queries} "
            "queries; give one value per query, in the same order"
        )
    if np.isinf(values).any():
        raise ValueError(f"encoder {name!r}: {int(np.isinf(values).sum())} values are infinite")
    return values


def _simultaneous(
    per_query: NDArray[np.float64], own: Interval, clusters: Clusters, criticals: Sequence[float], scale: Scale
) -> Iterator[Ends]:
    """Yield, for each critical value, the ends that hold simultaneously with all other pairs, never inside ``own``.

    They are Student's interval of one pair, at the level at which a normal difference exceeds the critical value; if
    all images have the same difference, Wilson's, as if each had one of the two extreme differences.
    """
    n, most = clusters.n_effective, math.inf if scale.span is None else scale.span
    deviations = clusters.sums(per_query[None] - own.value)[:, 0] / clusters.totals.sum()
    for sharers, critical in zip(SHARERS, criticals, strict=False):
        level = 1 - min(ALPHA / sharers, 2 * float(scipy.special.ndtr(-critical)))
        found = student_interval(own.value, deviations, level=level, n_effective=n)
        if found.low is None and math.isfinite(most):
            ends = wilson_interval(n * float(np.clip(0.5 + own.value / most / 2, 0, 1)), n, level=level)
            found = replace(found, low=most * (2 * ends[0] - 1), high=most * (2 * ends[1] - 1))
        known = [end for end in (found.low, found.high, own.low, own.high, own.value) if end is not None]
        if max(known) - min(known) <= DUST * max(1.0, abs(own.value)):
            return
        yield max(min(known), -most), min(max(known), most)
