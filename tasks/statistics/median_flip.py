"""Sign-flip tests of medians: the same flips as for means, with the medians of every exchanged sample.

The flipped difference of means is a signed sum; a median has to be computed anew. For two encoders the counts of
queries of each cluster at or below each value near their medians are kept. Exchanging clusters moves some of these
counts from one encoder to the other, which is one product of matrices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import narrowed, weighted_sums
from capim.tasks.statistics.permutation import (
    EXACT_FLIPS,
    FlipTest,
    all_flips,
    enumerated_test,
    shared_flips,
    tests_of_flips,
)
from capim.tasks.statistics.resampling import Resampling
from capim.tasks.statistics.statistic import medians_in_window


def median_flip_tests(
    values: ArrayLike, clusters: Clusters, pairs: Sequence[tuple[int, int]], resampling: Resampling
) -> list[FlipTest]:
    """Tests of the difference of medians of several pairs of encoders on the same queries.

    Arguments and result are those of :func:`tasks.statistics.permutation.sign_flip_tests`; the weights of queries do
    not affect a median.

    Examples:
        Ranks 1, 1, 1 against 9, 9, 9: however they are exchanged, two of three agree on each side, and the medians
        are 8 apart.

        >>> [test] = median_flip_tests([[1, 1, 1], [9, 9, 9]], Clusters.of([0, 1, 2]), [(0, 1)], Resampling())
        >>> test.p, test.flips
        (1.0, 8)
    """
    table = np.asarray(values, dtype=np.float64)
    exchanges = [_Exchange(table[a], table[b], clusters) for a, b in pairs]
    differs = np.unique(np.concatenate([exchange.differs for exchange in exchanges]))
    own = [np.searchsorted(differs, exchange.differs) for exchange in exchanges]

    def distances(flipped: NDArray[np.uint8]) -> NDArray[np.float64]:
        of_pairs = [exchange.distances(flipped[:, at]) for exchange, at in zip(exchanges, own, strict=True)]
        return np.column_stack(of_pairs)

    return tests_of_flips(
        shared_flips(differs, clusters.n_clusters, resampling),
        distances,
        observed=np.array([exchange.observed for exchange in exchanges]),
        scale=np.array([float(len(exchange.differs) > 0) for exchange in exchanges]),  # ranks have one unit
        enumerated={
            pair: enumerated_test(_exact_p(exchange), len(exchange.differs))
            for pair, exchange in enumerate(exchanges)
            if 2 ** len(exchange.differs) <= EXACT_FLIPS
        },
    )


def _exact_p(exchange: _Exchange) -> float:
    """Share of all flips whose medians are at least as far apart as the observed."""
    flips = all_flips(len(exchange.differs))
    return float(np.concatenate([exchange.distances(block) >= exchange.observed for block in flips]).mean())


class _Exchange:
    """Two encoders that exchange clusters, as counts of the queries near their medians that have values of both.

    Counts cover a window of distinct values that doubles until it holds both medians of every requested sample.

    Attributes:
        differs: Clusters on which the encoders differ; flips of others change nothing.
        observed: How far apart the medians are.
    """

    def __init__(self, a: NDArray[np.float64], b: NDArray[np.float64], clusters: Clusters) -> None:
        common = ~(np.isnan(a) | np.isnan(b))
        a, b, self._clusters = a[common], b[common], clusters.only(common)
        self.differs: NDArray[np.intp] = np.unique(self._clusters.labels[a != b])
        self._levels, at = np.unique(np.concatenate([a, b]), return_inverse=True)
        self._at = at.reshape(2, -1)
        middles = [int(m) for m in np.median(self._at, axis=1)]
        self._first, self._last = min(middles), max(middles)
        self._widen(8)
        unchanged = np.zeros((1, len(self.differs)), dtype=np.uint8)
        self.observed = float(self.distances(unchanged)[0])

    def distances(self, flipped: NDArray[np.uint8]) -> NDArray[np.float64]:
        """How far apart the medians are under each flip, shape ``(n_flips, len(differs))`` -> ``(n_flips,)``."""
        while True:
            moved = weighted_sums(flipped, self._moved)
            total = np.full(len(flipped), self._clusters.n_queries)
            medians = [
                medians_in_window(below, total, self._levels, self._first)
                for below in (self._totals[0] + moved, self._totals[1] - moved)
            ]
            if medians[0] is not None and medians[1] is not None:
                return np.abs(medians[0] - medians[1])
            self._widen(self._last - self._first + 1)

    def _widen(self, by: int) -> None:
        """Count anew, over ``by`` more values at either end."""
        self._first, self._last = max(0, self._first - by), min(len(self._levels) - 1, self._last + by)
        counts = [self._clusters.counts_up_to(at, self._first, self._last) for at in self._at]
        self._totals = [count.sum(axis=0) for count in counts]
        self._moved = narrowed(counts[1][self.differs] - counts[0][self.differs], weight=self._clusters.n_clusters)
