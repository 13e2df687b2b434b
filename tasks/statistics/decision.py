"""What tests allow to say: of two encoders, and of a result next to chance. Every statement is read from here.

Of two encoders, one interval of their difference says everything, the one that holds together with those of all other
statements of its budget (:func:`decide`):

=========== ==================================================== =======================================
state       interval of the difference                           what is said
=========== ==================================================== =======================================
better      wholly on the better side of 0                       the difference
worse       wholly on the worse side of 0                        the difference
equivalent  holds 0, lies inside the margin; a bound agrees      the margin
undecided   any other, or none                                   up to its far end worse, if it has ends
=========== ==================================================== =======================================

So the state, "up to x worse", a chart of the interval and an adjusted p-value cannot contradict each other. Claims have
a level of their own, ``1 - ALPHA``, whatever the level of the intervals that a report shows.

What is seen at once shares one budget. Within a result all pairs share it (``tasks.statistics.flips``); the planned
results of several protocols and corpora share it by :func:`over_families`; statements about chance have a second one
(:func:`against_chance`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

ALPHA = 0.05  # of a budget: the probability of any false statement
FEW = 20  # effective images up to which "few images" is next to a claim
ON_COMMON = "on the {n:,} queries that have a value of both"
NEXT_TO_ZERO = 1e-12  # an end that excludes 0 and is as good as 0
SHARERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # numbers of results that can share ``ALPHA``
Ends: TypeAlias = tuple[float, float]
State: TypeAlias = Literal["better", "worse", "equivalent", "undecided"]
AgainstChance: TypeAlias = Literal["better", "below", "open"]
TaskT = TypeVar("TaskT", bound=tuple[Any, ...])


class Decision(NamedTuple):
    """What is known of the first encoder against the second.

    Attributes:
        state: One of the table above.
        worse_by: How much worse the first could be: the far end of the interval, 0 if it is better all along; None
            without an interval.
        few_images: A claim that rests on at most ``FEW`` effective images, where tests of skewed differences err
            more often than they say.
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
    """The decision on one comparison from the simultaneous interval of the first minus the second.

    Args:
        ends: Both 0 for encoders that never differ; None without a test, or where the interval has no end.
        p_equivalent: Adjusted p-value that the difference is within ``margin``; None: not tested.
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
    """The smallest two-sided p-value that sign flips of so many equal images can have: ``2 ** (1 - n)``.

    Flips of images of unequal weight can be rarer, and say no more of the mean than those of equal ones: of ten images,
    one with 50 captions and nine with one, it follows the one.

    Examples:
        >>> least_p(6.0), round(least_p(1.39), 2)
        (0.03125, 0.76)
    """
    return float(min(1.0, 2 ** (1 - n_effective)))


def unequal_weights(n_clusters: int, n_effective: float, largest_share: float) -> str:
    """What has to be said of images that differ much in weight, as a clause; empty where half of them count or more.

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
    """The interval of a difference, which excludes 0 if and only if its (adjusted) p-value is below ``alpha``.

    A step-down test, or another correction, may decide otherwise than the interval of a single step: the end next to 0
    then moves to 0, or next to it on its side.

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
    """Return p-values adjusted by Holm (1979) for the family-wise error rate, in the order of the given ones.

    None stays None and does not count as a test: a pair that agrees on every query was never tested.

    Raises:
        ValueError: A p-value outside 0..1.

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
    """p-values that are adjusted within families, adjusted over all of them, in their order.

    Each of m families gets ``ALPHA / m``; one of which every pair is significant passes its share on to the others
    (Bretz, Maurer, Brannath and Posch 2009, A graphical approach to sequentially rejective multiple test procedures).
    Families of a single pair are adjusted as by Holm. None is no test, and a family of such counts as none.

    Examples:
        The first family is decided as a whole, and the second has all of the budget; then one that is not:

        >>> over_families([[0.01], [0.04]])
        [[0.02], [0.04]]
        >>> over_families([[0.01, 0.5, None], [0.04]])
        [[0.02, 0.5, None], [0.08]]
    """
    largest = [max((p for p in of if p is not None), default=None) for of in families]
    order = sorted((at for at, p in enumerate(largest) if p is not None), key=lambda at: largest[at] or 0.0)
    m, decided = len(order), [0.0]  # the level at which so many families are decided as a whole
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
    """The place in ``SHARERS`` of the smallest number that is not below ``n_figures``; None for more than there are.

    Examples:
        >>> SHARERS[sharer(5)], sharer(100)
        (6, None)
    """
    return next((at for at, n in enumerate(SHARERS) if n >= n_figures), None)


def images_needed(n_images: int, detectable: float, wanted: float) -> int:
    """Return about how many images like these would detect a difference of ``wanted``, to two digits, rounded up.

    The error of a difference falls with the root of the number of images: ``n (detectable / wanted)^2`` (Card et al.
    2020, With little power comes great responsibility). Both differences are in one unit; ``detectable`` is what
    ``n_images`` detect with 80% power.

    Examples:
        >>> images_needed(200, 0.0442, 0.02)
        980
    """
    needed = n_images * (detectable / wanted) ** 2
    unit = 10.0 ** max(0, math.floor(math.log10(needed)) - 1) if needed > 0 else 1.0
    return math.ceil(round(needed / unit, 9)) * int(unit)


class BesideChance(NamedTuple):
    """A result, what guessing gives, and its p-value (``tasks.statistics.chance``)."""

    value: float | None
    chance: float | None
    p: float | None


def against_chance(figures: Sequence[BesideChance]) -> list[AgainstChance | None]:
    """Return what is said of results that are seen at once, over all of them by Holm; None where nothing is.

    Examples:
        Guessers: of 20 one is likely to have p .02.

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
    """Return the tasks that enter a mean or a ranking over them: those that somebody is not at chance on.

    Somebody is an encoder that also has a value on another corpus; if all tasks are of one corpus, any encoder.

    Args:
        at_chance: A task, whose first field is its corpus, to the encoders with a value there, each with whether it was
            tested and is not shown above chance.

    Examples:
        On z only c, which has no other corpus, is above chance: a mean with z would rank a and b by noise.

        >>> weak = {("x",): {"a": False, "b": True}, ("y",): {"a": True, "b": False}}
        >>> counted({**weak, ("z",): {"a": True, "b": True, "c": False}}), counted({("z",): {"a": True, "c": False}})
        ([('x',), ('y',)], [('z',)])
    """
    found = {(encoder, task[0]) for task, of in at_chance.items() for encoder in of}
    reach, least = Counter(encoder for encoder, _ in found), min(2, len({corpus for _, corpus in found}))
    return [task for task, of in at_chance.items() if any(not weak and reach[e] >= least for e, weak in of.items())]
