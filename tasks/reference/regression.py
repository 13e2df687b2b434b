"""The rules of the regression watch: which changes of vectors and metrics fail, and which warn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.reference.changes import FigureChange, SettingChange

Verdict = Literal["fail", "warn", "note"]


class WatchFinding(NamedTuple):
    """One change: ``fail`` and ``warn`` by rule, ``note`` for a possible cause."""

    verdict: Verdict
    subject: str
    message: str


@dataclass(frozen=True, kw_only=True)
class WatchRule:
    """When a difference is a regression.

    Attributes:
        sample: Items per set that are encoded again.
        fail_cosine: Lowest cosine between new and stored vector of an item that does not fail. Storage as float16
            alone leaves a cosine above 0.999999.
        warn_cosine: Lowest cosine that does not warn.
        fail_drop: Smallest significant drop of a metric that fails (a fraction: 0.01 is one point); smaller ones warn.
        alpha: Level of the paired test after Holm's adjustment over all metrics of a protocol.
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
            raise ValueError(f"expected fail_cosine <= warn_cosine <= 1, got {self.fail_cosine} and {self.warn_cosine}")


def cosines(stored: Sequence[NDArray[np.float32]], again: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    """The lowest cosine among the vectors of each item, shape ``(n_items,)``; 0 where the number of vectors changed.

    An item's vectors have the shape ``(n_vectors, dim)`` and any length; ``again`` are the items encoded again.

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
    """A finding for cosines of a sample below the limits; else none.

    Examples:
        >>> judge_vectors("m on c", np.array([1.0, 0.9]), WatchRule())[0].verdict
        'fail'
        >>> judge_vectors("m on c", np.array([1.0, 0.99999]), WatchRule())
        []
    """
    lowest = float(item_cosines.min())
    message = f"{len(item_cosines)} items encoded again: lowest cosine to the stored vectors {lowest:.6f}"
    if lowest < rule.fail_cosine or np.isnan(lowest):
        return [WatchFinding("fail", subject, f"{message}, below {rule.fail_cosine}")]
    if lowest < rule.warn_cosine:
        return [WatchFinding("warn", subject, f"{message}, below {rule.warn_cosine}")]
    return []


def judge_metric(subject: str, change: FigureChange, rule: WatchRule) -> list[WatchFinding]:
    """A finding for a metric that became significantly worse than in the last completed run; else none.

    Examples:
        >>> def judged(difference, p):
        ...     key = ("c", "t2i/all", "R@1", "m")
        ...     change = FigureChange(key=key, difference=difference, p=p, basis="paired test", p_adjusted=p)
        ...     return [finding.verdict for finding in judge_metric("R@1", change, WatchRule())]
        >>> judged(-0.02, 0.001), judged(-0.005, 0.001), judged(-0.02, 0.3), judged(0.02, 0.001)
        (['fail'], ['warn'], [], [])
    """
    if not change.worse or change.difference is None or not change.is_significant(rule.alpha):
        return []
    message = f"changed by {change.difference:+.4f} since the last completed run (adjusted p = {change.p_adjusted:.2g})"
    return [WatchFinding("fail" if abs(change.difference) >= rule.fail_drop else "warn", subject, message)]


def judge_settings(changes: Iterable[SettingChange]) -> list[WatchFinding]:
    """A note for every setting that changed.

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
