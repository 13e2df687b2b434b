"""Random draws for intervals and tests: their settings, the draws that a corpus shares, and exact sums over them.

Two properties make a result identical on any machine, with any number of threads:

* A block of draws depends only on the seed, the number of clusters and its position, never on other draws:
  replicate 17 is the same among 100 replicates and among 10,000.
* Cluster sums are taken of numbers on a power-of-two grid (:func:`rounded_to_grid`), coarse enough that no partial
  sum ever rounds. Exact sums do not depend on the order in which a BLAS adds them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

IntervalMethod: TypeAlias = Literal["wilson", "percentile"]


@dataclass(frozen=True, kw_only=True)
class Resampling:
    """Settings of intervals and tests.

    Equal ``replicates`` and ``seed`` on one corpus give equal draws, so results computed on different days are paired.

    Attributes:
        replicates: Number of bootstrap draws.
        permutations: Number of random sign flips, if not all of them can be enumerated.
        seed: Seed of the draws and of the random sign flips; not negative.
        level: Confidence level of the intervals, in (0, 1).
        method: ``wilson`` for means within bounds and the method of the result's kind otherwise
            (``tasks.statistics.intervals``); ``percentile`` for every result.
        margin: Two encoders are equivalent if they differ by less, in percentage points of a metric's range.
    """

    replicates: int = 10_000
    permutations: int = 10_000
    seed: int = 0
    level: float = 0.95
    method: IntervalMethod = "wilson"
    margin: float = 1.0

    def used(self, *, by_draws: bool = False, tested: bool = False) -> dict[str, int | float | str]:
        """Return the settings that an interval depends on: if they are equal, so are the results.

        Args:
            by_draws: True if the interval is always bootstrapped, as for an aggregate over queries.
            tested: True if there is also a sign-flip test.

        Examples:
            >>> Resampling().used()
            {'level': 0.95, 'method': 'wilson'}
            >>> [*Resampling().used(by_draws=True)]
            ['level', 'method', 'replicates', 'seed']
        """
        names = ["level", "method"]
        if by_draws or self.method == "percentile":
            names += ["replicates", "seed"]
        if tested:
            names += ["permutations", "seed"]
        return {name: getattr(self, name) for name in names}


BLOCK_CELLS = 1 << 22  # draws times clusters that are processed at a time
KEPT_BYTES = 200 << 20  # draws up to this size stay in memory between calls (10,000 x 5,000: 50 MB)
_COUNTS, _FLIPS = 1, 2  # streams of the seed: resampling and flipping must not share theirs


def block_rows(n_clusters: int) -> int:
    """Return the number of draws in a block: 200, or fewer if those of a large corpus would not fit in memory.

    The block size determines the draws: the stream of random numbers restarts with every block.

    Examples:
        >>> block_rows(5_000), block_rows(1_000_000)
        (200, 4)
    """
    return max(1, min(200, BLOCK_CELLS // n_clusters))


def count_blocks(n_clusters: int, *, replicates: int, seed: int) -> Iterator[NDArray[np.uint8]]:
    """Return how often each cluster is drawn in each bootstrap replicate, block after block.

    Every replicate draws ``n_clusters`` clusters with replacement, so each row sums to ``n_clusters``.

    Args:
        n_clusters: Number of clusters in the corpus, at least 1.
        replicates: Total number of rows over all blocks.
        seed: Not negative. Must be the same for all encoders, metrics and protocols that are compared.

    Yields:
        uint8, shape ``(at most block_rows, n_clusters)``; must not be modified. (A count above 255 would need a cluster
        to be drawn 256 times where once is expected: the probability is below 1e-500.)

    Examples:
        >>> [block] = count_blocks(4, replicates=3, seed=7)
        >>> block.sum(axis=1).tolist()
        [4, 4, 4]
    """
    if replicates * n_clusters > KEPT_BYTES:
        yield from _drawn_blocks(n_clusters, replicates, seed)
        return
    counts = _kept_counts(n_clusters, replicates, seed)
    step = block_rows(n_clusters)
    yield from (counts[start : start + step] for start in range(0, replicates, step))


@lru_cache(maxsize=2)
def _kept_counts(n_clusters: int, replicates: int, seed: int) -> NDArray[np.uint8]:
    counts = np.concatenate(list(_drawn_blocks(n_clusters, replicates, seed)))
    counts.flags.writeable = False
    return counts


def _drawn_blocks(n_clusters: int, replicates: int, seed: int) -> Iterator[NDArray[np.uint8]]:
    for rows, generator in _blocks(_COUNTS, n_clusters, replicates, seed):
        drawn = generator.integers(0, n_clusters, size=(rows, n_clusters))
        drawn += np.arange(rows)[:, None] * n_clusters
        counts = np.bincount(drawn.ravel(), minlength=rows * n_clusters)
        yield counts.reshape(rows, n_clusters).astype(np.uint8)


def flip_blocks(n_clusters: int, *, permutations: int, seed: int) -> Iterator[NDArray[np.uint8]]:
    """Return, for each random permutation, which clusters exchange their two encoders, block after block.

    Yields:
        uint8 zeros and ones, shape ``(at most block_rows, n_clusters)``; half of each on average.

    Examples:
        >>> [block] = flip_blocks(1000, permutations=2, seed=7)
        >>> block.shape, bool(abs(block.mean() - 0.5) < 0.05)
        ((2, 1000), True)
    """
    row_bytes = -(-n_clusters // 8)
    for rows, generator in _blocks(_FLIPS, n_clusters, permutations, seed):
        noise = np.frombuffer(generator.bytes(rows * row_bytes), dtype=np.uint8)
        yield np.unpackbits(noise.reshape(rows, row_bytes), axis=1, count=n_clusters)


def _blocks(stream: int, n_clusters: int, n_draws: int, seed: int) -> Iterator[tuple[int, np.random.Generator]]:
    """Return the rows of each block and the generator that it starts with."""
    step = block_rows(n_clusters)
    for block, start in enumerate(range(0, n_draws, step)):
        yield min(step, n_draws - start), np.random.default_rng((stream, seed, n_clusters, block))


def rounded_to_grid(columns: NDArray[np.float64], *, weight: float) -> NDArray[np.float64]:
    """Return the columns rounded to a power-of-two grid on which weighted sums are exact.

    The grid is as fine as 53 bits allow while ``weight`` times the largest absolute value still fits: for recalls over
    5,000 clusters of 5 captions a step of 2^-38, about 4e-12. Zeros, ones and other short binary fractions do not
    change. All columns have the same grid, so differences of sums are exact. ``weight`` is the largest total of the
    integer weights in a sum.

    Examples:
        >>> third = rounded_to_grid(np.array([1 / 3, 1.0]), weight=1000.0)
        >>> bool(abs(third[0] - 1 / 3) < 1e-12), float(third[1]), float(third[0] * 2**43) % 1
        (True, 1.0, 0.0)
    """
    largest = float(np.abs(columns).max(initial=0.0)) * weight
    if largest == 0.0:
        return columns.copy()
    bits = 52 - math.frexp(largest)[1]
    return np.ldexp(np.rint(np.ldexp(columns, bits)), -bits)


def narrowed(columns: NDArray[np.float64], *, weight: float) -> NDArray[np.floating]:
    """Return the columns in single precision if weighted sums are exact in it, at twice the speed; else unchanged.

    Sums are exact for integers (hits, counts of queries) if they stay below 2^24; other columns must be on the grid of
    :func:`rounded_to_grid` with the same ``weight``.

    Examples:
        >>> narrowed(np.array([1.0, 5.0]), weight=1000.0).dtype, narrowed(np.array([0.5]), weight=1.0).dtype
        (dtype('float32'), dtype('float64'))
    """
    small = float(np.abs(columns).max(initial=0.0)) * weight < 2**24
    return columns.astype(np.float32) if small and bool((columns == np.rint(columns)).all()) else columns


def weighted_sums(weights: NDArray[np.uint8], table: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return ``weights @ table`` in the table's precision, as float64; exact for a :func:`narrowed` table.

    Examples:
        >>> weighted_sums(np.uint8([[1, 2]]), np.array([[1.0], [3.0]])).tolist()
        [[7.0]]
    """
    sums: NDArray[np.floating] = np.matmul(weights.astype(table.dtype), table)
    return sums.astype(np.float64)
