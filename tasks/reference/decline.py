"""Sign-flip tests of declines: one family of many figures, over several corpora, in one direction.

A figure is the mean of one encoder's values over the queries of one corpus, at two times. If nothing changed, the two
outcomes of a cluster are exchangeable, so that its fall (earlier minus later) might as well have the other sign, for
all figures of that cluster together. Step-down max-T over these flips (``permutation.tests_of_flips``) adjusts the
p-values for all figures of all corpora: its floor is 1 / (flips + 1), and figures that move together cost little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from capim.tasks.statistics.draws import narrowed, on_grid, weighted_sums
from capim.tasks.statistics.multiplicity import ALPHA
from capim.tasks.statistics.permutation import FlipTest, shared_flips, tests_of_flips
from capim.tasks.statistics.resampling import Resampling

FEW_FLIPS = 199  # examined first; they settle whatever is far from significant
_PER_LEVEL = 10  # flips that are expected beyond a result exactly at the level


def decline_tests(
    falls: Sequence[NDArray[np.float64]], *, level: float, permutations: int, seed: int
) -> list[list[FlipTest]]:
    """One-sided tests that figures fell, with p-values adjusted for all of them.

    Args:
        falls: One array for each group of figures that share clusters, shape ``(n_clusters, n_figures)``: the sum over
            a cluster's queries of earlier minus later value. Groups are flipped independently of each other.
        level: The p-values will be compared with this level. Flips are as many as it needs, unless ``FEW_FLIPS`` show
            that no figure is significant at 5 %; this second look only ever prevents a rejection.
        permutations: Fewest flips of a result that may be significant.
        seed: Of the random flips, which are drawn where there are more than ``permutation.ALL_FLIPS``.

    Returns:
        The tests of each group's figures. ``p`` is None for a figure that no cluster changed.

    Examples:
        Four images were found before and are not now, by the first of two encoders: of 16 flips one is as bad.

        >>> fall = np.array([[1.0, 0.0]] * 4)
        >>> [[first, second]] = decline_tests([fall], level=0.05, permutations=100, seed=0)
        >>> first.p_adjusted, second.p
        (0.0625, None)
    """
    most = max(permutations, math.ceil(_PER_LEVEL / level))
    for n_flips in (FEW_FLIPS, most):
        tests = _tests(falls, Resampling(permutations=n_flips, seed=seed))
        adjusted = [test.p_adjusted for group in tests for test in group if test.p_adjusted is not None]
        if min(adjusted, default=1.0) > ALPHA or all(test.exact for group in tests for test in group):
            break
    return tests


def _tests(falls: Sequence[NDArray[np.float64]], resampling: Resampling) -> list[list[FlipTest]]:
    """Tests with one number of flips."""
    starts = np.cumsum([0, *(len(fall) for fall in falls)])
    grids = [on_grid(fall, weight=2 * len(fall)) for fall in falls]
    rows = [np.flatnonzero(grid.any(axis=1)) for grid in grids]
    tables = [narrowed(grid[differs], weight=2 * len(grid)) for grid, differs in zip(grids, rows, strict=True)]
    total = np.concatenate([grid.sum(axis=0) for grid in grids])
    scale = np.concatenate([np.sqrt(np.square(grid).sum(axis=0)) for grid in grids])
    ends = np.cumsum([len(differs) for differs in rows])[:-1]

    def flipped_totals(flipped: NDArray[np.uint8]) -> NDArray[np.float64]:
        parts = np.split(flipped, ends, axis=1)
        moved = [weighted_sums(part, table) for part, table in zip(parts, tables, strict=True)]
        return total - 2 * np.concatenate(moved, axis=1)

    differs = np.concatenate([start + group for start, group in zip(starts, rows, strict=False)])
    flips = shared_flips(differs, int(starts[-1]), resampling)
    found = tests_of_flips(flips, flipped_totals, observed=total, scale=scale, enumerated={})
    changed = [
        test if moved else replace(test, p=None, p_adjusted=None) for test, moved in zip(found, scale, strict=True)
    ]
    bounds = np.cumsum([0, *(fall.shape[1] for fall in falls)])
    return [changed[first:last] for first, last in pairwise(bounds)]
