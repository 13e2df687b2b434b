"""Effect sizes of two encoders: wins and losses, McNemar's test, Cohen's d and h, odds ratio, power, equivalence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom

from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.multiplicity import ALPHA
from capim.tasks.statistics.proportion import cluster_robust_error

IDENTICAL = "no test: the encoders have the same value on every query"
SEVERAL_QUERIES = "no McNemar test: images have several queries, which are not independent"
POWER = 0.8  # of a detectable effect
AGGREGATE = "no test and no effect size: the metric is an aggregate over queries, no mean or median of their values"
NEVER_LOSES = "no odds ratio: the second encoder wins on no query, the ratio is infinite"
_ORDER = 5  # the stream of random numbers that puts clusters in order; the seed has no say in it
_LARGEST_BET = 0.9  # of what the worst round can lose


class Tally(NamedTuple):
    """Number of queries on which the first encoder is better, equal, worse."""

    wins: int
    ties: int
    losses: int


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Effect sizes of the first encoder against the second.

    Attributes:
        tally: Queries on which the first is better, equal, worse; None for an aggregate over queries.
        p_mcnemar: Exact; None where images have several queries or outcomes are not plain hits and misses.
        cohen_dz: Mean difference in standard deviations of the differences.
        cohen_h: For shares: difference on the arcsine scale.
        odds_ratio: Wins over losses; None without a loss, where it would be infinite.
        reasons: Why something is None.
    """

    tally: Tally | None
    p_mcnemar: float | None
    cohen_dz: float | None
    cohen_h: float | None
    odds_ratio: float | None
    reasons: tuple[str, ...]


NO_EFFECT = Effect(tally=None, p_mcnemar=None, cohen_dz=None, cohen_h=None, odds_ratio=None, reasons=(AGGREGATE,))
"""Of an aggregate over queries: there is no query on which one encoder is better."""


def effect_of(
    a: NDArray[np.float64],
    b: NDArray[np.float64],
    clusters: Clusters,
    *,
    lower_is_better: bool = False,
    share: bool = False,
) -> Effect:
    """Every effect size that is defined for these per-query values.

    ``a`` and ``b`` are the values of both encoders on the same queries, shape ``(n_queries,)``. With
    ``lower_is_better`` (for ranks) the lower value wins. ``share``: values are expected hits, not plain zeros and
    ones, because scores tie.

    Examples:
        >>> effect = effect_of(np.array([1.0, 1.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0, 1.0]), Clusters.of(range(4)))
        >>> effect.tally, effect.odds_ratio, effect.p_mcnemar
        (Tally(wins=2, ties=1, losses=1), 2.0, 1.0)
    """
    counts = tally(a, b, lower_is_better=lower_is_better)
    binary = bool((np.isin(a, (0.0, 1.0)) & np.isin(b, (0.0, 1.0))).all())
    discordant = counts.wins + counts.losses
    reasons = {
        IDENTICAL: not discordant,
        SEVERAL_QUERIES: bool(discordant) and binary and not clusters.independent,
        NEVER_LOSES: bool(discordant) and not counts.losses,
    }
    return Effect(
        tally=counts,
        p_mcnemar=mcnemar_exact(counts.wins, counts.losses) if binary and clusters.independent else None,
        cohen_dz=cohen_dz(a, b),
        cohen_h=cohen_h(clusters.mean(a), clusters.mean(b)) if share or binary else None,
        odds_ratio=counts.wins / counts.losses if counts.losses else None,
        reasons=tuple(reason for reason, holds in reasons.items() if holds),
    )


def tally(a: NDArray[np.float64], b: NDArray[np.float64], *, lower_is_better: bool = False) -> Tally:
    """Queries on which ``a`` wins, ties and loses against ``b``.

    Examples:
        >>> tally(np.array([1.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0]))
        Tally(wins=1, ties=2, losses=0)
    """
    above, below = int((a > b).sum()), int((a < b).sum())
    wins, losses = (below, above) if lower_is_better else (above, below)
    return Tally(wins, len(a) - above - below, losses)


def mcnemar_exact(wins: int, losses: int) -> float | None:
    """Two-sided exact p-value of McNemar's test; None without a discordant pair.

    Given the discordant pairs, wins are binomial with one half under the null hypothesis. Only for independent
    queries: one per image.

    Examples:
        ``2 * (C(4,0) + C(4,1)) / 2^4``:

        >>> mcnemar_exact(1, 3)
        0.625
        >>> mcnemar_exact(0, 0) is None
        True
    """
    n = wins + losses
    if n == 0:
        return None
    return min(1.0, 2 * float(binom.cdf(min(wins, losses), n, 0.5)))


