"""Changes between two states of a store, and their verdicts: tests, settings, and the rules of the watch.

Both ``capim report --compare`` and the regression watch use it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from capim.store.schema import Comparison, Result
from capim.tasks.statistics.decision import ALPHA, adjusted
from capim.tasks.statistics.draws import Resampling, narrowed, rounded_to_grid, weighted_sums
from capim.tasks.statistics.flips import FlipTest, shared_flips, tests_of_flips

FigureKey: TypeAlias = tuple[str, str, str, str]
"""Corpus, protocol, metric and encoder."""

Falls: TypeAlias = "tuple[Sequence[FigureChange], NDArray[np.float64]]"
"""Results of queries in the same clusters, and the fall of each cluster, shape ``(n_clusters, n_figures)``:
earlier minus later value, summed over a cluster's queries."""

Basis: TypeAlias = Literal["same rows", "paired test", "unpaired bound", "another version", "none"]


@dataclass(frozen=True, kw_only=True)
class FigureChange:
    """One result in both states.

    Attributes:
        old: Its value in the old state.
        new: Its value in the new state.
        since: Description of the old state, if it is the baseline of a watch.
        difference: New minus old; None if a value is missing.
        p: p-value of the difference, or an upper bound of it; None if unknown.
        basis: Source of ``p``. ``same rows``: results of the same evaluation, which need no test; ``another version``:
            results of different code of the metric, which cannot be tested.
        p_adjusted: The p-value after Holm's correction over all results of one :func:`adjust`.
        n_units: Number of images (or queries) that the test flips; 0 without such a test.
        n_queries: Number of pairs of an old and a new value in the difference; 0 if it is of no such pairs.
    """

    key: FigureKey
    old: float | None = None
    new: float | None = None
    since: str = ""
    difference: float | None
    p: float | None
    basis: Basis
    lower_is_better: bool = False
    p_adjusted: float | None = None
    n_units: int = 0
    n_queries: int = 0

    @property
    def significant(self) -> bool:
        """True if the adjusted p-value is below 5%."""
        return self.is_significant(ALPHA)

    @property
    def worse(self) -> bool:
        """True if the result became worse, significantly or not."""
        return bool(self.difference) and ((self.difference or 0.0) > 0) == self.lower_is_better

    def is_significant(self, alpha: float) -> bool:
        """True if the adjusted p-value is below ``alpha``."""
        return self.p_adjusted is not None and self.p_adjusted < alpha

    def has_too_few_units(self, level: float) -> bool:
        """True if so few images cannot make any change significant at this level."""
        return 0 < self.n_units < units_needed(level)


class SettingChange(NamedTuple):
    """A changed setting: its subject (``library``, ``encoder NAME``), its name, and both values (None if absent)."""

    subject: str
    setting: str
    old: object
    new: object


def figure_changes(
    old: Mapping[FigureKey, Result], new: Mapping[FigureKey, Result], comparisons: Iterable[Comparison]
) -> list[FigureChange]:
    """Return every result that both states have, by corpus, protocol, metric and encoder, with adjusted p-values.

    A paired test among ``comparisons``, of either state, is preferred.
    """
    tests = {
        (r.corpus, r.protocol, r.metric, *sorted((r.fingerprint_a, r.fingerprint_b))): r.p_sign_flip
        for r in comparisons
        if r.p_sign_flip is not None
    }
    changes = []
    for key in sorted(old.keys() & new):
        before, after = old[key], new[key]
        difference = None if before.value is None or after.value is None else after.value - before.value
        pair = (*key[:3], *sorted((before.encoder_fingerprint, after.encoder_fingerprint)))
        basis, p = _basis(before, after, tests.get(pair), difference)
        of: dict[str, Any] = {
            "difference": difference,
            "p": p,
            "basis": basis,
            "lower_is_better": after.lower_is_better,
        }
        changes.append(FigureChange(key=key, old=before.value, new=after.value, **of))
    return adjust(changes)


