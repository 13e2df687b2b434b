"""Whether a figure or a vector is still what it was: the rules of the regression watch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Verdict = Literal["fail", "warn", "note"]


class Finding(NamedTuple):
    """One thing that is not as it was: ``fail`` and ``warn`` by rule, ``note`` for what may explain them."""

    verdict: Verdict
    subject: str
    message: str


@dataclass(frozen=True, kw_only=True)
class WatchRule:
    """When a difference is a regression.

    Attributes:
        sample: Items per set that are encoded again.
        fail_cosine: The lowest cosine of an item to its stored vector below which the watch fails. Vectors are kept
            as float16, which alone leaves a cosine above 0.999999.
        warn_cosine: The same for a warning.
        fail_drop: A metric that is lower by at least this much (fractions: 0.01 is one point), and by more than chance.
        alpha: Level of the paired test after Holm's adjustment over all metrics of a protocol; a smaller drop that
            passes it warns.
    """

    sample: int = 16
    fail_cosine: float = 0.999
    warn_cosine: float = 0.9999
    fail_drop: float = 0.01
    alpha: float = 0.05

    def __post_init__(self) -> None:
        if self.sample < 1:
            raise ValueError(f"sample must be at least 1, got {self.sample}")
        if not self.fail_cosine <= self.warn_cosine <= 1:
            raise ValueError(f"fail_cosine <= warn_cosine <= 1 is needed, got {self.fail_cosine}, {self.warn_cosine}")


def cosines(stored: Sequence[NDArray[np.float32]], again: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    """The lowest cosine among the vectors of each item, shape ``(n_items,)``; 0 where their number changed.

    Args:
        stored: Per item its vectors, shape ``(n_vectors, dim)``; any length.
        again: The same items, encoded again.

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


def judge_vectors(subject: str, found: NDArray[np.float64], rule: WatchRule) -> list[Finding]:
    """What the cosines of a sample mean; empty if nothing.

    Examples:
        >>> judge_vectors("m on c", np.array([1.0, 0.9]), WatchRule())[0].verdict
        'fail'
        >>> judge_vectors("m on c", np.array([1.0, 0.99999]), WatchRule())
        []
    """
    lowest = float(found.min())
    message = f"{len(found)} items encoded again: cosine to the stored vectors down to {lowest:.6f}"
    if lowest < rule.fail_cosine or np.isnan(lowest):
        return [Finding("fail", subject, f"{message}, below {rule.fail_cosine}")]
    if lowest < rule.warn_cosine:
        return [Finding("warn", subject, f"{message}, below {rule.warn_cosine}")]
    return []


def judge_metric(
    subject: str, difference: float | None, p: float | None, *, higher_is_better: bool, rule: WatchRule
) -> list[Finding]:
    """What a paired difference (now minus then) means; a gain is no finding.

    Examples:
        >>> judge_metric("R@1", -0.02, 0.001, higher_is_better=True, rule=WatchRule())[0].verdict
        'fail'
        >>> judge_metric("R@1", -0.005, 0.001, higher_is_better=True, rule=WatchRule())[0].verdict
        'warn'
        >>> judge_metric("R@1", -0.02, 0.3, higher_is_better=True, rule=WatchRule())
        []
    """
    if difference is None or p is None:
        return []
    gain = difference if higher_is_better else -difference
    if gain >= 0 or p >= rule.alpha:
        return []
    message = f"changed by {difference:+.4f} against the last good run (adjusted p = {p:.2g})"
    return [Finding("fail" if -gain >= rule.fail_drop else "warn", subject, message)]


def changed(subject: str, then: Mapping[str, object], now: Mapping[str, object]) -> list[Finding]:
    """A note for every value that is not what it was.

    Examples:
        >>> changed("library", {"torch": "2.6", "numpy": "2.0"}, {"torch": "2.7", "numpy": "2.0"})[0].message
        'torch: 2.6 -> 2.7'
    """
    return [
        Finding("note", subject, f"{name}: {then.get(name, 'none')} -> {now.get(name, 'none')}")
        for name in sorted({*then, *now})
        if then.get(name) != now.get(name)
    ]
