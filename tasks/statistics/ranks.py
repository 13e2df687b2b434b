"""Where an encoder stands among several: the ranks that it can hold, and who is tied with the best.

From simultaneous comparisons, not from bootstrap ranks: an encoder's best possible rank is one more than the
number of encoders significantly better, its worst leaves below it only those significantly worse. With p-values
adjusted by Holm, all these statements hold together with the confidence of the test (Mohamad, van Zwet, Solari
and Goeman, 2021, Simultaneous confidence intervals for ranks using the partitioning principle, section 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Finding(NamedTuple):
    """One pair of encoders, as a comparison found it."""

    a: str
    b: str
    difference: float
    p_adjusted: float | None


class Standing(NamedTuple):
    """The place of one encoder.

    ``rank`` is the place by value (1 is best, equal values share the better place), ``best`` and ``worst`` the
    ranks that it can hold. ``tied_with_best``: not significantly worse than the encoder with the best value.
    """

    encoder: str
    value: float
    rank: int
    best: int
    worst: int
    tied_with_best: bool


def standings(
    values: Sequence[tuple[str, float]],
    findings: Iterable[Finding],
    *,
    alpha: float = 0.05,
    lower_is_better: bool = False,
) -> list[Standing]:
    """The standing of every encoder, best value first, equal values in the order given.

    Args:
        values: Encoder and its value.
        findings: All pairs, each once, in either order. A pair without a p-value agrees on every query: no
            difference.
        alpha: An adjusted p-value below it is a difference.
        lower_is_better: For ranks.

    Raises:
        ValueError: A pair is missing.

    Examples:
        The first beats the third, nothing else is certain:

        >>> pairs = [Finding("x", "y", 0.1, 0.3), Finding("x", "z", 0.3, 0.01), Finding("y", "z", 0.2, 0.06)]
        >>> for s in standings([("x", 0.6), ("y", 0.5), ("z", 0.3)], pairs):
        ...     print(s.encoder, s.rank, f"{s.best}-{s.worst}", s.tied_with_best)
        x 1 1-2 True
        y 2 1-3 True
        z 3 2-3 False
    """
    better: set[tuple[str, str]] = set()  # (winner, loser)
    seen = set()
    for a, b, difference, p in findings:
        seen.add(frozenset((a, b)))
        if p is not None and p < alpha and difference != 0:
            better.add((a, b) if (difference < 0) == lower_is_better else (b, a))
    names = [name for name, _ in values]
    missing = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if frozenset((a, b)) not in seen]
    if missing:
        raise ValueError(f"{len(missing)} pairs were not compared, first {missing[0]}; compare all encoders together")
    ordered = sorted(values, key=lambda item: item[1] if lower_is_better else -item[1])
    return [
        Standing(
            encoder=name,
            value=value,
            rank=1 + sum((other < value) if lower_is_better else (other > value) for _, other in values),
            best=1 + sum((other, name) in better for other in names),
            worst=len(names) - sum((name, other) in better for other in names),
            tied_with_best=(ordered[0][0], name) not in better,
        )
        for name, value in ordered
    ]
