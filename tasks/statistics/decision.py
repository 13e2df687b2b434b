"""Statements that tests support: about two encoders, and about a result and chance. All statements are made here.

For two encoders, every statement comes from one interval of their difference, which holds simultaneously with those of
all other statements in its error budget (:func:`decide`):

=========== ==================================================== =======================================
state       interval of the difference                           statement
=========== ==================================================== =======================================
better      wholly on the better side of 0                       the difference
worse       wholly on the worse side of 0                        the difference
equivalent  holds 0, lies inside the margin; a bound agrees      the margin
undecided   any other, or none                                   up to its far end worse, if it has ends
=========== ==================================================== =======================================

So the state, "up to x worse", a chart of the interval and an adjusted p-value cannot contradict each other. Statements
have a level of their own, ``1 - ALPHA``, independent of the level of the intervals in a report.

Statements that are shown together share one budget. Within a metric, all pairs share it (``tasks.statistics.flips``);
the planned results of several protocols and corpora share it by :func:`over_families`; statements about chance have a
second budget (:func:`against_chance`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

ALPHA = 0.05  # of a budget: the probability of any false statement
FEW = 20  # effective images up to which a statement is marked "few images"
ON_COMMON = "on the {n:,} queries that have a value of both"
NEXT_TO_ZERO = 1e-12  # an end that excludes 0 but is practically 0
SHARERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # numbers of results that can share ``ALPHA``
Ends: TypeAlias = tuple[float, float]
State: TypeAlias = Literal["better", "worse", "equivalent", "undecided"]
AgainstChance: TypeAlias = Literal["better", "below", "open"]
TaskT = TypeVar("TaskT", bound=tuple[Any, ...])


class Decision(NamedTuple):
    """The statement about the first encoder against the second.

    Attributes:
        state: A state of the table above.
        worse_by: How much worse the first could be: the far end of the interval, 0 if all of it is better; None without
            an interval.
        few_images: True if a statement rests on at most ``FEW`` effective images, where tests of skewed differences
            exceed their nominal error rate.
    """

    state: State
    worse_by: float | None
    few_images: bool = False


def decide(
    ends: Ends | None,
    *,
    p_equivalent: float | None,
    margin: float | None,
    n_effective: float = math.inf,
    lower_is_better: bool = False,
) -> Decision:
    """Return the decision on one comparison, from the simultaneous interval of the first minus the second.

    Args:
        ends: Ends of the interval. Both 0 if the encoders never differ; None without a test or a finite end.
        p_equivalent: Adjusted p-value that the difference is within ``margin``; None if not tested.
        n_effective: Kish's number of images (``tasks.statistics.clusters``).

    Examples:
        >>> decide((-0.009, 0.094), p_equivalent=0.9, margin=0.01)
        Decision(state='undecided', worse_by=0.009, few_images=False)
        >>> decide((0.001, 0.005), p_equivalent=0.0001, margin=0.01, n_effective=12.0)
        Decision(state='better', worse_by=0.0, few_images=True)
        >>> [decide(ends, p_equivalent=0.001, margin=0.01).state for ends in ((0.0, 0.0), (-0.004, 0.012), None)]
        ['equivalent', 'undecided', 'undecided']
        >>> decide((-3.0, -1.0), p_equivalent=None, margin=None, lower_is_better=True).state
        'better'
    """
    if ends is None:
        return Decision("undecided", None)
    low, high = (-ends[1], -ends[0]) if lower_is_better else ends
    state: State = "undecided"
    if low > 0 or high < 0:
        state = "better" if low > 0 else "worse"
    elif margin is not None and -margin < low and high < margin and p_equivalent is not None and p_equivalent < ALPHA:
        state = "equivalent"
    return Decision(state, max(0.0, -low), n_effective <= FEW and state != "undecided")


def least_p(n_effective: float) -> float:
    """Return the smallest two-sided p-value of sign flips with so many equal images: ``2 ** (1 - n)``.

    Images of unequal weight can give rarer flips, but these are no better evidence about the mean: with one image of 50
    captions and nine of one, the result follows the one.

    Examples:
        >>> least_p(6.0), round(least_p(1.39), 2)
        (0.03125, 0.76)
    """
    return float(min(1.0, 2 ** (1 - n_effective)))


def unequal_weights(n_clusters: int, n_effective: float, largest_share: float) -> str:
    """Return a clause about images of very unequal weight; empty if their effective number is at least half of all.

    Examples:
        >>> unequal_weights(10, 1.39, 50 / 59)
        'one image holds 85 % of the queries: 10 images count as 1.4 of equal weight'
        >>> unequal_weights(300, 290.0, 0.01)
        ''
    """
    if 2 * n_effective >= n_clusters:
        return ""
    share = f"{100 * largest_share:.{0 if largest_share >= 0.01 else 1}f} %"
    return f"one image holds {share} of the queries: {n_clusters:,} images count as {n_effective:,.1f} of equal weight"


def agreeing_ends(ends: Ends, p: float, difference: float, *, alpha: float = ALPHA) -> Ends:
    """Return a difference's interval, adjusted to exclude 0 if and only if its (adjusted) p-value is below ``alpha``.

    A step-down test, or another correction, may disagree with the interval of a single step: the end nearer to 0 then
    moves to 0, or just beyond 0 to the side of the difference.

    Examples:
        >>> agreeing_ends((0.01, 0.1), 0.06, 0.05)
        (0.0, 0.1)
        >>> agreeing_ends((-0.01, 0.1), 0.04, 0.05)
        (1e-12, 0.1)
    """
    low, high = ends
    if p >= alpha:
        return min(low, 0.0), max(high, 0.0)
    if low > 0 or high < 0 or difference == 0:
        return ends
    least = min(NEXT_TO_ZERO, abs(difference))
    return (max(low, least), max(high, least)) if difference > 0 else (min(low, -least), min(high, -least))


def adjusted(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted by Holm (1979) for the family-wise error rate, in the given order.

    None stays None and does not count as a test: a pair that agrees on every query was never tested.

    Raises:
        ValueError: If a p-value is outside 0..1.

    Examples:
        >>> adjusted([0.01, None, 0.04, 0.03])
        [0.03, None, 0.06, 0.06]
    """
    tested = [i for i, p in enumerate(p_values) if p is not None]
    p = np.array([p_values[i] for i in tested], dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"p-values must lie in 0..1, got {p[(p < 0) | (p > 1) | np.isnan(p)].tolist()}")
    result: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for place, at in enumerate(np.argsort(p, kind="stable").tolist()):
        largest = max(largest, float(p[at]) * (len(p) - place))
        result[tested[at]] = min(1.0, largest)
    return result