def cohen_dz(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    """The mean difference in standard deviations of the per-query differences (Cohen 1988, section 2.3.5).

    An effect size, not a test: queries count equally, whatever their cluster. None for fewer than two queries
    or differences that are all the same.

    Examples:
        Differences 1, 0, 1, 0: mean 1/2, standard deviation ``sqrt(1/3)``.

        >>> round(cohen_dz(np.array([1.0, 1.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0, 0.0])), 4)
        0.866
    """
    difference = a - b
    if len(difference) < 2 or np.ptp(difference) == 0:
        return None
    return float(difference.mean() / difference.std(ddof=1))


def detectable_effect(
    difference: NDArray[np.float64], clusters: Clusters, *, critical: float, share: bool = False
) -> float | None:
    """The true difference that the sign-flip test finds with 80 % power, in the unit of the metric.

    What the study could see, not evidence. The error of a share grows with the difference, because a difference of
    ``d`` needs at least a share ``d`` of queries on which the encoders differ; and the test needs a least number of
    clusters that all differ in one direction, whatever their error.

    Args:
        difference: First minus second encoder, per query, shape ``(n_queries,)``.
        critical: Studentised difference at which the test is significant: 1.96 for one pair at 5 %, more for many.
        share: The values are hits and misses.

    Returns:
        None for fewer than two clusters, and for other metrics where the encoders never differ.

    Examples:
        One win in 200 queries: six wins without a loss are significant, and 4 points give six in four studies of five.

        >>> one_win = np.zeros(200)
        >>> one_win[0] = 1
        >>> round(detectable_effect(one_win, Clusters.of(range(200)), critical=1.96, share=True), 3)
        0.039
    """
    if clusters.n_occupied < 2:
        return None
    error = cluster_robust_error(difference, clusters)
    multiple = critical + float(ndtri(POWER))
    if not share:
        return multiple * error or None
    n, spread = clusters.n_queries, float(np.var(difference))
    design_effect = error**2 * n / spread if spread > 0 else 1.0
    lost = min(float((difference > 0).mean()), float((difference < 0).mean()))
    scale = multiple**2 * design_effect / n
    by_error = (scale + math.sqrt(scale**2 + 8 * lost * scale * (1 + scale))) / (2 * (1 + scale))
    means = np.abs(clusters.sums(difference[None])[:, 0]) / np.maximum(clusters.sizes, 1)
    size = float(means[means > 0].mean()) if (means > 0).any() else 1.0  # of the difference of a cluster that differs
    least = math.ceil(1 - math.log2(2 * float(ndtr(-critical))))  # clusters, all in one direction: p = 2 ** (1 - least)
    if least > clusters.n_occupied:
        return 1.0
    by_count = size * float(beta.ppf(POWER, least, clusters.n_occupied - least + 1))
    return min(1.0, max(by_error, by_count))


def equivalence_p(
    difference: NDArray[np.float64], clusters: Clusters, *, margin: float, span: float = 1.0
) -> float | None:
    """p-value that the true difference is within ``margin``, by betting on bounded means; valid for any weights.

    Waudby-Smith and Ramdas (2024, Estimating means of bounded random variables by betting, JRSS B 86, section 4): for
    either side, what a cluster adds to the difference less what the margin allows it is a number of known bounds, whose
    mean is not below 0 if the difference is the margin or more. A gambler who bets on less, in an order that does not
    look at the data, multiplies the stake by more than ``1 / p`` with a probability of at most ``p`` (Ville's
    inequality). Neither clusters of unequal weight nor rare large differences can break that, as they break t tests.

    Args:
        difference: First minus second encoder, per query, shape ``(n_queries,)``, none larger than ``span``.
        margin: In the unit of the metric, less than ``span``.
        span: The largest difference that the metric can have, in its unit.

    Returns:
        The larger of both sides; None for fewer than two clusters.

    Examples:
        No difference in 100 queries is likely even if 1 % of all queries differ; in 1,000 it is not.

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
    """One over the largest wealth of a gambler who bets that the mean of ``excess`` is below 0, at most 1.

    Half of the stake is bet by Kelly's rule, the other half for the number of rounds; each bet depends on the rounds
    before it. ``excess``, shape ``(n_rounds,)``, is at most ``largest``.
    """
    rounds = np.arange(len(excess))
    before = np.concatenate([[0.0], np.cumsum(excess)[:-1]]) / np.maximum(rounds, 1)
    spread = (0.25 + np.concatenate([[0.0], np.cumsum(np.square(excess))[:-1]])) / (rounds + 1)
    bets = np.stack([-before / spread, np.sqrt(-2 * math.log(ALPHA) / (spread * len(excess)))])
    wealth = np.cumsum(np.log1p(-np.clip(bets, 0.0, _LARGEST_BET / largest) * excess), axis=1)
    return math.exp(-max(0.0, float(np.logaddexp(*wealth).max()) - math.log(2)))


def cohen_h(share_a: float, share_b: float) -> float:
    """Difference of two shares on the arcsine scale (Cohen 1988, chapter 6); 0.2 is small, 0.5 medium, 0.8 large.

    Examples:
        >>> round(cohen_h(0.75, 0.25), 4)
        1.0472
    """
    return 2 * math.asin(math.sqrt(share_a)) - 2 * math.asin(math.sqrt(share_b))
