"""What the tests of one pair of encoders allow to say: better, worse, equivalent, or undecided.

"Not significant" is not "the same": a pair is equivalent only if its interval lies inside the margin and a test says
so, and an undecided pair always comes with how much worse the first could be. Claims have a level of their own,
``1 - ALPHA``, whatever the level of the intervals that a report shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

# --- p-values adjusted for multiple testing.


ALPHA = 0.05  # an adjusted p-value below it is significant


def adjusted(
    p_values: Sequence[float | None], adjustment: Literal["holm", "benjamini-hochberg"] = "holm"
) -> list[float | None]:
    """Adjusted p-values, in the order of the given ones.

    None stays None and does not count as a test: a pair that agrees on every query was never tested.

    Args:
        p_values: In 0..1, or None.
        adjustment: ``holm`` controls the family-wise error rate, ``benjamini-hochberg`` the false discovery rate
            (for independent or positively dependent tests).

    Raises:
        ValueError: A p-value outside 0..1.

    Examples:
        >>> adjusted([0.01, None, 0.04, 0.03])
        [0.03, None, 0.06, 0.06]
        >>> adjusted([0.01, None, 0.04, 0.03], "benjamini-hochberg")
        [0.03, None, 0.04, 0.04]
    """
    tested = [i for i, p in enumerate(p_values) if p is not None]
    p = np.array([p_values[i] for i in tested], dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"p-values must lie in 0..1, got {p[(p < 0) | (p > 1) | np.isnan(p)].tolist()}")
    result: list[float | None] = [None] * len(p_values)
    values = _holm(p) if adjustment == "holm" else scipy.stats.false_discovery_control(p)
    for i, value in zip(tested, values, strict=True):
        result[i] = float(value)
    return result


def _holm(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Holm (1979): the k-th smallest of m times m - k + 1, never below the one before."""
    order = np.argsort(p, kind="stable")
    result = np.empty_like(p)
    result[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return result


State: TypeAlias = Literal["better", "worse", "equivalent", "undecided"]


AgainstChance: TypeAlias = Literal["better", "worse", "open"]


class Decision(NamedTuple):
    """What is known of the first encoder against the second.

    Attributes:
        state: ``better`` and ``worse`` where the difference is significant, also if it is smaller than the margin;
            ``equivalent`` where it is not and lies within the margin; else ``undecided``.
        worse_by: How much worse the first could be: the far end of the simultaneous interval, 0 if it is better all
            along; None without an interval.
    """

    state: State
    worse_by: float | None


def against_chance(
    claim: tuple[float, float] | None, chance: float | None, *, lower_is_better: bool = False
) -> AgainstChance | None:
    """Whether a figure is shown to be better than chance, or worse; None where there is no interval to read it from.

    ``claim`` are the ends of its interval at ``1 - ALPHA`` (``tasks.statistics.intervals.Interval``).

    Examples:
        >>> [against_chance(ends, 0.25) for ends in ((0.3, 0.5), (0.1, 0.3), (0.0, 0.2), None)]
        ['better', 'open', 'worse', None]
    """
    if claim is None or chance is None:
        return None
    low, high = claim
    if low <= chance <= high:
        return "open"
    return "better" if (high < chance) == lower_is_better else "worse"


def decide(
    difference: float | None,
    *,
    low: float | None,
    high: float | None,
    p_adjusted: float | None,
    p_equivalent: float | None,
    margin: float | None,
    lower_is_better: bool = False,
) -> Decision:
    """The decision on one comparison; ``difference`` and its simultaneous interval are first minus second.

    Examples:
        >>> decide(0.043, low=-0.009, high=0.094, p_adjusted=0.11, p_equivalent=0.9, margin=0.01)
        Decision(state='undecided', worse_by=0.009)
        >>> decide(0.003, low=0.001, high=0.005, p_adjusted=0.01, p_equivalent=0.0001, margin=0.01)
        Decision(state='better', worse_by=0.0)
        >>> decide(0.0, low=None, high=None, p_adjusted=None, p_equivalent=0.001, margin=0.01).state
        'equivalent'
        >>> decide(0.004, low=-0.004, high=0.012, p_adjusted=0.6, p_equivalent=0.001, margin=0.01).state
        'undecided'
        >>> lower = {"margin": None, "lower_is_better": True}
        >>> decide(-2.0, low=-3.0, high=-1.0, p_adjusted=0.01, p_equivalent=None, **lower).state
        'better'
    """
    worse_by, inside = None, difference == 0  # encoders that never differ have no interval
    if low is not None and high is not None:
        worse_by = max(0.0, high if lower_is_better else -low)
        inside = margin is not None and -margin < low and high < margin
    if difference and p_adjusted is not None and p_adjusted < ALPHA:
        return Decision("better" if (difference < 0) == lower_is_better else "worse", worse_by)
    within_margin = inside and p_equivalent is not None and p_equivalent < ALPHA
    return Decision("equivalent" if within_margin else "undecided", worse_by)
