"""Coverage of the intervals of figures that are no shares: nDCG, MRR, ranks, means over languages, differences.

Values of a query are a function of a uniform number, and those of an image correlate (a Gaussian copula), so the truth
is an integral. All methods among which the default was chosen see the same data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import Bounds, Interval, interval_of, paired_intervals
from tests.benchmarks.simulations.shares import AT_ONCE, SIZES, contains

METHODS = ("default", "percentile")
LEAST = 5.0  # effective hits, and misses, that a cell with a promise expects


@dataclass(frozen=True, kw_only=True)
class MeanCell:
    """One cell of the grid: what is measured, over how many images of which sizes, and how their queries correlate."""

    figure: str
    n_images: int
    sizes: str
    correlation: float

    @property
    def promised(self) -> bool:
        """Whether an interval is promised: ten effective images, and five hits and misses of a bounded figure."""
        clusters, truth = self.clusters, _truth(self.figure)
        fewer = min(truth, 1 - truth) * clusters.n_effective if _bounds(self.figure) == (0.0, 1.0) else LEAST
        return clusters.n_effective >= 10 - 1e-9 and fewer >= LEAST

    @property
    def clusters(self) -> Clusters:
        """The images and their queries."""
        return Clusters.of(np.repeat(np.arange(self.n_images), SIZES[self.sizes](self.n_images)))


Uniform = NDArray[np.float64]
QUERIES: dict[str, Callable[[Uniform], NDArray[np.float64]]] = {
    "nDCG, flat": lambda u: u,
    "nDCG, U-shaped": lambda u: _beta(0.3, u),
    "nDCG, ceiling": lambda u: np.where(u < 0.9, 1.0, 0.9 * _beta(0.3, np.clip((u - 0.9) / 0.1, 0, 1))),
    "MRR, strong": lambda u: 1 / _geometric(0.9, u),
    "MRR, weak": lambda u: 1 / _geometric(0.05, u),
    "median rank": lambda u: _geometric(0.07, u),
    "median rank, long tail": lambda u: np.ceil(np.exp(3 + 2 * scipy.special.ndtri(np.clip(u, 1e-9, 1 - 1e-9)))),
}
DIFFERENCES = {"difference of .95 and .85": (0.95, 0.85), "difference of .5 and .4": (0.5, 0.4)}
LANGUAGES = {"mean over 10 languages": np.linspace(0.5, 0.95, 10)}
FIGURES = (*QUERIES, *DIFFERENCES, *LANGUAGES)


def cells() -> Iterator[MeanCell]:
    """All cells: images of one query, of five and of unequal sizes."""
    structures = [("1", n, 0.0) for n in (10, 20, 40, 100, 300)]
    structures += [("5", n, r) for n in (10, 20, 40, 100) for r in (0.3, 0.6)]
    structures += [("log-normal", n, r) for n in (30, 100) for r in (0.0, 0.6)]
    structures += [("1 x 50", 300, 0.6), ("1 x 50", 1_000, 0.3), ("3 x 20", 100, 0.6), ("3 x 20", 300, 0.3)]
    for figure in FIGURES:
        for sizes, n_images, correlation in structures:
            yield MeanCell(figure=figure, n_images=n_images, sizes=sizes, correlation=correlation)


def mean_coverage(
    cell: MeanCell, n_datasets: int, *, seed: int, methods: tuple[str, ...] = METHODS, draws: int = 499
) -> tuple[dict[str, float], float]:
    """How often the interval of each method holds the truth where it is shown, and how often the default shows none."""
    clusters, truth, rng = cell.clusters, _truth(cell.figure), np.random.default_rng((seed, cell.n_images))
    held: dict[str, list[bool]] = {name: [] for name in methods}
    hidden = 0
    for start in range(0, n_datasets, AT_ONCE):
        values = _values(cell, clusters, rng)
        found = _intervals(cell, values, clusters, methods, draws, seed + start)
        hidden += sum(each.low is None for each in found["default"])
        for name in methods:
            held[name] += [contains(each, truth) for each in found[name] if each.low is not None]
    return {name: float(np.mean(flags)) if flags else np.nan for name, flags in held.items()}, hidden / n_datasets


def narrower_coverage(cell: MeanCell, n_datasets: int, *, seed: int) -> float:
    """How often the interval of a median rank, where shown, holds the truth if either end is moved inwards by one rank.

    The larger of the two rates.
    """
    clusters, truth, rng = cell.clusters, _truth(cell.figure), np.random.default_rng((seed, cell.n_images))
    held: list[tuple[bool, bool]] = []
    for _ in range(0, n_datasets, AT_ONCE):
        for row in _values(cell, clusters, rng):
            found = interval_of(row, clusters, Resampling(), "median")
            if found.low is not None and found.high is not None:
                held.append((found.low + 1 <= truth <= found.high, found.low <= truth <= found.high - 1))
    return float(np.mean(held, axis=0).max())


def _intervals(
    cell: MeanCell, values: NDArray[np.float64], clusters: Clusters, methods: tuple[str, ...], draws: int, seed: int
) -> dict[str, list[Interval]]:
    """The intervals of some data sets, shape ``(n_datasets, n_queries)``, by each method."""
    found: dict[str, list[Interval]] = {}
    for name, method in zip(METHODS, ("wilson", "percentile"), strict=True):
        how = Resampling(replicates=draws, seed=seed, method=method)  # type: ignore[arg-type]
        if name not in methods:
            continue
        if cell.figure in DIFFERENCES:
            both = np.concatenate([values, np.zeros_like(values[:1])])
            found[name] = paired_intervals(both, clusters, [(row, len(values)) for row in range(len(values))], how)
        else:
            reduce: Any = "median" if "median" in cell.figure else "mean"
            found[name] = [interval_of(row, clusters, how, reduce, bounds=_bounds(cell.figure)) for row in values]
    return found


def _values(cell: MeanCell, clusters: Clusters, rng: np.random.Generator) -> NDArray[np.float64]:
    def numbers(share: float = 1.0) -> NDArray[np.float64]:
        """Normal ones that correlate within an image; a part of their variance."""
        of_image = rng.standard_normal((AT_ONCE, clusters.n_clusters))[:, clusters.labels]
        own = rng.standard_normal((AT_ONCE, clusters.n_queries))
        together = np.sqrt(cell.correlation) * of_image + np.sqrt(1 - cell.correlation) * own
        scaled: NDArray[np.float64] = np.sqrt(share) * together
        return scaled

    if cell.figure in QUERIES:
        return QUERIES[cell.figure](scipy.special.ndtr(numbers()))
    common = numbers(0.5)
    hits = [
        (scipy.special.ndtr(common + numbers(0.5)) < share).astype(np.float64)
        for share in (DIFFERENCES.get(cell.figure) or LANGUAGES[cell.figure])
    ]
    return hits[0] - hits[1] if cell.figure in DIFFERENCES else np.mean(hits, axis=0)


@cache
def _truth(figure: str) -> float:
    if figure in DIFFERENCES:
        first, second = DIFFERENCES[figure]
        return first - second
    if figure in LANGUAGES:
        return float(LANGUAGES[figure].mean())
    values = QUERIES[figure]((np.arange(2_000_000) + 0.5) / 2_000_000)
    return float(np.median(values) if "median" in figure else values.mean())


def _bounds(figure: str) -> Bounds:
    if figure in DIFFERENCES:
        return None
    return None if "rank" in figure else (0.0, 1.0)


def _geometric(chance: float, u: Uniform) -> NDArray[np.float64]:
    ranks: NDArray[np.float64] = np.maximum(np.ceil(np.log1p(-np.clip(u, 0, 1 - 1e-12)) / np.log1p(-chance)), 1.0)
    return ranks


def _beta(shape: float, u: Uniform) -> NDArray[np.float64]:
    """Quantiles of a symmetric beta distribution, from a table."""
    places = np.linspace(0, 1, 20_001)
    return np.interp(u, places, _beta_table(shape))


@cache
def _beta_table(shape: float) -> NDArray[np.float64]:
    table: NDArray[np.float64] = scipy.special.betaincinv(shape, shape, np.linspace(0, 1, 20_001))
    return table
