"""R@1 corrected by judged misses: how often its interval holds the truth, of one encoder and of a difference.

Two encoders find an image's captions with a probability of the image's own; a miss is right with a given probability,
which images share in part, too. Of the union of their misses a random sample is judged. Where both put the same item
first, they share its judgement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from capim.tasks.results.judged_misses import corrected_values
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import interval_of, paired_intervals
from tests.benchmarks.simulations.shares import Rate, contains, rate_of

BETTER_BY = 0.05  # of the first encoder


@dataclass(frozen=True, kw_only=True)
class JudgedCell:
    """One cell: R@1 of the second encoder, the share of misses that are right, judgements, images, captions of each."""

    hits: float
    right: float
    judged: int
    n_images: int
    captions: int


def cells() -> Iterator[JudgedCell]:
    """All cells: images of one caption and of five."""
    for hits, right, judged, (n_images, captions) in product(
        (0.3, 0.6, 0.85), (0.0, 0.1, 0.35), (100, 300), ((1_000, 1), (400, 5))
    ):
        yield JudgedCell(hits=hits, right=right, judged=judged, n_images=n_images, captions=captions)


def judged_coverage(cell: JudgedCell, n_datasets: int, *, seed: int) -> dict[str, Rate]:
    """How often the interval of the second encoder, of the difference, and the uncorrected one hold the truth."""
    rng = np.random.default_rng((seed, cell.judged, cell.n_images))
    clusters = Clusters.of(np.repeat(np.arange(cell.n_images), cell.captions))
    truth = cell.hits + (1 - cell.hits) * cell.right
    first = cell.hits + BETTER_BY
    apart = first + (1 - first) * cell.right - truth
    held = np.zeros((3, n_datasets), dtype=bool)
    for at in range(n_datasets):
        hits, right = _drawn(cell, clusters, rng)
        missed = hits == 0
        union = np.flatnonzero(missed.any(axis=0))
        sampled = np.zeros(clusters.n_queries, dtype=bool)
        sampled[rng.permutation(union)[: cell.judged]] = True
        values = [
            corrected_values(row, lost, np.where(sampled & lost, of, np.nan))
            for row, lost, of in zip(hits, missed, right, strict=True)
        ]
        one = interval_of(values[1], clusters, Resampling(), bounds=(0.0, 1.0))
        [both] = paired_intervals(np.stack(values), clusters, [(0, 1)], Resampling())
        plain = interval_of(hits[1], clusters, Resampling(), bounds=(0.0, 1.0), share=True)
        held[:, at] = contains(one, truth), contains(both, apart), contains(plain, truth)
    names = ("one encoder", "difference", "uncorrected")
    return {name: rate_of(row.tolist()) for name, row in zip(names, held, strict=True)}


def _drawn(
    cell: JudgedCell, clusters: Clusters, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Hits of both encoders, and whether what each puts first is right; shape ``(2, n_queries)`` each."""

    def outcomes(share: float) -> NDArray[np.bool_]:
        if share in (0.0, 1.0):
            return np.full(clusters.n_queries, share == 1.0)
        ease = rng.beta(2 * share, 2 * (1 - share), cell.n_images)[clusters.labels]
        return np.asarray(rng.random(clusters.n_queries) < ease)

    common, own = outcomes(cell.hits), [outcomes(cell.hits), outcomes(cell.hits)]
    together = rng.random(clusters.n_queries) < 0.5
    hits = np.stack([np.where(together, common, each) for each in own])
    gained = ~hits[0] & (rng.random(clusters.n_queries) < BETTER_BY / (1 - cell.hits))
    hits[0] |= gained
    shared, alone = outcomes(cell.right), outcomes(cell.right)
    same = rng.random(clusters.n_queries) < 0.5
    return hits.astype(np.float64), np.stack([shared, np.where(same, shared, alone)]).astype(np.float64)
