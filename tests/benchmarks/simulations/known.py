"""Cases with a known answer: degenerate data, chance values, ties, equivalence."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from capim.tasks.metrics import METRICS
from capim.tasks.ranking.outcomes import Outcomes, outcomes_of
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.decision import decide
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import Interval, interval_of, paired_intervals
from capim.tasks.statistics.pairs import Scale, compare_encoders, equivalence_p
from capim.tasks.statistics.slices import part_means
from tests.benchmarks.simulations.shares import SIZES, Rate, contains, rate_of, significant

N_IMAGES, N_CAPTIONS = 5_000, 25_010  # COCO's Karpathy test split: ten images have a sixth caption


def constant_scorers(n_images: int = 300) -> tuple[int, int]:
    """False statements about constant scorers on images with five or six captions, and how many were checked.

    An interval that excludes its own value, and any interval or p-value of a difference that is 0 but for rounding.
    """
    labels = np.repeat(np.arange(n_images), 5 + (np.arange(n_images) % 30 == 0))
    clusters, resampling = Clusters.of(labels), Resampling(replicates=999, permutations=999)
    part = (labels < n_images // 3)[None]
    false = checked = 0
    for share in (1 / n_images, 5 / n_images, 1 / 7, 1 / 3):
        values = np.full(len(labels), share)
        means = part_means(values, np.concatenate([part, ~part]), clusters, resampling)
        [pair] = compare_encoders({"a": values, "b": values + 1e-16}, clusters, resampling, Scale(share=True))
        [difference] = paired_intervals(np.stack([values, values]), clusters, [(0, 1)], resampling)
        own = [
            interval_of(values, clusters, resampling, bounds=(0.0, 1.0), share=True),
            means.interval(0, 0),
            means.interval(0, 1),
        ]
        false += sum(not contains(interval, share) for interval in own)
        false += sum(_has_ends(interval) for interval in (means.difference(0, 0, 1), difference))
        false += pair.flip_test.p is not None and pair.flip_test.p < 1
        checked += len(own) + 3
    return false, checked


def three_way_tie() -> float:
    """MRR of a query whose relevant item shares the first rank with two others: (1 + 1/2 + 1/3) / 3."""
    outcomes = replace(outcomes_of([[1]], n_gallery=10), rank_worst=np.array([3], dtype=np.int32))
    return METRICS["MRR"].value(outcomes)


def pair_chance(n_negatives: int) -> float:
    """Chance that the right caption beats so many negatives."""
    outcomes = outcomes_of([[1]] * 4, n_gallery=1 + n_negatives)
    return float(METRICS["pair_accuracy"].chance(outcomes) or np.nan)


def coco_chance(metric: str, direction: str) -> float:
    """The chance value that capim gives a metric on COCO."""
    return float(METRICS[metric].chance(_coco(direction)) or np.nan)


def simulated_chance(metric: str, direction: str, n_orders: int, *, seed: int) -> float:
    """The mean of a metric over random orders of the gallery of COCO, from the first relevant rank of every query."""
    outcomes, rng = _coco(direction), np.random.default_rng(seed)
    n_queries, n_gallery = len(outcomes), int(outcomes.n_gallery[0])
    figures = []
    for _ in range(n_orders):
        first = np.full(n_queries, n_gallery)
        for relevant in range(int(outcomes.n_relevant.max())):
            drawn = rng.integers(1, n_gallery + 1, size=n_queries)
            first = np.where(relevant < outcomes.n_relevant, np.minimum(first, drawn), first)
        figures.append(float((1 / first).mean()) if metric == "MRR" else float(np.median(first)))
    return float(np.mean(figures))


def false_equivalence(n_queries: int, n_datasets: int, *, seed: int, margin: float = 0.01) -> Rate:
    """How often two encoders whose true difference is the margin are called equivalent; 6 % of queries differ."""
    rng, clusters = np.random.default_rng(seed), Clusters.of(range(n_queries))
    drawn = (_differences(rng, n_queries, 0.03 + margin / 2, 0.03 - margin / 2) for _ in range(n_datasets))
    return rate_of([significant(equivalence_p(each, clusters, margin=margin)) for each in drawn])


STRUCTURES: dict[str, NDArray[np.int64]] = {
    "3,000 of one caption": np.ones(3_000, dtype=np.int64),
    "1,000 of 5": np.full(1_000, 5),
    "1,170 of 1 and 30 x 50": np.array([50] * 30 + [1] * 1_170),
    "1,000 of 1 and 20 x 10": np.array([10] * 20 + [1] * 1_000),
    "900 of 1 and 100 x 10": np.array([10] * 100 + [1] * 900),
    "294 of 1 and 6 x 50": np.array([50] * 6 + [1] * 294),
    "270 of 1 and 30 x 20": np.array([20] * 30 + [1] * 270),
    "1,000, log-normal": SIZES["log-normal"](1_000),
}
"""Captions of every image, the most first."""


def equivalent_at_the_edge(sizes: NDArray[np.int64], n_datasets: int, *, seed: int, margin: float = 0.01) -> Rate:
    """How often encoders whose true difference is the margin are called equivalent: wins alone, of whole images.

    Of the images with most captions, the twentieth part, and as many as it takes to make the difference at all.
    """
    rng = np.random.default_rng(seed)
    weight = np.cumsum(sizes) / sizes.sum()
    n_heavy = max(len(sizes) // 20, int(np.searchsorted(weight, 2 * margin)) + 1)
    if sizes[0] == sizes[-1]:
        n_heavy = len(sizes)
    chance = margin / weight[n_heavy - 1]
    clusters, labels = Clusters.of(np.repeat(np.arange(len(sizes)), sizes)), np.repeat(np.arange(len(sizes)), sizes)
    called = []
    for _ in range(n_datasets):
        wins = (rng.random(len(sizes)) < chance) & (np.arange(len(sizes)) < n_heavy)
        called.append(significant(equivalence_p(wins[labels].astype(np.float64), clusters, margin=margin)))
    return rate_of(called)


def equivalence_power(n_images: int, n_datasets: int, *, seed: int, margin: float = 0.01) -> Rate:
    """How often equally good encoders are called equivalent: 5 captions, 5 % of the queries differ each way."""
    rng, clusters, called = np.random.default_rng(seed), Clusters.of(np.repeat(np.arange(n_images), 5)), []
    for at in range(n_datasets):
        difference = _differences(rng, 5 * n_images, 0.05, 0.05)
        values = {"a": np.maximum(difference, 0.0), "b": np.maximum(-difference, 0.0)}
        how = Resampling(permutations=999, seed=seed + at, margin=100 * margin)
        [pair] = compare_encoders(values, clusters, how, Scale(share=True, span=1.0))
        found = decide(pair.simultaneous, p_equivalent=pair.p_equivalent, margin=margin)
        called.append(found.state == "equivalent")
    return rate_of(called)


def least_equivalent(margin: float = 0.01) -> int:
    """The fewest images of one query from which on two encoders that never differ are equivalent."""

    def is_equivalent(n: int) -> bool:
        return significant(equivalence_p(np.zeros(n), Clusters.of(range(n)), margin=margin))

    return 1 + bisect_left(range(1, 10_000), True, key=is_equivalent)


def _differences(rng: np.random.Generator, n: int, wins: float, losses: float) -> NDArray[np.float64]:
    drawn = rng.random(n)
    return np.where(drawn < wins, 1.0, np.where(drawn < wins + losses, -1.0, 0.0))


def _coco(direction: str) -> Outcomes:
    if direction == "t2i":
        return outcomes_of([[1]] * N_CAPTIONS, n_gallery=N_IMAGES, protocol="t2i/all")
    relevant = [list(range(1, 7 if image < N_CAPTIONS - 5 * N_IMAGES else 6)) for image in range(N_IMAGES)]
    return outcomes_of(relevant, n_gallery=N_CAPTIONS, protocol="i2t/any")


def _has_ends(interval: Interval) -> bool:
    return interval.low is not None or interval.high is not None
