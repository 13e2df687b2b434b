"""The smallest difference that a benchmark can detect."""

from __future__ import annotations

from scipy.special import ndtri


def detectable_effect(standard_error: float, *, power: float = 0.8, alpha: float = 0.05) -> float:
    """The true difference that a two-sided test at ``alpha`` finds with probability ``power``.

    Args:
        standard_error: Of the difference, clustered; in the metric's own unit.
        power: In (0, 1).
        alpha: In (0, 1).

    Examples:
        The familiar 2.8 standard errors: 1.96 to be significant and 0.84 to be so four times in five.

        >>> round(detectable_effect(1.0), 3)
        2.802
    """
    if not (standard_error >= 0 and 0 < power < 1 and 0 < alpha < 1):
        raise ValueError(
            f"standard_error must not be negative, power and alpha must lie in (0, 1), "
            f"got {standard_error}, {power} and {alpha}"
        )
    return float(ndtri(1 - alpha / 2) + ndtri(power)) * standard_error
