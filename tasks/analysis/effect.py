"""How two encoders differ query by query: who wins where, how large the difference is, McNemar's test."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom


class Tally(NamedTuple):
    """On how many queries the first encoder does better, as well, worse."""

    wins: int
    ties: int
    losses: int


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
    if not (0 <= share_a <= 1 and 0 <= share_b <= 1):
        raise ValueError(f"shares must lie in 0..1, got {share_a} and {share_b}")
    return 2 * math.asin(math.sqrt(share_a)) - 2 * math.asin(math.sqrt(share_b))
