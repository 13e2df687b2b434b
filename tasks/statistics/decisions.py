"""What the tests of one pair of encoders allow to say: better, worse, equivalent, or undecided.

"Not significant" is not "the same": a pair is equivalent only if its interval lies inside the margin and a test says
so, and an undecided pair always comes with how much worse the first could be. Claims have a level of their own,
``1 - ALPHA``, whatever the level of the intervals that a report shows.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from capim.tasks.statistics.multiplicity import ALPHA

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

    ``claim`` are the ends of its interval at ``1 - ALPHA`` (``tasks.statistics.bootstrap.Interval``).

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
