"""Ranks of encoders from pairwise tests: the range of ranks that each can hold, and which are tied with the best.

The best possible rank of an encoder is one more than the number of encoders that are significantly better; its worst
possible rank leaves below it only the encoders that are significantly worse. With p-values adjusted over all pairs,
all these statements hold together at the level of the test (Mohamad, van Zwet, Solari and Goeman 2021, Simultaneous
confidence intervals for ranks using the partitioning principle, section 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tasks.statistics.multiplicity import ALPHA


class PairTest(NamedTuple):
    """The adjusted test of one pair of encoders; ``difference`` is ``a`` minus ``b``."""

    a: str
    b: str
    difference: float
    p_adjusted: float | None


class EncoderRank(NamedTuple):
    """The rank of one encoder among those compared.

    ``rank`` is its rank by value (1 is best, equal values share the better rank), ``best`` and ``worst`` the ranks
    that it can hold. ``tied_with_best``: not significantly worse than the encoder with the best value.
    """

    encoder: str
    value: float
    rank: int
    best: int
    worst: int
    tied_with_best: bool


def rank_encoders(
    values: Sequence[tuple[str, float]],
    tests: Iterable[PairTest],
    *,
    alpha: float = ALPHA,
    lower_is_better: bool = False,
) -> list[EncoderRank]:
    """The rank of every encoder, best value first, equal values in the order given.

    Args:
        values: Encoder and its value.
        tests: All pairs, each once, in either order. A pair without a p-value (equal on every query, or too few
            clusters for a test) counts as not different.
        alpha: A pair with an adjusted p-value below it is different.
        lower_is_better: True for metrics that are ranks.

    Raises:
        ValueError: A pair is missing.

    Examples:
        The first beats the third, nothing else is certain:

        >>> tests = [PairTest("x", "y", 0.1, 0.3), PairTest("x", "z", 0.3, 0.01), PairTest("y", "z", 0.2, 0.06)]
        >>> for r in rank_encoders([("x", 0.6), ("y", 0.5), ("z", 0.3)], tests):
        ...     print(r.encoder, r.rank, f"{r.best}-{r.worst}", r.tied_with_best)
        x 1 1-2 True
        y 2 1-3 True
        z 3 2-3 False
    """
    better: set[tuple[str, str]] = set()  # (winner, loser)
    compared = set()
    for a, b, difference, p in tests:
        compared.add(frozenset((a, b)))
        if p is not None and p < alpha and difference != 0:
            better.add((a, b) if (difference < 0) == lower_is_better else (b, a))
    names = [name for name, _ in values]
    missing = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if frozenset((a, b)) not in compared]
    if missing:
        raise ValueError(f"{len(missing)} pairs were not compared, first {missing[0]}; compare all encoders together")
    ordered = sorted(values, key=lambda item: item[1] if lower_is_better else -item[1])
    return [
        EncoderRank(
            encoder=name,
            value=value,
            rank=1 + sum((other < value) if lower_is_better else (other > value) for _, other in values),
            best=1 + sum((other, name) in better for other in names),
            worst=len(names) - sum((name, other) in better for other in names),
            tied_with_best=(ordered[0][0], name) not in better,
        )
        for name, value in ordered
    ]
