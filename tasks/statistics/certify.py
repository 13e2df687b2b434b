"""Does what is promised hold on a corpus like this one? Simulated on its own images, captions, shares and correlations.

Intervals, tests and detectable differences are those that ship, not a formula for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.decision import ALPHA
from capim.tasks.statistics.draws import METHODS, IntervalMethod, Resampling
from capim.tasks.statistics.flips import sign_flip_tests
from capim.tasks.statistics.intervals import (
    Bounds,
    ClusteredValues,
    Interval,
    bootstrap_samples,
    cluster_robust_error,
    share_interval,
)
from capim.tasks.statistics.pairs import POWER, TWO_SIDED, detectable_effect
from capim.tasks.statistics.slices import LEAST_EXPECTED

LEAST_COVERAGE, MOST_ERRORS, LEAST_POWER = 0.93, 0.065, 0.75
DATASETS = 1_000
FLIPS = 999
_AT_ONCE = 50
_STREAM = 7  # of the random numbers
_CORRELATED = 0.95  # the largest correlation that is simulated


class Check(NamedTuple):
    """How often something happened in data sets like these.

    Attributes:
        what: ``coverage``, ``type I error`` or ``power``.
        of: Encoder, or pair of encoders.
        rate: None where nothing is promised; ``note`` says why.
        standard_error: Of the rate.
        promised: What it should be.
        holds: Whether the rate is what was promised, but for what chance leaves; None without a rate.
        note: The method, the difference that is detected, the reason.
    """

    what: str
    of: str
    rate: float | None
    standard_error: float | None
    promised: float
    holds: bool | None
    note: str


class Population(NamedTuple):
    """What two encoders do on the queries of a corpus: their values, shape ``(2, n_queries)``, and their clusters."""

    values: NDArray[np.float64]
    clusters: Clusters
    share: bool
    bounds: Bounds


def certify(
    names: tuple[str, str], population: Population, resampling: Resampling, *, n_datasets: int = DATASETS
) -> Iterator[Check]:
    """Coverage of the interval of each encoder, and type I error and power of the test between both.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> hits = (rng.random((2, 200)) < 0.6).astype(float)
        >>> made = Population(hits, Clusters.of(np.arange(200) // 5), share=True, bounds=(0, 1))
        >>> [(check.what, check.holds) for check in certify(("a", "b"), made, Resampling(), n_datasets=200)]
        [('coverage', True), ('coverage', True), ('type I error', True), ('power', True)]
    """
    rng = np.random.default_rng((_STREAM, resampling.seed))
    for row, name in enumerate(names):
        yield _coverage(name, row, population, resampling, rng, n_datasets)
    pair = " - ".join(names)
    errors = [p < ALPHA for p, _ in _tests(population, rng, n_datasets, better_by=0.0)]
    yield _check("type I error", pair, errors, ALPHA, at_most=MOST_ERRORS, note="two equally good encoders, at 5 %")
    stated = [effect for _, effect in _tests(population, rng, 2 * _AT_ONCE, better_by=0.0) if effect is not None]
    difference = float(np.median(stated)) if stated else np.nan
    if not difference < (1 - population.values.mean() if population.share else np.inf):
        unstated = f"no detectable difference is stated; {_effective(population.clusters)}"
        note = f"the detectable difference, {difference:.4g}, is larger than these encoders can be better"
        yield Check("power", pair, None, None, POWER, None, note if stated else unstated)
        return
    found = [p < ALPHA for p, _ in _tests(population, rng, n_datasets, better_by=difference)]
    yield _check("power", pair, found, POWER, at_least=LEAST_POWER, note=f"of a difference of {difference:.4g}, alone")


def _effective(clusters: Clusters) -> str:
    return f"effective number of images {clusters.n_effective:.1f}"


def _coverage(
    name: str, row: int, population: Population, resampling: Resampling, rng: np.random.Generator, n_datasets: int
) -> Check:
    """Of the method that was asked for; where it does not hold, the note names one that does."""
    first = _covered(name, row, population, resampling.method, rng, n_datasets)
    if first.holds in (True, None) or population.clusters.n_clusters > DATASETS:  # bootstraps of so many take minutes
        return first
    for method in METHODS:
        if method != resampling.method and _covered(name, row, population, method, rng, n_datasets).holds:
            return first._replace(note=f"{first.note}; --interval {method} holds")
    return first._replace(note=f"{first.note}; no other method holds")


def _covered(
    name: str, row: int, population: Population, method: IntervalMethod, rng: np.random.Generator, n_datasets: int
) -> Check:
    clusters, truth = population.clusters, _truth(population, row)
    intervals: list[Interval] = []
    for _ in range(0, n_datasets, _AT_ONCE):
        intervals += _intervals(_drawn(population, rng, row), population, method)
    held = [
        low <= truth <= high for each in intervals if (low := each.low) is not None and (high := each.high) is not None
    ]
    if not held:
        return Check("coverage", name, None, None, 0.95, None, intervals[0].reason or "")
    hidden = 1 - len(held) / len(intervals)
    note = _effective(clusters) + (f"; none is shown in {hidden:.0%}" if hidden else "")
    check = _check("coverage", name, held, 0.95, at_least=LEAST_COVERAGE, note=note)
    effective = clusters.n_queries / (
        1 + (clusters.n_queries / clusters.n_effective - 1) * _correlation(population, row)
    )
    if population.share and min(truth, 1 - truth) * effective < LEAST_EXPECTED:
        return check._replace(holds=None, note=f"nothing is promised: fewer than {LEAST_EXPECTED:.0f} hits or misses")
    return check


def _intervals(values: NDArray[np.float64], population: Population, method: IntervalMethod) -> list[Interval]:
    if population.share and method == "wilson":
        return [share_interval(row, population.clusters, level=0.95) for row in values]
    how = Resampling(method=method, replicates=FLIPS)
    [found] = bootstrap_samples([ClusteredValues(values, population.clusters)], how, bounds=population.bounds)
    return found


def _tests(
    population: Population, rng: np.random.Generator, n_datasets: int, *, better_by: float
) -> Iterator[tuple[float, float | None]]:
    """The p-value of two encoders, and the difference that is stated to be detectable; the first is so much better."""
    clusters, rows = population.clusters, [(row, _AT_ONCE + row) for row in range(_AT_ONCE)]
    for start in range(0, n_datasets, _AT_ONCE):
        first, second = _pair(population, rng)
        if better_by and population.share:
            missed = better_by / (1 - population.values.mean())
            first = np.maximum(first, rng.random(first.shape) < missed)
        else:
            first = first + better_by
        tests = sign_flip_tests(
            np.concatenate([first, second]), clusters, rows, Resampling(permutations=FLIPS, seed=start)
        )
        for row, test in enumerate(tests):
            effect = None
            if not better_by:
                difference = first[row] - second[row]
                effect = detectable_effect(difference, clusters, critical=TWO_SIDED, share=population.share)
            yield 1.0 if test.p is None else test.p, effect


def _pair(population: Population, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two equally good encoders in several data sets, each of shape ``(n_datasets, n_queries)``.

    Hits of encoders agree as often as those of this corpus; other values are those of an image, with the encoders
    exchanged at random.
    """
    a, b = population.values
    if not population.share:
        donors = _donors(population, rng)
        swapped = (rng.random((len(donors), population.clusters.n_clusters)) < 0.5)[:, population.clusters.labels]
        return np.where(swapped, b[donors], a[donors]), np.where(swapped, a[donors], b[donors])
    alike = float(np.corrcoef(a, b)[0, 1]) if np.ptp(a) and np.ptp(b) else _CORRELATED
    alike = min(max(alike, 0.0), _CORRELATED)
    share, together = float(population.values.mean()), alike**2 + (1 - alike) ** 2
    correlation = min(_correlation(population, 0) / together, _CORRELATED)
    own_a, own_b, common = (_hits(share, correlation, population.clusters, rng) for _ in range(3))
    agree = rng.random(common.shape) < alike
    return np.where(agree, common, own_a), np.where(agree, common, own_b)


def _drawn(population: Population, rng: np.random.Generator, row: int) -> NDArray[np.float64]:
    """Values of one encoder in several data sets like these, shape ``(n_datasets, n_queries)``."""
    if population.share:
        share = population.clusters.mean(population.values[row])
        return _hits(share, _correlation(population, row), population.clusters, rng)
    drawn: NDArray[np.float64] = population.values[row][_donors(population, rng)]
    return drawn


def _truth(population: Population, row: int) -> float:
    """The figure of all data sets: the share itself, or the mean of the means of the images that values come from."""
    clusters, values = population.clusters, population.values[row]
    if population.share:
        return clusters.mean(values)
    sums = np.bincount(clusters.labels, weights=values, minlength=clusters.n_clusters)
    occupied = clusters.sizes > 0
    return float((sums[occupied] / clusters.sizes[occupied]).mean())


def _hits(share: float, correlation: float, clusters: Clusters, rng: np.random.Generator) -> NDArray[np.float64]:
    """Hits whose images have probabilities of a beta distribution with this intraclass correlation."""
    shape = (_AT_ONCE, clusters.n_clusters)
    chance = np.full(shape, share)
    if 0 < share < 1 and correlation > 0:
        scale = 1 / correlation - 1
        chance = rng.beta(share * scale, (1 - share) * scale, size=shape)
    hits: NDArray[np.float64] = (rng.random((_AT_ONCE, clusters.n_queries)) < chance[:, clusters.labels]).astype(float)
    return hits


def _correlation(population: Population, row: int) -> float:
    """The intraclass correlation of the hits of an encoder, from the design effect."""
    clusters, values = population.clusters, population.values[row]
    share, n = clusters.mean(values), clusters.n_queries
    excess = n / clusters.n_effective - 1
    if excess < 1e-9 or not 0 < share < 1 or clusters.n_occupied < 2:
        return 0.0
    effect = cluster_robust_error(values, clusters) ** 2 * n / (share * (1 - share))
    return min(max((effect - 1) / excess, 0.0), _CORRELATED)


def _donors(population: Population, rng: np.random.Generator) -> NDArray[np.int64]:
    """For every query of several data sets the query whose values it gets, of an image drawn for its image."""
    clusters = population.clusters
    order, sizes = np.argsort(clusters.labels, kind="stable"), clusters.sizes
    occupied, starts = np.flatnonzero(sizes), np.concatenate([[0], np.cumsum(sizes)[:-1]])
    image = rng.choice(occupied, size=(_AT_ONCE, clusters.n_clusters))[:, clusters.labels]
    places = starts[image] + (rng.random(image.shape) * sizes[image]).astype(np.int64)
    donors: NDArray[np.int64] = order[places]
    return donors


def _check(
    what: str, of: str, flags: list[bool], promised: float, *, at_least: float = 0.0, at_most: float = 1.0, note: str
) -> Check:
    rate = float(np.mean(flags))
    error = float(np.sqrt(rate * (1 - rate) / len(flags)))
    slack = 2 * error * max(0.0, 1 - float(np.sqrt(len(flags) / DATASETS)))  # the bars are those of so many data sets
    return Check(what, of, rate, error, promised, at_least - slack <= rate <= at_most + slack, note)
