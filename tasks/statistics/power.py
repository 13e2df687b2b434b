"""How small a difference a benchmark can see, and how large it must be to see a given one."""

from __future__ import annotations

import math

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


def clusters_needed(
    effect: float, *, standard_error: float, n_clusters: int, power: float = 0.8, alpha: float = 0.05
) -> int:
    """Images that a benchmark like this one needs to find ``effect`` with probability ``power``.

    Args:
        effect: The wanted difference, not 0, in the metric's own unit.
        standard_error: Of the difference over ``n_clusters`` images; shrinks with the root of their number.
        n_clusters: Images that ``standard_error`` was measured on.
        power: In (0, 1).
        alpha: In (0, 1).

    Examples:
        Half the effect needs four times the images.

        >>> clusters_needed(2.802, standard_error=1.0, n_clusters=100)
        100
        >>> clusters_needed(1.401, standard_error=1.0, n_clusters=100)
        400
    """
    if effect == 0 or n_clusters < 2:
        raise ValueError(f"effect must not be 0 and n_clusters at least 2, got {effect} and {n_clusters}")
    ratio = detectable_effect(standard_error, power=power, alpha=alpha) / abs(effect)
    return math.ceil(n_clusters * ratio**2)
