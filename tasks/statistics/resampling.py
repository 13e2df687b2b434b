"""How intervals and tests are drawn: one frozen value from the request down to every row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

IntervalMethod: TypeAlias = Literal["percentile", "bca"]
METHODS: tuple[IntervalMethod, ...] = ("percentile", "bca")
Adjustment: TypeAlias = Literal["holm", "benjamini-hochberg"]
ADJUSTMENTS: tuple[Adjustment, ...] = ("holm", "benjamini-hochberg")


@dataclass(frozen=True, kw_only=True)
class Resampling:
    """How sure a figure has to be.

    Equal ``replicates`` and ``seed`` on one corpus are equal draws, so that rows made on different days are paired.

    Attributes:
        replicates: Bootstrap draws.
        seed: Of draws and of random sign flips.
        level: Of the intervals, in (0, 1).
        method: ``percentile``, or ``bca`` (bias-corrected and accelerated; Efron 1987).
        adjustment: Of the p-values of all pairs under one metric: ``holm`` bounds the chance of any false finding,
            ``benjamini-hochberg`` the share of false ones among the findings.
    """

    replicates: int = 10_000
    seed: int = 0
    level: float = 0.95
    method: IntervalMethod = "percentile"
    adjustment: Adjustment = "holm"
