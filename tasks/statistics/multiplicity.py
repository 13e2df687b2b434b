"""p-values adjusted for multiple testing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import false_discovery_control

ALPHA = 0.05  # an adjusted p-value below it is significant


def adjusted(
    p_values: Sequence[float | None], adjustment: Literal["holm", "benjamini-hochberg"] = "holm"
) -> list[float | None]:
    """Adjusted p-values, in the order of the given ones.

    None stays None and does not count as a test: a pair that agrees on every query was never tested.

    Args:
        p_values: In 0..1, or None.
        adjustment: ``holm`` controls the family-wise error rate, ``benjamini-hochberg`` the false discovery rate
            (for independent or positively dependent tests).

    Raises:
        ValueError: A p-value outside 0..1.

    Examples:
        >>> adjusted([0.01, None, 0.04, 0.03])
        [0.03, None, 0.06, 0.06]
        >>> adjusted([0.01, None, 0.04, 0.03], "benjamini-hochberg")
        [0.03, None, 0.04, 0.04]
    """
    tested = [i for i, p in enumerate(p_values) if p is not None]
    p = np.array([p_values[i] for i in tested], dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"p-values must lie in 0..1, got {p[(p < 0) | (p > 1) | np.isnan(p)].tolist()}")
    result: list[float | None] = [None] * len(p_values)
    for i, value in zip(tested, _holm(p) if adjustment == "holm" else false_discovery_control(p), strict=True):
        result[i] = float(value)
    return result


def _holm(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Holm (1979): the k-th smallest of m times m - k + 1, never below the one before."""
    order = np.argsort(p, kind="stable")
    result = np.empty_like(p)
    result[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return result
