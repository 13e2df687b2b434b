"""What the tests of one pair of encoders allow to say: better, worse, equivalent, or undecided.

"Not significant" is not "the same": a pair is equivalent only if a test says so (two one-sided tests within a margin),
and an undecided pair always comes with how much worse the first could be.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from tasks.statistics.multiplicity import ALPHA

State: TypeAlias = Literal["better", "worse", "equivalent", "undecided"]


class Decision(NamedTuple):
    """What is known of the first encoder against the second.

    Attributes:
        state: ``better`` and ``worse`` where the difference is significant, also if it is smaller than the margin;
            ``equivalent`` where it is not and lies within the margin; else ``undecided``.
        worse_by: How much worse the first could be: the far end of the interval, 0 if it is better all along; None
            without an interval.
    """

    state: State
    worse_by: float | None


def decide(
    difference: float | None,
    *,
    low: float | None,
    high: float | None,
    p_adjusted: float | None,
    p_equivalent: float | None,
    lower_is_better: bool = False,
) -> Decision:
    """The decision on one comparison; ``difference`` and its interval are first minus second.

    Examples:
        >>> decide(0.043, low=-0.009, high=0.094, p_adjusted=0.11, p_equivalent=0.9)
        Decision(state='undecided', worse_by=0.009)
        >>> decide(0.003, low=0.001, high=0.005, p_adjusted=0.01, p_equivalent=0.0001)
        Decision(state='better', worse_by=0.0)
        >>> decide(0.0, low=None, high=None, p_adjusted=None, p_equivalent=0.001).state
        'equivalent'
        >>> decide(-2.0, low=-3.0, high=-1.0, p_adjusted=0.01, p_equivalent=None, lower_is_better=True).state
        'better'
    """
    worse_by = None
    if low is not None and high is not None:
        worse_by = max(0.0, high if lower_is_better else -low)
    if difference and p_adjusted is not None and p_adjusted < ALPHA:
        return Decision("better" if (difference < 0) == lower_is_better else "worse", worse_by)
    within_margin = p_equivalent is not None and p_equivalent < ALPHA
    return Decision("equivalent" if within_margin else "undecided", worse_by)