def _basis(
    before: Result, after: Result, p_paired: float | None, difference: float | None
) -> tuple[Basis, float | None]:
    """Return the best available test of a difference, and its p-value."""
    if difference is None:
        return "none", None
    if before.metric_version != after.metric_version:
        return "another version", None
    if before.evaluation == after.evaluation:
        return "same rows", None
    if before.corpus_fingerprint == after.corpus_fingerprint and p_paired is not None:
        return "paired test", p_paired
    p = unpaired_bound(difference, before.standard_error, after.standard_error)
    return "none" if p is None else "unpaired bound", p


def adjust(changes: Sequence[FigureChange]) -> list[FigureChange]:
    """Return the changes with their p-values adjusted by Holm over all of them that have one."""
    p_values = adjusted([change.p for change in changes])
    return [replace(change, p_adjusted=p) for change, p in zip(changes, p_values, strict=True)]


def setting_changes(subject: str, old: Mapping[str, object], new: Mapping[str, object]) -> list[SettingChange]:
    """Return every setting with a different value, by name.

    Examples:
        >>> setting_changes("library", {"torch": "2.6", "numpy": "2.0"}, {"torch": "2.7", "numpy": "2.0"})
        [SettingChange(subject='library', setting='torch', old='2.6', new='2.7')]
    """
    return [
        SettingChange(subject, name, old.get(name), new.get(name))
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]


def unpaired_bound(difference: float, old_error: float | None, new_error: float | None) -> float | None:
    """Return an upper bound of the p-value of a difference between two results of one model on one corpus.

    The two results come from the same queries and are positively correlated; the standard error of their difference is
    at most ``sqrt(a² + b²)``, its value if they were independent. The normal p-value from that error is never too
    small: a small one can be trusted; a large one needs a paired test.

    Returns:
        The bound; None if a standard error is missing or both are zero.

    Examples:
        >>> round(unpaired_bound(0.05, 0.02, 0.015), 4)
        0.0455
        >>> unpaired_bound(0.05, None, 0.01)
    """
    if old_error is None or new_error is None or not (old_error or new_error):
        return None
    return math.erfc(abs(difference) / math.hypot(old_error, new_error) / math.sqrt(2))


DAYS_PER_YEAR = 365.0
MOST_DAYS = 31.0  # the longest time that one watch can account for
Verdict = Literal["fail", "unpinned", "pinned", "warn", "note"]


class WatchFinding(NamedTuple):
    """One finding: ``fail`` and ``warn`` by rule, ``note`` for a possible cause.

    With nothing to compare with, the verdict is ``pinned``, or ``unpinned`` of a strict watch. Of a drop, the values,
    the test and the number of its pairs are columns of their own.
    """

    verdict: Verdict
    subject: str
    message: str
    protocol: str | None = None
    metric: str | None = None
    before: float | None = None
    now: float | None = None
    test: str | None = None
    p_adjusted: float | None = None
    level: float | None = None
    n_queries: int | None = None
    n_images: int | None = None


