"""Sign-flip tests: exchange the outcomes of two encoders cluster by cluster and count how rare the difference is.

Under the null hypothesis the two encoders are exchangeable on every image, so the difference of each cluster might as
well have the other sign; all queries of an image flip together (Good 2005, Permutation, Parametric and Bootstrap Tests
of Hypotheses, section 3.2, with clusters as the units). Two-sided; a flip as extreme as the observed difference counts,
and sums are exact (``draws.on_grid``), so equality means equality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasks.statistics.clusters import Clusters, checked_values
from tasks.statistics.draws import flip_blocks, narrowed, on_grid, weighted_sums
from tasks.statistics.resampling import Resampling

EXACT_FLIPS = 10**6  # up to this number all flips are enumerated


@dataclass(frozen=True, kw_only=True)
class FlipTest:
    """The result of a sign-flip test.

    Attributes:
        p: Two-sided p-value; None where the encoders agree on every cluster.
        flips: Number of flips examined.
        exact: Whether these were all there are.
    """

    p: float | None
    flips: int
    exact: bool


NO_TEST = FlipTest(p=None, flips=0, exact=False)
"""Of an aggregate over queries, which has no sign to flip."""


def enumerated_test(p: float, n_nonzero: int) -> FlipTest:
    """The test that examined all flips of ``n_nonzero`` clusters; without a p-value if there are none."""
    return FlipTest(p=p, flips=2**n_nonzero, exact=True) if n_nonzero else FlipTest(p=None, flips=0, exact=True)


def random_test(n_extreme: int, permutations: int) -> FlipTest:
    """The test by random flips, of which ``n_extreme`` were extreme: p = (b + 1) / (m + 1) (Phipson and Smyth 2010)."""
    return FlipTest(p=(n_extreme + 1) / (permutations + 1), flips=permutations, exact=False)


def sign_flip_tests(
    values: ArrayLike, clusters: Clusters, pairs: Sequence[tuple[int, int]], resampling: Resampling
) -> list[FlipTest]:
    """Tests of the mean difference of several pairs of encoders on the same queries.

    All pairs share the random flips: the flipped sum of a difference is the difference of two flipped sums, so
    one pass over the encoders serves every pair.

    Args:
        values: Per-query values, shape ``(n_encoders, n_queries)``.
        clusters: Of those queries.
        pairs: Rows of ``values`` to compare.
        resampling: ``permutations`` and ``seed`` of the random flips, which are drawn where the ``2^n_nonzero`` flips
            of a pair are more than ``EXACT_FLIPS``.

    Examples:
        Three clusters, all in favour of the first: of 8 flips only the two extremes are as far from zero.

        >>> [test] = sign_flip_tests([[1, 1, 1], [0, 0, 0]], Clusters.of([0, 1, 2]), [(0, 1)], Resampling())
        >>> test
        FlipTest(p=0.25, flips=8, exact=True)
    """
    sums = on_grid(clusters.sums(checked_values(values, clusters)), weight=2 * clusters.n_clusters)
    differences = [sums[:, a] - sums[:, b] for a, b in pairs]
    nonzero = [int(np.count_nonzero(d)) for d in differences]
    drawn = [i for i, n in enumerate(nonzero) if 2**n > EXACT_FLIPS]
    extreme = _extreme_flips(sums, [pairs[i] for i in drawn], resampling) if drawn else []
    n_extreme = dict(zip(drawn, extreme, strict=True))
    return [
        random_test(n_extreme[i], resampling.permutations)
        if i in n_extreme
        else enumerated_test(_exact_p(difference[difference != 0]), n)
        for i, (difference, n) in enumerate(zip(differences, nonzero, strict=True))
    ]


def _extreme_flips(sums: NDArray[np.float64], pairs: Sequence[tuple[int, int]], resampling: Resampling) -> list[int]:
    """For each pair, how many random flips are at least as far from zero as the observed difference."""
    first, second = np.array(pairs).T
    total = sums.sum(axis=0)
    observed = np.abs(total[first] - total[second])
    extreme = np.zeros(len(pairs), dtype=np.int64)
    table = narrowed(sums, weight=len(sums))
    for flipped in flip_blocks(len(sums), permutations=resampling.permutations, seed=resampling.seed):
        signed = total - 2 * weighted_sums(flipped, table)
        extreme += (np.abs(signed[:, first] - signed[:, second]) >= observed).sum(axis=0)
    return [int(n) for n in extreme]


def _exact_p(differences: NDArray[np.float64]) -> float:
    """Share of all sign vectors with a sum at least as far from zero as that of the unflipped differences.

    The first sign stays: the other half of the flips are the same sums with the other sign.
    """
    if not len(differences):
        return 1.0
    flipped = differences[:1]
    for difference in differences[1:]:
        flipped = np.concatenate([flipped + difference, flipped - difference])
    return float((np.abs(flipped) >= abs(differences.sum())).mean())
