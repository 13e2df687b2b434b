"""Coverage of the intervals of a share of hits, over the grid of ``docs/statistical_methods.md``.

An image's captions hit with a probability of its own, drawn from a beta distribution whose spread gives the intraclass
correlation. Only the number of images with 0, 1, .. hits matters, so a data set is one multinomial draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.decision import ALPHA
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import Hits, Interval, interval_of, student_interval
from tests.benchmarks.rows import Row

LEVEL = 0.95
AT_ONCE = 50  # data sets that share their random draws; enough groups keep the study's own noise small


class Rate(NamedTuple):
    """How often something happened among ``n`` data sets."""

    rate: float
    n: int

    @property
    def standard_error(self) -> float:
        """Of the rate, from the finite number of data sets."""
        return float(np.sqrt(self.rate * (1 - self.rate) / max(self.n, 1)))


def rate_of(happened: Sequence[bool]) -> Rate:
    """Return how often something happened, from one flag for each data set; 0 without any."""
    return Rate(float(np.mean(happened)) if happened else 0.0, len(happened))


def significant(p: float | None) -> bool:
    """True if a test at 5 % rejects."""
    return p is not None and p < ALPHA


def coverage_of(intervals: Iterable[Interval], truth: float) -> Rate:
    """Return how often intervals hold the truth, where they are shown."""
    return rate_of([contains(each, truth) for each in intervals if each.low is not None and each.high is not None])


def percent(name: str, rate: Rate, bar: str = "", peer: str = "", note: str = "") -> Row:
    """Return the row of a rate, in percent; its note ends with the standard error."""
    error = f"{rate.n:,} data sets, standard error {100 * rate.standard_error:.1f} points"
    return Row(name, 100 * rate.rate, "%", bar, peer, f"{note}; {error}" if note else error)


def _log_normal(n_images: int) -> NDArray[np.int64]:
    places = scipy.special.ndtri((np.arange(n_images) + 0.5) / n_images)
    return np.maximum(1, np.rint(np.exp(places))).astype(np.int64)


SIZES: dict[str, Callable[[int], NDArray[np.int64]]] = {
    "1": lambda n: np.ones(n, dtype=np.int64),
    "5": lambda n: np.full(n, 5),
    "log-normal": _log_normal,
    "1 x 50": lambda n: np.array([50] + [1] * (n - 1)),
    "3 x 20": lambda n: np.array([20] * 3 + [1] * (n - 3)),
}
"""Captions of every image, by their name: so many, or a few of many captions and the rest of one."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell of the grid: the true share of hits, and the images and captions that it is estimated from."""

    share: float
    n_images: int
    sizes: str
    correlation: float

    @property
    def captions(self) -> NDArray[np.int64]:
        """Of every image."""
        return SIZES[self.sizes](self.n_images)

    @property
    def n_effective(self) -> float:
        """Kish's number of images."""
        return float(self.captions.sum() ** 2 / np.square(self.captions).sum())

    @property
    def effective(self) -> float:
        """Expected hits or misses, whichever are fewer, divided by the design effect."""
        n = self.captions.sum()
        return float(min(self.share, 1 - self.share) * n / (1 + (n / self.n_effective - 1) * self.correlation))


def grid() -> Iterator[Cell]:
    """All cells; the correlation of the captions of an image says nothing where there is one."""
    shares = (0.01, 0.02, 0.05, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99)
    for share, n_images, sizes in product(shares, (10, 20, 30, 40, 100, 300, 1_000, 5_000), SIZES):
        for correlation in (0.0, 0.3, 0.6) if sizes != "1" else (0.0,):
            yield Cell(share=share, n_images=n_images, sizes=sizes, correlation=correlation)


def images_by_hits(cell: Cell, n_datasets: int, *, seed: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """For each number of captions, the images of it with 0, 1, .. hits: shape ``(n_datasets, captions + 1)``.

    Examples:
        >>> [(captions, images)] = images_by_hits(Cell(share=0.5, n_images=4, sizes="1", correlation=0), 1, seed=1)
        >>> captions, images.sum()
        (1, np.int64(4))
    """
    rng = np.random.default_rng(seed)
    for n, n_images in zip(*np.unique(cell.captions, return_counts=True), strict=True):
        hits = np.arange(n + 1)
        if cell.correlation and n > 1:
            scale = 1 / cell.correlation - 1
            chance = scipy.stats.betabinom.pmf(hits, n, cell.share * scale, (1 - cell.share) * scale)
        else:
            chance = scipy.stats.binom.pmf(hits, n, cell.share)
        chance = np.maximum(chance, 0)
        yield int(n), rng.multinomial(n_images, chance / chance.sum(), size=n_datasets)


def coverage(cell: Cell, n_datasets: int, *, seed: int, old: bool = False, narrower: int = 0) -> Rate:
    """How often the interval of a share, where shown, holds the true one.

    ``old``: as if images weighed the same; ``narrower``: the hits by which both of its ends are moved inwards.
    """
    n_queries = int(cell.captions.sum())
    weights = np.full(cell.n_images, 1 / cell.n_images) if old else cell.captions / n_queries
    n_effective = 1 / float(np.square(weights).sum())
    groups = [*images_by_hits(cell, n_datasets, seed=seed)]
    hits = np.concatenate([np.arange(n + 1) for n, _ in groups])
    captions = np.concatenate([np.full(n + 1, n) for n, _ in groups])
    found, repeats = np.unique(np.concatenate([of for _, of in groups], axis=1), axis=0, return_counts=True)
    covered = shown = 0
    for images, times in zip(found, repeats.tolist(), strict=True):
        share = float(images @ hits / n_queries)
        influence = np.repeat((hits - share * captions) / n_queries, images)
        of = Hits(float(n_queries), weights)
        interval = student_interval(share, influence, level=LEVEL, n_effective=n_effective, bounds=(0.0, 1.0), hits=of)
        if interval.low is not None and interval.high is not None:
            shown += times
            less = narrower / n_queries
            covered += times * (interval.low + less <= cell.share <= interval.high - less)
    return Rate(covered / max(shown, 1), shown)


def bootstrap_coverage(cell: Cell, n_datasets: int, *, seed: int, draws: int = 999) -> Rate:
    """How often the bootstrap interval of a share holds the true share; data sets without spread count as covered."""
    clusters = Clusters.of(np.repeat(np.arange(cell.n_images), cell.captions))
    [(per_image, rows)] = images_by_hits(cell, n_datasets, seed=seed)
    covered = []
    for at, row in enumerate(rows):
        how = Resampling(replicates=draws, seed=seed + at // AT_ONCE, method="percentile")
        covered.append(contains(interval_of(per_query(row, per_image), clusters, how), cell.share))
    return rate_of(covered)


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