@dataclass(frozen=True, kw_only=True)
class WatchRule:
    """Limits at which a difference is a regression. The form of a deployment shows the strings below its fields."""

    __pydantic_config__ = {"use_attribute_docstrings": True}  # noqa: RUF012 - as pydantic reads it

    sample: int = 16
    """Items per set that are encoded again."""
    fail_cosine: float = 0.999
    """Lowest cosine between new and stored vector of an item that does not fail. Storage as float16 keeps it above
    0.999999."""
    warn_cosine: float = 0.9999
    """Lowest cosine that does not warn."""
    fail_drop: float = 0.01
    """Smallest drop of a result that fails if it is significant and warns if it is not (a fraction: 0.01 is one point);
    smaller significant drops warn."""
    strict: bool = False
    """Also fails: a drop of ``fail_drop`` where so few images cannot show that any drop is significant, and an encoder
    and corpus that have nothing to be compared with."""
    alpha: float = 0.03
    """Highest probability that the watches of a year find any significant drop although nothing changed. Below one
    in twenty, because the test ignores that the images of a corpus share a gallery."""

    def __post_init__(self) -> None:
        if self.sample < 1:
            raise ValueError(f"sample must be at least 1, got {self.sample}")
        if not self.fail_cosine <= self.warn_cosine <= 1:
            raise ValueError(f"expected fail_cosine <= warn_cosine <= 1, got {self.fail_cosine} and {self.warn_cosine}")
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha must lie strictly between 0 and 1, got {self.alpha}; the default is 0.03")

    @property
    def least_drop(self) -> str:
        """``fail_drop`` as text: ``1 point``."""
        points = 100 * self.fail_drop
        return f"{points:g} point{'s' if points != 1 else ''}"

    def alarm_level(self, days: float) -> float:
        """Return the level of a watch that comes so many days after the last one: that fraction of a year's ``alpha``.

        All watches of a year together spend ``alpha``, however many there are (Lan and DeMets 1983, Discrete Sequential
        Boundaries for Clinical Trials, with linear spending over the calendar). The probabilities of their false alarms
        at most add up, even if the watches share something, such as the noise of their baseline. One watch spends at
        least a day, so that it can find anything at all, and at most a month: the bound holds for up to one watch a
        day.

        Examples:
            >>> rule = WatchRule()
            >>> round(52 * rule.alarm_level(7), 3), rule.alarm_level(0) == rule.alarm_level(1)
            (0.03, True)
        """
        return self.alpha * min(max(days, 1.0), MOST_DAYS) / DAYS_PER_YEAR


@dataclass(frozen=True, kw_only=True)
class WatchedFigures:
    """The result of watching some metrics.

    Attributes:
        run: The run of the watch.
        findings: Drops, and results that cannot be compared.
        summary: The comparison and its baseline run, the alarm level, and the next step; one line each.
        baselines: The runs that results were compared with.
    """

    run: str
    findings: tuple[WatchFinding, ...]
    summary: tuple[str, ...]
    baselines: tuple[str, ...]


def units_needed(level: float) -> int:
    """Return the fewest images with which a result can fail: if all ``n`` fell, one of ``2**n`` flips is as extreme.

    Examples:
        >>> units_needed(0.05), units_needed(0.03 / 365)
        (5, 14)
    """
    return math.floor(-math.log2(level)) + 1