def over_families(families: Sequence[Sequence[float | None]]) -> list[list[float | None]]:
    """Return p-values that are adjusted within families, adjusted over all families, in the same order.

    Each of m families gets ``ALPHA / m``; a family in which every pair is significant passes its part on to the others
    (Bretz, Maurer, Brannath and Posch 2009, A graphical approach to sequentially rejective multiple test procedures).
    Families of a single pair are adjusted as by Holm. None is not a test; a family without tests does not count.

    Examples:
        The first family is decided completely, so the second has the whole budget; then one that is not:

        >>> over_families([[0.01], [0.04]])
        [[0.02], [0.04]]
        >>> over_families([[0.01, 0.5, None], [0.04]])
        [[0.02, 0.5, None], [0.08]]
    """
    largest = [max((p for p in of if p is not None), default=None) for of in families]
    order = sorted((at for at, p in enumerate(largest) if p is not None), key=lambda at: largest[at] or 0.0)
    m, decided = len(order), [0.0]  # the level at which the first families are decided completely
    for place, at in enumerate(order):
        decided.append(max(decided[-1], (m - place) * (largest[at] or 0.0)))
    result: list[list[float | None]] = [[None] * len(of) for of in families]
    for place, at in enumerate(order):
        for pair, p in enumerate(families[at]):
            if p is not None:
                shares = (max(decided[before], (m - before) * p) for before in range(place + 1))
                result[at][pair] = min(1.0, *shares)
    return result


def sharer(n_figures: int) -> int | None:
    """Return the index in ``SHARERS`` of the smallest number that is at least ``n_figures``; None above the largest.

    Examples:
        >>> SHARERS[sharer(5)], sharer(100)
        (6, None)
    """
    return next((at for at, n in enumerate(SHARERS) if n >= n_figures), None)


def images_needed(n_images: int, detectable: float, wanted: float) -> int:
    """Return about how many such images would detect a difference of ``wanted``, rounded up to two digits.

    The error of a difference falls with the square root of the number of images: ``n (detectable / wanted)^2`` (Card et
    al. 2020, With little power comes great responsibility). Both differences have the same unit; ``detectable`` is the
    difference that ``n_images`` detect with 80% power.

    Examples:
        >>> images_needed(200, 0.0442, 0.02)
        980
    """
    needed = n_images * (detectable / wanted) ** 2
    unit = 10.0 ** max(0, math.floor(math.log10(needed)) - 1) if needed > 0 else 1.0
    return math.ceil(round(needed / unit, 9)) * int(unit)


class BesideChance(NamedTuple):
    """A result, its chance value, and its p-value (``tasks.statistics.chance``)."""

    value: float | None
    chance: float | None
    p: float | None


def against_chance(figures: Sequence[BesideChance]) -> list[AgainstChance | None]:
    """Return the statement about each of several results shown together, adjusted by Holm; None without a p-value.

    Examples:
        Twenty guessers, one of them with p .02, as is likely:

        >>> against_chance([BesideChance(0.6, 0.5, 0.02)] + [BesideChance(0.5, 0.5, 0.9)] * 19)[:2]
        ['open', 'open']
        >>> against_chance([BesideChance(0.6, 0.5, 0.001), BesideChance(0.1, 0.5, 0.001), BesideChance(1, 1, None)])
        ['better', 'below', None]
    """
    labels: list[AgainstChance | None] = []
    for (value, chance, _), p in zip(figures, adjusted([figure.p for figure in figures]), strict=True):
        if p is None or value is None or chance is None:
            labels.append(None)
        else:
            labels.append("open" if p >= ALPHA else "better" if value > chance else "below")
    return labels


def counted(at_chance: Mapping[TaskT, Mapping[Any, bool]]) -> list[TaskT]:
    """Return the tasks that enter a mean or a ranking over them: those on which some encoder is above chance.

    The encoder must also have a value on another corpus; if all tasks are of one corpus, any encoder counts.

    Args:
        at_chance: Task (its first field is the corpus) -> encoder with a value there -> True if it was tested and is
            not significantly above chance.

    Examples:
        On z only c, which has no other corpus, is above chance: a mean with z would rank a and b by noise.

        >>> weak = {("x",): {"a": False, "b": True}, ("y",): {"a": True, "b": False}}
        >>> counted({**weak, ("z",): {"a": True, "b": True, "c": False}}), counted({("z",): {"a": True, "c": False}})
        ([('x',), ('y',)], [('z',)])
    """
    found = {(encoder, task[0]) for task, of in at_chance.items() for encoder in of}
    reach, least = Counter(encoder for encoder, _ in found), min(2, len({corpus for _, corpus in found}))
    return [task for task, of in at_chance.items() if any(not weak and reach[e] >= least for e, weak in of.items())]
