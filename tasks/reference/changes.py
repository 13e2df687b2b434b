"""What changed between two states of a store or report: figures with their tests, and settings that may explain them.

``capim report --compare`` and the regression watch both build on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from capim.tasks.statistics.decision import ALPHA, adjusted

FigureKey: TypeAlias = tuple[str, str, str, str]
"""Corpus, protocol, metric and encoder."""

Basis: TypeAlias = Literal["same rows", "paired test", "unpaired bound", "another version", "none"]


@dataclass(frozen=True, kw_only=True)
class FigureChange:
    """One figure in both states.

    Attributes:
        old: Its result row in the old state, empty where only the test is known.
        new: Its result row in the new state.
        difference: New minus old; None where one has no value.
        p: p-value of the difference, or an upper bound of it; None where neither is known.
        basis: Where ``p`` comes from; ``same rows`` for figures of the same evaluation, which need no test;
            ``another version`` for figures that different code of the metric computed, which no test compares.
        p_adjusted: The p-value after Holm's correction over all figures of one :func:`adjust`.
    """

    key: FigureKey
    old: Mapping[str, Any] = field(default_factory=dict)
    new: Mapping[str, Any] = field(default_factory=dict)
    difference: float | None
    p: float | None
    basis: Basis
    lower_is_better: bool = False
    p_adjusted: float | None = None

    @property
    def significant(self) -> bool:
        """Whether the adjusted p-value is below 5 %."""
        return self.is_significant(ALPHA)

    @property
    def worse(self) -> bool:
        """Whether the figure got worse, significantly or not."""
        return bool(self.difference) and ((self.difference or 0.0) > 0) == self.lower_is_better

    def is_significant(self, alpha: float) -> bool:
        """Whether the adjusted p-value is below ``alpha``."""
        return self.p_adjusted is not None and self.p_adjusted < alpha


class SettingChange(NamedTuple):
    """A setting that differs: of what (``library``, ``encoder NAME``), its name, and both values, None if absent."""

    subject: str
    setting: str
    old: object
    new: object


def figure_changes(
    old: Mapping[FigureKey, Mapping[str, Any]],
    new: Mapping[FigureKey, Mapping[str, Any]],
    comparisons: Iterable[Mapping[str, Any]],
) -> list[FigureChange]:
    """Every figure that both states have, by corpus, protocol, metric and encoder, with adjusted p-values.

    ``old`` and ``new`` are rows of ``schema.RESULTS``; ``comparisons`` are rows of ``schema.COMPARISONS`` of either
    state, of which a paired test is preferred.
    """
    tests = {
        (r["corpus"], r["protocol"], r["metric"], *sorted((r["fingerprint_a"], r["fingerprint_b"]))): r["p_sign_flip"]
        for r in comparisons
        if r["p_sign_flip"] is not None
    }
    return adjust([_change(key, old[key], new[key], tests) for key in sorted(old.keys() & new)])


def adjust(changes: Sequence[FigureChange]) -> list[FigureChange]:
    """The changes with their p-values adjusted by Holm over all of them that have one."""
    p_values = adjusted([change.p for change in changes])
    return [replace(change, p_adjusted=p) for change, p in zip(changes, p_values, strict=True)]


def setting_changes(subject: str, old: Mapping[str, object], new: Mapping[str, object]) -> list[SettingChange]:
    """Every setting with a different value, by name.

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
    """An upper bound of the p-value of a difference between two figures of one model on one corpus.

    The two figures come from the same queries and are positively correlated; the standard error of their difference is
    at most ``sqrt(a² + b²)``, its value if they were independent. The normal p-value from that error is never too
    small: a small one can be trusted, a large one needs a paired test.

    Returns:
        The bound, or None where a standard error is missing or both are zero.

    Examples:
        >>> round(unpaired_bound(0.05, 0.02, 0.015), 4)
        0.0455
        >>> unpaired_bound(0.05, None, 0.01)
    """
    if old_error is None or new_error is None or not (old_error or new_error):
        return None
    return math.erfc(abs(difference) / math.hypot(old_error, new_error) / math.sqrt(2))


def _change(
    key: FigureKey,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    tests: Mapping[tuple[str, ...], float],
) -> FigureChange:
    difference, p = None, None
    basis: Basis = "none"
    if old["value"] is not None and new["value"] is not None:
        difference = new["value"] - old["value"]
        pair = (*key[:3], *sorted((old["encoder_fingerprint"], new["encoder_fingerprint"])))
        if old["metric_version"] != new["metric_version"]:
            basis = "another version"
        elif old["evaluation"] == new["evaluation"]:
            basis = "same rows"
        elif old["corpus_fingerprint"] == new["corpus_fingerprint"] and pair in tests:
            basis, p = "paired test", tests[pair]
        else:
            p = unpaired_bound(difference, old["standard_error"], new["standard_error"])
            basis = "none" if p is None else "unpaired bound"
    return FigureChange(
        key=key, old=old, new=new, difference=difference, p=p, basis=basis, lower_is_better=new["lower_is_better"]
    )
