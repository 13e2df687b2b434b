"""Slices of 2 to 40 queries of a corpus: coverage of their intervals and type I error of the test against the rest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.decision import ALPHA
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import agreeing_with_test
from capim.tasks.statistics.slices import label_tests, part_means
from tests.benchmarks.simulations.means import QUERIES
from tests.benchmarks.simulations.shares import AT_ONCE, LEVEL, Rate, contains, rate_of

SIZES = (2, 3, 5, 10, 20, 40)
N_IMAGES = 500


class SliceRates(NamedTuple):
    """How often something happened to slices of one size.

    Attributes:
        n: Data sets.
        shown: Share of them in which the slice has an interval and a test.
        coverage: Of the interval where it is shown; NaN if it never is.
        error: Share of the shown slices that are called different from the rest at 5 %; NaN if none is shown.
        claims: Share of all data sets in which the slice is called different.
        contradictions: Share of all data sets in which the interval of the difference and its test disagree.
    """

    n: int
    shown: float
    coverage: float
    error: float
    claims: float
    contradictions: float


def slice_rates(
    share: float, n_datasets: int, *, seed: int, per_image: int = 1, draws: int = 999
) -> dict[int, SliceRates]:
    """Size -> what happens to slices of so many queries, each of another image, that are like the other queries.

    With several captions per image only the first of each of these images is in the slice, and the captions of an image
    hit and miss together (intraclass correlation 1/3).
    """
    clusters = Clusters.of(np.repeat(np.arange(N_IMAGES), per_image))
    first = np.arange(len(clusters.labels)) % per_image == 0
    inside = first & (clusters.labels < np.array(SIZES)[:, None])
    rng = np.random.default_rng(seed)
    shown, covered, claimed, against = np.zeros((4, n_datasets, len(SIZES)), dtype=bool)
    for start in range(0, n_datasets, AT_ONCE):
        ease = rng.beta(2 * share, 2 * (1 - share), size=(AT_ONCE, N_IMAGES))[:, clusters.labels]
        hits = (rng.random(ease.shape) < ease).astype(np.float64)
        resampling = Resampling(replicates=draws, seed=seed + start)
        means = part_means(hits, np.concatenate([inside, ~inside]), clusters, resampling, share=True)
        p_values = label_tests(hits, inside, np.ones(len(first), dtype=bool), clusters)
        for row, at in np.ndindex(AT_ONCE, len(SIZES)):
            if means.too_small(row, at, len(SIZES) + at) is None:
                p = float(p_values[row, at])
                difference = agreeing_with_test(means.difference(row, at, len(SIZES) + at), p, level=LEVEL)
                shown[start + row, at] = True
                covered[start + row, at] = contains(means.interval(row, at), share)
                claimed[start + row, at] = p < ALPHA
                against[start + row, at] = contains(difference, 0.0) == claimed[start + row, at]
    n_shown = shown.sum(axis=0)
    with np.errstate(invalid="ignore"):
        coverage, error = covered.sum(axis=0) / n_shown, claimed.sum(axis=0) / n_shown
    seen = zip(shown.mean(axis=0), coverage, error, claimed.mean(axis=0), against.mean(axis=0), strict=True)
    return {size: SliceRates(n_datasets, *map(float, rates)) for size, rates in zip(SIZES, seen, strict=True)}


def value_slices(figure: str, n_images: int, n_datasets: int, *, seed: int) -> Rate:
    """Type I error of a slice of ten images by a figure that is no share."""
    rng, clusters = np.random.default_rng(seed), Clusters.of(range(n_images))
    values = QUERIES[figure](rng.random((n_datasets, n_images)))
    label, among = (np.arange(n_images) < 10)[None], np.ones(n_images, dtype=bool)
    p_values = label_tests(values, label, among, clusters)[:, 0]
    return rate_of((p_values < ALPHA).tolist())
