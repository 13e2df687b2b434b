"""Sign-flip tests: exchange two encoders' outcomes cluster by cluster and see how rare the difference is.

Under the null hypothesis the two encoders are exchangeable on every image, so each cluster's difference might
as well have the other sign; all queries of an image flip together (Good 2005, Permutation, Parametric and
Bootstrap Tests of Hypotheses, section 3.2, with clusters as the units). Two-sided; a flip as extreme as what
was seen counts, and sums are exact (``draws.on_grid``), so equality means equality.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasks.statistics.clusters import Clusters, checked_values
from tasks.statistics.draws import flip_blocks, narrowed, on_grid, weighted_sums

EXACT_FLIPS = 10**6  # up to here all flips are looked at


@dataclass(frozen=True, kw_only=True)
class FlipTest:
    """What a sign-flip test found.

    Attributes:
        p: Two-sided p-value; None where the encoders agree on every cluster, so there is nothing to flip.
        flips: Flips looked at.
        exact: Whether these were all there are.
        n_nonzero: Clusters on which the encoders differ.
    """

    p: float | None
    flips: int
    exact: bool
    n_nonzero: int


def sign_flip_tests(
    values: ArrayLike, clusters: Clusters, pairs: list[tuple[int, int]], *, permutations: int = 10_000, seed: int
) -> list[FlipTest]:
    """Tests of the mean difference of several pairs of encoders on the same queries.

    All pairs share the random flips: the flipped sum of a difference is the difference of two flipped sums, so
    one pass over the encoders serves every pair.

    Args:
        values: Per-query values, shape ``(n_encoders, n_queries)``.
        clusters: Of those queries.
        pairs: Rows of ``values`` to compare.
        permutations: Random flips where the ``2^n_nonzero`` flips of a pair are more than ``EXACT_FLIPS``; then
            ``p = (b + 1) / (permutations + 1)`` with ``b`` of them as extreme (Phipson and Smyth 2010).
        seed: Not negative.

    Examples:
        Three clusters, all in favour of the first: of 8 flips only the two extremes are as far from zero.

        >>> [test] = sign_flip_tests([[1, 1, 1], [0, 0, 0]], Clusters.of([0, 1, 2]), [(0, 1)], seed=1)
        >>> test
        FlipTest(p=0.25, flips=8, exact=True, n_nonzero=3)
    """
    sums = on_grid(clusters.sums(checked_values(values, clusters)), weight=2 * clusters.n_clusters)
    differences = [sums[:, a] - sums[:, b] for a, b in pairs]
    nonzero = [int(np.count_nonzero(d)) for d in differences]
    drawn = [i for i, n in enumerate(nonzero) if 2**n > EXACT_FLIPS]
    extreme = _extreme_flips(sums, [pairs[i] for i in drawn], permutations, seed) if drawn else np.empty(0)
    counted = dict(zip(drawn, extreme, strict=True))
    tests = []
    for i, (difference, n) in enumerate(zip(differences, nonzero, strict=True)):
        if n == 0:
            test = FlipTest(p=None, flips=0, exact=True, n_nonzero=0)
        elif i in counted:
            p = (float(counted[i]) + 1) / (permutations + 1)
            test = FlipTest(p=p, flips=permutations, exact=False, n_nonzero=n)
        else:
            test = FlipTest(p=_exact_p(difference[difference != 0]), flips=2**n, exact=True, n_nonzero=n)
        tests.append(test)
    return tests


def _extreme_flips(
    sums: NDArray[np.float64], pairs: list[tuple[int, int]], permutations: int, seed: int
) -> NDArray[np.int64]:
    """For each pair, how many random flips are at least as far from zero as what was seen."""
    first, second = (np.array(side) for side in zip(*pairs, strict=True))
    total = sums.sum(axis=0)
    seen = np.abs(total[first] - total[second])
    extreme = np.zeros(len(pairs), dtype=np.int64)
    table = narrowed(sums, weight=len(sums))
    for flipped in flip_blocks(len(sums), permutations=permutations, seed=seed):
        signed = total - 2 * weighted_sums(flipped, table)
        extreme += (np.abs(signed[:, first] - signed[:, second]) >= seen).sum(axis=0)
    return extreme


def _exact_p(differences: NDArray[np.float64]) -> float:
    """Share of all sign vectors at least as far from zero as all pluses.

    The first sign stays a plus: the other half of the flips are the same sums with the other sign.
    """
    flipped = differences[:1]
    for difference in differences[1:]:
        flipped = np.concatenate([flipped + difference, flipped - difference])
    return float((np.abs(flipped) >= abs(differences.sum())).mean())
