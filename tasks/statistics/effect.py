"""Per-query effect sizes of two encoders: wins and losses, McNemar's test, Cohen's d and h, odds ratio."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from tasks.statistics.clusters import Clusters

IDENTICAL = "no test: the encoders have the same value on every query"
SEVERAL_QUERIES = "no McNemar test: images have several queries, which are not independent"
NEVER_LOSES = "no odds ratio: the second encoder wins on no query, the ratio is infinite"


class Tally(NamedTuple):
    """Number of queries on which the first encoder is better, equal, worse."""

    wins: int
    ties: int
    losses: int


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Effect sizes of the first encoder against the second.

    Attributes:
        tally: Queries on which the first is better, equal, worse.
        p_mcnemar: Exact; None where images have several queries or outcomes are not plain hits and misses.
        cohen_dz: Mean difference in standard deviations of the differences.
        cohen_h: For shares: difference on the arcsine scale.
        odds_ratio: Wins over losses.
        reasons: Why something is None.
    """

    tally: Tally
    p_mcnemar: float | None
    cohen_dz: float | None
    cohen_h: float | None
    odds_ratio: float | None
    reasons: tuple[str, ...]


def effect_of(
    a: NDArray[np.float64],
    b: NDArray[np.float64],
    clusters: Clusters,
    *,
    lower_is_better: bool = False,
    share: bool = False,
) -> Effect:
    """Every effect size that is defined for these per-query values.

    Args:
        a: Values of the first encoder, shape ``(n_queries,)``.
        b: Values of the second, the same queries in the same order.
        clusters: Of those queries.
        lower_is_better: For ranks: the lower value wins.
        share: Values are expected hits, not plain zeros and ones, because scores tie.

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
        odds_ratio=odds_ratio(counts.wins, counts.losses),
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


def odds_ratio(wins: int, losses: int) -> float | None:
    """Odds of a win among the discordant pairs; None if there are none, or none lost (it would be infinite).

    Examples:
        >>> odds_ratio(30, 20)
        1.5
    """
    return wins / losses if losses else None


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


def cohen_h(share_a: float, share_b: float) -> float:
    """Difference of two shares on the arcsine scale (Cohen 1988, chapter 6); 0.2 is small, 0.5 medium, 0.8 large.

    Examples:
        >>> round(cohen_h(0.75, 0.25), 4)
        1.0472
    """
    return 2 * math.asin(math.sqrt(share_a)) - 2 * math.asin(math.sqrt(share_b))
