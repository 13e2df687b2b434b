"""Sign-flip tests: exchange the outcomes of two encoders cluster by cluster and count how rare the difference is.

Under the null hypothesis the two encoders are exchangeable on every image, so the difference of each cluster might as
well have the other sign; all queries of an image flip together (Good 2005, Permutation, Parametric and Bootstrap Tests
of Hypotheses, section 3.2, with clusters as the units). Two-sided; a flip as extreme as the observed difference counts,
and sums are exact (``draws.rounded_to_grid``), so equality means equality.

All pairs share the flips, so the largest difference of each flip is known too. Step-down max-T (Westfall and Young
1993, Resampling-Based Multiple Testing, algorithm 2.8; Romano and Wolf 2005) compares every pair with the largest
studentised difference among the pairs that are no clearer. Its p-values are adjusted for all pairs, and their floor is
1 / (flips + 1), however many pairs there are.

Dividing a difference by the root of its sum of squares studentises it. Flips do not change that sum, so a single pair
has the same p-value either way, and no studentising helps if the few differences are skewed: a mean of 0 from one large
loss and many small wins is called a win in 26, 10 and 7% of samples of 6, 10 and 20 clusters. The null hypothesis is
that the encoders are exchangeable image by image (``decision.FEW`` is the size up to which that matters).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capim.tasks.statistics.clusters import Clusters, checked_values
from capim.tasks.statistics.decision import ALPHA, SHARERS
from capim.tasks.statistics.draws import Resampling, flip_blocks, narrowed, rounded_to_grid, weighted_sums

EXACT_FLIPS = 10**6  # up to this number, all flips of one pair are enumerated
ALL_FLIPS = 2**16  # up to this number, all flips that the pairs share are enumerated
_AT_ONCE = 4096
_ROUNDING = 1 - 1e-12  # equal studentised differences of two pairs may differ by rounding


@dataclass(frozen=True, kw_only=True)
class FlipTest:
    """The result of a sign-flip test.

    Attributes:
        p: Two-sided p-value; None if the encoders agree on every cluster.
        p_adjusted: Adjusted for all pairs tested together, by step-down max-T; None if ``p`` is.
        flips: Number of flips examined for ``p``.
        exact: True if these are all flips.
        criticals: For each number n of results in ``decision.SHARERS``, the studentised difference (the sum of the
            clusters' differences over the root of their sum of squares) that the clearest of all pairs exceeds in a
            fraction ``0.05 / n`` of the flips; empty if ``p`` is None.
    """

    p: float | None
    p_adjusted: float | None = None
    flips: int
    exact: bool
    criticals: tuple[float, ...] = ()


NO_TEST = FlipTest(p=None, flips=0, exact=False)
"""The test of an aggregate over queries, which has no sign to flip."""


def sign_flip_tests(
    values: ArrayLike, clusters: Clusters, pairs: Sequence[tuple[int, int]], resampling: Resampling
) -> list[FlipTest]:
    """Test the mean difference of several pairs of encoders on the same queries.

    All pairs share the flips: the flipped sum of a difference is the difference of two flipped sums, so one pass over
    the encoders serves every pair.

    Args:
        values: Per-query values, shape ``(n_encoders, n_queries)``; a pair is tested on the queries where neither of
            its encoders is NaN.
        pairs: Rows of ``values`` to compare.
        resampling: ``permutations`` and ``seed`` of the random flips. ``p`` is exact if a pair has at most
            ``EXACT_FLIPS`` flips, ``2^n_nonzero``; ``p_adjusted``, if all clusters have at most ``ALL_FLIPS``.

    Examples:
        Three clusters, all in favour of the first: of 8 flips only the two extremes are as far from zero.

        >>> [test] = sign_flip_tests([[1, 1, 1], [0, 0, 0]], Clusters.of([0, 1, 2]), [(0, 1)], Resampling())
        >>> test.p, test.p_adjusted, test.flips, test.exact
        (0.25, 0.25, 8, True)
    """
    rows, pairs = _common_rows(np.atleast_2d(np.asarray(values, dtype=np.float64)), pairs)
    sums = rounded_to_grid(clusters.sums(checked_values(rows, clusters)), weight=2 * clusters.n_clusters)
    differs = np.flatnonzero(np.ptp(sums, axis=1))
    first, second = np.array(pairs).T
    total, table = sums.sum(axis=0), narrowed(sums[differs], weight=len(sums))

    def distances(flipped: NDArray[np.uint8]) -> NDArray[np.float64]:
        signed = total - 2 * weighted_sums(flipped, table)
        of_pairs: NDArray[np.float64] = np.abs(signed[:, first] - signed[:, second])
        return of_pairs

    differences = [sums[:, a] - sums[:, b] for a, b in pairs]
    nonzero = [difference[difference != 0] for difference in differences]
    flips, exact = shared_flips(differs, clusters.n_clusters, resampling)
    observed = np.abs(total[first] - total[second])
    scale = np.array([np.sqrt(np.square(difference).sum()) for difference in nonzero])
    return tests_of_flips(
        map(distances, flips),
        exact=exact,
        observed=observed,
        scale=scale,
        enumerated={pair: _exact_test(of) for pair, of in enumerate(nonzero) if 2 ** len(of) <= EXACT_FLIPS},
    )


def _common_rows(
    values: NDArray[np.float64], pairs: Sequence[tuple[int, int]]
) -> tuple[NDArray[np.float64], Sequence[tuple[int, int]]]:
    """Return rows with zeros at the queries that a pair lacks in common, and the pairs as indices of these rows."""
    known = ~np.isnan(values)
    if known.all():
        return values, pairs
    keys = [[(encoder, (known[a] & known[b]).tobytes()) for encoder in (a, b)] for a, b in pairs]
    row_of = {key: row for row, key in enumerate(dict.fromkeys(key for both in keys for key in both))}
    rows = [np.where(np.frombuffer(common, dtype=bool), values[encoder], 0.0) for encoder, common in row_of]
    return np.stack(rows), [(row_of[a], row_of[b]) for a, b in keys]


def tests_of_flips(
    distances: Iterable[NDArray[np.float64]],
    *,
    exact: bool,
    observed: NDArray[np.float64],
    scale: NDArray[np.float64],
    enumerated: Mapping[int, FlipTest],
) -> list[FlipTest]:
    """Return the tests of pairs that share their flips, with p-values adjusted by step-down max-T.

    Args:
        distances: Differences of the pairs under the flips, block after block, shape ``(n_flips, n_pairs)``.
        exact: True if these are all flips.
        observed: Observed differences of the pairs, shape ``(n_pairs,)``.
        scale: Divisors that make the differences of pairs comparable, shape ``(n_pairs,)``; 0 if a pair never differs.
        enumerated: Pair -> its own test, if all its flips were examined.
    """
    n_pairs, divisor = len(observed), np.where(scale > 0, scale, 1.0)
    clarity = observed / divisor
    back = np.argsort(clarity, kind="stable")  # the least clear pair first
    clearest: list[NDArray[np.float64]] = []
    alone, among_others, n_flips = np.zeros(n_pairs, np.int64), np.zeros(n_pairs, np.int64), 0
    for block in distances:
        n_flips += len(block)
        alone += (block >= observed).sum(axis=0)
        no_clearer = np.maximum.accumulate((block / divisor)[:, back], axis=1)  # the largest of these pairs
        among_others[back] += (no_clearer >= clarity[back] * _ROUNDING).sum(axis=0)
        clearest.append(no_clearer[:, -1])
    counted = 0 if exact else 1  # the observed assignment counts as one more flip (Phipson and Smyth 2010)
    p_alone, p_joint = ((n + counted) / (n_flips + counted) for n in (alone, among_others))
    p_joint[back[::-1]] = np.maximum.accumulate(p_joint[back[::-1]])
    largest = np.concatenate(clearest)
    critical = float(np.quantile(largest, 1 - ALPHA))
    shared = np.quantile(largest, 1 - ALPHA / np.array(SHARERS[1:]), method="higher").tolist()
    tests = []
    for pair in range(n_pairs):
        drawn = FlipTest(p=float(p_alone[pair]), flips=n_flips, exact=exact)
        test = enumerated.get(pair, drawn)
        if test.p is not None:
            p_adjusted = max(test.p, float(p_joint[pair]))
            test = replace(test, p_adjusted=p_adjusted, criticals=(critical, *shared))
        tests.append(test)
    return tests


def shared_flips(
    differs: NDArray[np.intp], n_clusters: int, resampling: Resampling
) -> tuple[Iterator[NDArray[np.uint8]], bool]:
    """Return all flips of the clusters on which encoders differ, or random ones beyond ``ALL_FLIPS``."""
    if 2 ** len(differs) <= ALL_FLIPS:
        return all_flips(len(differs)), True
    blocks = flip_blocks(n_clusters, permutations=resampling.permutations, seed=resampling.seed)
    return (flipped[:, differs] for flipped in blocks), False


def all_flips(n_clusters: int) -> Iterator[NDArray[np.uint8]]:
    """Yield every way to exchange some of a few clusters, block after block.

    Examples:
        >>> [block] = all_flips(2)
        >>> block.tolist()
        [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    for start in range(0, 2**n_clusters, _AT_ONCE):
        codes = np.arange(start, min(start + _AT_ONCE, 2**n_clusters))
        yield ((codes[:, None] >> np.arange(n_clusters)) & 1).astype(np.uint8)


def _exact_test(differences: NDArray[np.float64]) -> FlipTest:
    """Return the share of sign vectors with a sum at least as far from zero as that of the unflipped differences.

    The first sign stays fixed: the other half of the flips has the same sums with the other sign. Without differences
    there is no p-value.
    """
    flipped = differences[:1]
    for difference in differences[1:]:
        flipped = np.concatenate([flipped + difference, flipped - difference])
    if not len(flipped):
        return FlipTest(p=None, flips=0, exact=True)
    p = float((np.abs(flipped) >= abs(differences.sum())).mean())
    return FlipTest(p=p, flips=2 ** len(differences), exact=True)
