"""The settings of all bootstrap intervals and permutation tests, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

IntervalMethod: TypeAlias = Literal["wilson", "percentile", "bca"]
METHODS: tuple[IntervalMethod, ...] = ("wilson", "percentile", "bca")
Adjustment: TypeAlias = Literal["max-t", "holm", "benjamini-hochberg"]
ADJUSTMENTS: tuple[Adjustment, ...] = ("max-t", "holm", "benjamini-hochberg")


@dataclass(frozen=True, kw_only=True)
class Resampling:
    """How intervals and tests are computed.

    Equal ``replicates`` and ``seed`` on one corpus give equal draws, so figures computed on different days are paired.

    Attributes:
        replicates: Bootstrap draws.
        permutations: Random sign flips, where not all of them can be enumerated.
        seed: Of the draws and of the random sign flips; not negative.
        level: Confidence level of the intervals, in (0, 1).
        method: ``wilson`` for shares of hits (``tasks.statistics.intervals``) and percentile intervals for every other
            figure; ``percentile`` for every figure; ``bca`` (bias-corrected and accelerated; Efron 1987) for every
            figure.
        adjustment: Of the p-values of all pairs under one metric: ``max-t`` (step-down, on the flips that the pairs
            share) and ``holm`` control the family-wise error rate, ``benjamini-hochberg`` the false discovery rate.
        margin: Two encoders are equivalent if they differ by less: percentage points of the range of a metric.
    """

    replicates: int = 10_000
    permutations: int = 10_000
    seed: int = 0
    level: float = 0.95
    method: IntervalMethod = "wilson"
    adjustment: Adjustment = "max-t"
    margin: float = 1.0

    def __post_init__(self) -> None:
        faults = [
            f"{name} must be at least {least}, got {value}"
            for name, value, least in (
                ("replicates", self.replicates, 1),
                ("permutations", self.permutations, 1),
                ("seed", self.seed, 0),
            )
            if value < least
        ]
        if not 0.0 < self.level < 1.0:
            faults.append(f"level must lie strictly between 0 and 1, got {self.level}; 0.95 is usual")
        if not 0.0 < self.margin < 100.0:
            faults.append(f"margin must lie strictly between 0 and 100 points, got {self.margin}; 1 is usual")
        if self.method not in METHODS:
            faults.append(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
        if self.adjustment not in ADJUSTMENTS:
            faults.append(f"adjustment must be one of {', '.join(ADJUSTMENTS)}, got {self.adjustment!r}")
        if faults:
            raise ValueError("; ".join(faults))
