"""Coverage of the intervals of a share of hits, over the grid of ``docs/protocols.md``, section 6.

An image's captions hit with a probability of its own, drawn from a beta distribution whose spread gives the intraclass
correlation. Only the number of images with 0, 1, .. hits matters, so a data set is one multinomial draw.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import betabinom, binom

from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import IntervalMethod, Resampling
from capim.tasks.statistics.intervals import ClusteredValues, Interval, bootstrap_samples, clustered_wilson

LEVEL = 0.95
AT_ONCE = 50  # data sets that share their random draws; enough groups keep the study's own noise small


class Rate(NamedTuple):
    """How often something happened among ``n`` data sets, such as ``coverage/percentile`` or ``error/sign-flip``."""

    name: str
    rate: float
    n: int

    @property
    def standard_error(self) -> float:
        """Of the rate, from the finite number of data sets."""
        return float(np.sqrt(self.rate * (1 - self.rate) / self.n))


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell of the grid: the true share of hits, and the images that it is estimated from."""

    share: float
    n_images: int
    per_image: int
    correlation: float

    @property
    def effective(self) -> float:
        """Expected hits or misses, whichever are fewer, divided by the design effect."""
        fewer = min(self.share, 1 - self.share) * self.n_images * self.per_image
        return fewer / (1 + (self.per_image - 1) * self.correlation)


def grid() -> Iterator[Cell]:
    """All cells; the correlation of the captions of an image says nothing where there is one."""
    for share, n_images, per_image in product(
        (0.01, 0.02, 0.05, 0.5, 0.95, 0.99), (30, 100, 300, 1_000, 5_000), (1, 5)
    ):
        for correlation in (0.0, 0.3, 0.6) if per_image > 1 else (0.0,):
            yield Cell(share=share, n_images=n_images, per_image=per_image, correlation=correlation)


def images_by_hits(cell: Cell, n_datasets: int, *, seed: int) -> NDArray[np.int64]:
    """Images with 0, 1, .. ``per_image`` hits in each data set, shape ``(n_datasets, per_image + 1)``.

    Examples:
        >>> images_by_hits(Cell(share=0.5, n_images=4, per_image=1, correlation=0), 1, seed=1).sum()
        np.int64(4)
    """
    hits, n = np.arange(cell.per_image + 1), cell.per_image
    if cell.correlation:
        scale = 1 / cell.correlation - 1
        chance = betabinom.pmf(hits, n, cell.share * scale, (1 - cell.share) * scale)
    else:
        chance = binom.pmf(hits, n, cell.share)
    return np.random.default_rng(seed).multinomial(cell.n_images, chance / chance.sum(), size=n_datasets)


def coverage(cell: Cell, n_datasets: int, *, seed: int) -> Rate:
    """How often the interval of a share holds the true share."""
    rows, repeats = np.unique(images_by_hits(cell, n_datasets, seed=seed), axis=0, return_counts=True)
    hits = np.arange(cell.per_image + 1) / cell.per_image
    shares = rows @ hits / cell.n_images
    squares = (rows * np.square(hits - shares[:, None])).sum(axis=1)
    errors = np.sqrt(squares / (cell.n_images - 1) / cell.n_images)
    n_queries = cell.n_images * cell.per_image
    covered = 0
    for share, error, times in zip(shares.tolist(), errors.tolist(), repeats.tolist(), strict=True):
        interval = clustered_wilson(share, error, n_queries=n_queries, n_clusters=cell.n_images, level=LEVEL)
        covered += times * contains(interval, cell.share)
    return Rate("coverage/wilson", covered / n_datasets, n_datasets)


def bootstrap_coverage(cell: Cell, method: IntervalMethod, n_datasets: int, *, seed: int, draws: int = 999) -> Rate:
    """How often the bootstrap interval of a share holds the true share; data sets without spread count as covered."""
    clusters = Clusters.of(np.repeat(np.arange(cell.n_images), cell.per_image))
    rows = images_by_hits(cell, n_datasets, seed=seed)
    covered = []
    for start in range(0, n_datasets, AT_ONCE):
        sample = ClusteredValues(
            np.stack([per_query(row, cell.per_image) for row in rows[start : start + AT_ONCE]]), clusters
        )
        [intervals] = bootstrap_samples([sample], Resampling(replicates=draws, seed=seed + start, method=method))
        covered += [contains(interval, cell.share) for interval in intervals]
    return Rate(f"coverage/{method}", float(np.mean(covered)), n_datasets)


def per_query(images: NDArray[np.int64], per_image: int) -> NDArray[np.float64]:
    """Hits and misses of every query, from the number of images with 0, 1, .. hits.

    Examples:
        >>> per_query(np.array([1, 1, 1]), 2).tolist()
        [0.0, 0.0, 1.0, 0.0, 1.0, 1.0]
    """
    hits = np.repeat(np.arange(per_image + 1), images)
    return (np.arange(per_image) < hits[:, None]).astype(np.float64).ravel()


def contains(interval: Interval, truth: float) -> bool:
    """Whether the interval contains the truth; a missing interval excludes nothing."""
    if interval.low is None or interval.high is None:
        return True
    return interval.low <= truth <= interval.high