def cosines(stored: Sequence[NDArray[np.float32]], again: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Return the lowest cosine among the vectors of each item, shape ``(n_items,)``; 0 if their number changed.

    An item's vectors have the shape ``(n_vectors, dim)`` and any length; ``again`` are the vectors of a second
    encoding.

    Examples:
        >>> one, other = np.float32([[1, 0]]), np.float32([[0, 2]])
        >>> cosines([one, one, one], [one * 3, other, np.float32([[1, 0], [1, 0]])]).tolist()
        [1.0, 0.0, 0.0]
    """
    lowest = np.zeros(len(stored))
    for i, (old, new) in enumerate(zip(stored, again, strict=True)):
        if old.shape == new.shape:
            a, b = old.astype(np.float64), new.astype(np.float64)
            lowest[i] = ((a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))).min()
    return lowest


def judge_vectors(subject: str, item_cosines: NDArray[np.float64], rule: WatchRule) -> list[WatchFinding]:
    """Return a finding for cosines of a sample below the limits; else none.

    Examples:
        >>> judge_vectors("m on c", np.array([1.0, 0.9]), WatchRule())[0].verdict
        'fail'
        >>> judge_vectors("m on c", np.array([1.0, 0.99999]), WatchRule())
        []
    """
    lowest = float(item_cosines.min())
    if lowest >= rule.warn_cosine:
        return []
    verdict: Verdict = "warn" if lowest >= rule.fail_cosine else "fail"  # fail also if it is not a number
    least = rule.warn_cosine if verdict == "warn" else rule.fail_cosine
    message = f"{len(item_cosines)} items encoded again: lowest cosine to the stored vectors {lowest:.6f}"
    return [WatchFinding(verdict, subject, f"{message}, below {least}")]


def judge_change(change: FigureChange, rule: WatchRule, level: float) -> Verdict | None:
    """Return the verdict on a change of a result; None if it is no worse, or worse by little and not significantly.

    Examples:
        >>> def judged(difference, p_adjusted):
        ...     key = ("c", "t2i/all", "MRR", "m")
        ...     change = FigureChange(key=key, difference=difference, p=p_adjusted, basis="paired test",
        ...                           p_adjusted=p_adjusted)
        ...     return judge_change(change, WatchRule(), 0.001)
        >>> judged(-0.02, 0.0001), judged(-0.005, 0.0001), judged(-0.02, 0.3), judged(-0.005, 0.3), judged(0.02, 0.3)
        ('fail', 'warn', 'warn', None, None)
    """
    if change.difference is None or not change.worse:
        return None
    large = abs(change.difference) >= rule.fail_drop
    if change.is_significant(level):
        return "fail" if large else "warn"
    return ("fail" if rule.strict and change.has_too_few_units(level) else "warn") if large else None


def judge_figures(changes: Iterable[FigureChange], rule: WatchRule, level: float) -> list[WatchFinding]:
    """Return a finding for every significant drop, by p-value, and one for each encoder and corpus with large drops."""
    findings: list[WatchFinding] = []
    unclear: dict[str, list[tuple[Verdict, FigureChange]]] = {}
    for change in sorted(changes, key=lambda change: (change.p_adjusted or 0.0, change.difference or 0.0)):
        corpus, protocol, metric, encoder = change.key
        subject, verdict = f"{encoder} on {corpus}", judge_change(change, rule, level)
        if verdict and change.is_significant(level):
            findings.append(
                _of_drop(verdict, f"{subject}, {protocol} {metric}", _drop(change, "<", level), change, level)
            )
        elif verdict:
            unclear.setdefault(subject, []).append((verdict, change))
    for subject, drops in unclear.items():
        _, largest = max(drops, key=lambda drop: abs(drop[1].difference or 0.0))
        message = f"{largest.key[1]} {largest.key[2]} {_drop(largest, '≥', level)}, not significant"
        if largest.has_too_few_units(level):
            message += f", as no drop of {largest.n_units} images can be: that takes {units_needed(level)}"
        if len(drops) > 1:
            more = f"{len(drops) - 1} more drop{'s' if len(drops) > 2 else ''}"
            message += f"; the same holds for {more} of {rule.least_drop} or more"
        verdict = "fail" if any(verdict == "fail" for verdict, _ in drops) else "warn"
        findings.append(_of_drop(verdict, subject, message, largest, level))
    return findings


TEST = "paired sign flips of images, one-sided, step-down max-T"


def _of_drop(verdict: Verdict, subject: str, message: str, change: FigureChange, level: float) -> WatchFinding:
    return WatchFinding(
        verdict, subject, message, change.key[1], change.key[2], change.old, change.new,
        TEST, change.p_adjusted, level, change.n_queries, change.n_units,
    )  # fmt: skip


def _drop(change: FigureChange, sign: str, level: float) -> str:
    """Return ``from 60.0 to 57.5 (-2.5 points) since …, adjusted p = 0.0004 < 0.00096 (sign flips of 200 images)``."""
    old, new = (100 * (value or 0.0) for value in (change.old, change.new))
    p = "no test" if change.p_adjusted is None else f"adjusted p = {change.p_adjusted:.2g} {sign} {level:.2g}"
    pairs = f" (sign flips of {change.n_units} images, {change.n_queries} pairs of queries)" if change.n_queries else ""
    return f"from {old:.1f} to {new:.1f} ({new - old:+.1f} points) since {change.since}, {p}{pairs}"


def judge_settings(changes: Iterable[SettingChange]) -> list[WatchFinding]:
    """Return a note for every setting that changed.

    Examples:
        >>> judge_settings([SettingChange("library", "torch", "2.6", None)])[0].message
        'torch: 2.6 -> none'
    """
    return [
        WatchFinding(
            "note", subject, f"{setting}: {'none' if old is None else old} -> {'none' if new is None else new}"
        )
        for subject, setting, old, new in changes
    ]


# A result is the mean of one encoder's values over the queries of one corpus, at two times. If nothing changed, the two
# outcomes of a cluster are exchangeable, so its fall (earlier minus later) might as well have the other sign, for all
# results of that cluster together. Step-down max-T over these flips (``tests_of_flips``) adjusts the p-values for all
# results of all corpora: its floor is 1 / (flips + 1), and correlated results cost little.


def tested_changes(groups: Sequence[Falls], *, level: float, resampling: Resampling) -> list[FigureChange]:
    """Return the changes of all groups, with one-sided p-values of a fall, adjusted as one family."""
    if not groups:
        return []
    tests = decline_tests([falls for _, falls in groups], level=level, resampling=resampling)
    return [
        replace(change, p=test.p, p_adjusted=test.p_adjusted)
        for (changes, _), of_group in zip(groups, tests, strict=True)
        for change, test in zip(changes, of_group, strict=True)
    ]


FEW_FLIPS = 199  # examined first; they suffice for results that are far from significant
_PER_LEVEL = 10  # expected number of flips beyond a result exactly at the level


def decline_tests(
    falls: Sequence[NDArray[np.float64]], *, level: float, resampling: Resampling
) -> list[list[FlipTest]]:
    """Test, one-sided, whether results fell, with p-values adjusted for all of them.

    Args:
        falls: One array for each group of results that share clusters, shape ``(n_clusters, n_figures)``: the sum over
            a cluster's queries of earlier minus later value. Groups are flipped independently of each other.
        level: The level that p-values will be compared with. It determines the number of flips, unless ``FEW_FLIPS``
            show that no result is significant at 5%; this second look can only prevent a rejection.
        resampling: Smallest number of flips for a result that may be significant, and the seed of random ones.

    Returns:
        The tests of each group's results. ``p`` is None for a result that did not change in any cluster.

    Examples:
        The first of two encoders found four images before and finds none now: one of 16 flips is as extreme.

        >>> fall = np.array([[1.0, 0.0]] * 4)
        >>> [[first, second]] = decline_tests([fall], level=0.05, resampling=Resampling(permutations=100))
        >>> first.p_adjusted, second.p
        (0.0625, None)
    """
    for n_flips in (FEW_FLIPS, max(resampling.permutations, math.ceil(_PER_LEVEL / level))):
        tests = _tests(falls, Resampling(permutations=n_flips, seed=resampling.seed))
        adjusted = [test.p_adjusted for group in tests for test in group if test.p_adjusted is not None]
        if min(adjusted, default=1.0) > ALPHA or all(test.exact for group in tests for test in group):
            break
    return tests


def _tests(falls: Sequence[NDArray[np.float64]], resampling: Resampling) -> list[list[FlipTest]]:
    """Return the tests with a given number of flips."""
    starts = np.cumsum([0, *(len(fall) for fall in falls)])
    grids = [rounded_to_grid(fall, weight=2 * len(fall)) for fall in falls]
    rows = [np.flatnonzero(grid.any(axis=1)) for grid in grids]
    tables = [narrowed(grid[differs], weight=2 * len(grid)) for grid, differs in zip(grids, rows, strict=True)]
    total = np.concatenate([grid.sum(axis=0) for grid in grids])
    scale = np.concatenate([np.sqrt(np.square(grid).sum(axis=0)) for grid in grids])
    ends = np.cumsum([len(differs) for differs in rows])[:-1]

    def flipped_totals(flipped: NDArray[np.uint8]) -> NDArray[np.float64]:
        parts = np.split(flipped, ends, axis=1)
        moved = [weighted_sums(part, table) for part, table in zip(parts, tables, strict=True)]
        return total - 2 * np.concatenate(moved, axis=1)

    differs = np.concatenate([start + group for start, group in zip(starts, rows, strict=False)])
    flips, exact = shared_flips(differs, int(starts[-1]), resampling)
    found = tests_of_flips(map(flipped_totals, flips), exact=exact, observed=total, scale=scale, enumerated={})
    changed = [
        test if moved else replace(test, p=None, p_adjusted=None) for test, moved in zip(found, scale, strict=True)
    ]
    bounds = np.cumsum([0, *(fall.shape[1] for fall in falls)])
    return [changed[first:last] for first, last in pairwise(bounds)]
