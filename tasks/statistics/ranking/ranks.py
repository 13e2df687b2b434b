"""Ranks of encoders from pairwise tests: the range of ranks that each can hold, and which are tied with the best.

The best possible rank of an encoder is one more than the number of encoders that are significantly better; its worst
possible rank leaves below it only the encoders that are significantly worse. With p-values adjusted over all pairs,
all these statements hold together at the level of the test (Mohamad, van Zwet, Solari and Goeman 2021, Simultaneous
confidence intervals for ranks using the partitioning principle, section 2; Mogstad, Romano, Shaikh and Wilhelm 2024,
Inference for ranks with applications to mobility across neighbourhoods and academic achievement across countries).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capim.tasks.statistics.multiplicity import ALPHA


class PairTest(NamedTuple):
    """The adjusted test of one pair of encoders; ``difference`` is ``a`` minus ``b``."""

    a: str
    b: str
    difference: float
    p_adjusted: float | None


class EncoderRank(NamedTuple):
    """The rank of one encoder among those compared.

    ``rank`` is its rank by value (1 is best, equal values share the better rank), ``best`` and ``worst`` the ranks
    that it can hold. ``tied_with_best``: none is significantly better, so that it can hold the first rank.
    """

    encoder: str
    value: float
    rank: int
    best: int
    worst: int
    tied_with_best: bool


class RankSet(NamedTuple):
    """The ranks that one encoder can hold, from ``best`` to ``worst``; 1 is the first."""

    best: int
    worst: int

    @property
    def tied_with_best(self) -> bool:
        """Whether the encoder can be the best: none is significantly better."""
        return self.best == 1


def rank_sets(better: NDArray[np.bool_]) -> list[RankSet]:
    """The ranks that every encoder can hold.

    They hold together at the level of the tests where these are simultaneous over all pairs: p-values adjusted for the
    family-wise error rate, or intervals of all differences that hold together.

    Args:
        better: ``better[i, j]``: encoder ``i`` is significantly better than ``j``; shape ``(n_encoders, n_encoders)``.

    Examples:
        The first beats the third, nothing else is certain:

        >>> [tuple(held) for held in rank_sets(np.array([[0, 0, 1], [0, 0, 0], [0, 0, 0]], dtype=bool))]
        [(1, 2), (1, 3), (2, 3)]
    """
    won, lost = better.sum(axis=1).tolist(), better.sum(axis=0).tolist()
    return [RankSet(1 + above, len(better) - below) for above, below in zip(lost, won, strict=True)]


def rank_encoders(
    values: Sequence[tuple[str, float]],
    tests: Iterable[PairTest],
    *,
    alpha: float = ALPHA,
    lower_is_better: bool = False,
) -> list[EncoderRank]:
    """The rank of every encoder, best value first, equal values in the order given.

    Args:
        tests: All pairs, each once, in either order. A pair without a p-value (equal on every query, or too few
            clusters for a test) counts as not different.
        alpha: A pair with an adjusted p-value below it is different.

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
    names = [name for name, _ in values]
    at = {name: position for position, name in enumerate(names)}
    better = np.zeros((len(names), len(names)), dtype=bool)
    compared = set()
    for a, b, difference, p in tests:
        compared.add(frozenset((a, b)))
        if p is not None and p < alpha and difference != 0:
            winner, loser = (a, b) if (difference < 0) == lower_is_better else (b, a)
            better[at[winner], at[loser]] = True
    missing = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if frozenset((a, b)) not in compared]
    if missing:
        raise ValueError(f"{len(missing)} pairs were not compared, first {missing[0]}; compare all encoders together")
    held = dict(zip(names, rank_sets(better), strict=True))
    return [
        EncoderRank(
            encoder=name,
            value=value,
            rank=1 + sum((other < value) if lower_is_better else (other > value) for _, other in values),
            best=held[name].best,
            worst=held[name].worst,
            tied_with_best=held[name].tied_with_best,
        )
        for name, value in sorted(values, key=lambda item: item[1] if lower_is_better else -item[1])
    ]
