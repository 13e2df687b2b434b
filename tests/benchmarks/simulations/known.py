"""Cases with a known answer: degenerate data, chance values, ties, equivalence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from capim.tasks.metrics import METRICS
from capim.tasks.ranking.outcomes import Outcomes, outcomes_of
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.decision import ALPHA
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import Interval, paired_intervals, share_interval
from capim.tasks.statistics.pairs import Scale, compare_encoders, equivalence_p
from capim.tasks.statistics.slices import part_means
from tests.benchmarks.simulations.shares import LEVEL, Rate, contains

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
        own = [share_interval(values, clusters, level=LEVEL), means.interval(0, 0), means.interval(0, 1)]
        false += sum(not contains(interval, share) for interval in own)
        false += sum(_has_ends(interval) for interval in (means.difference(0, 0, 1), difference))
        false += pair.flip_test.p is not None and pair.flip_test.p < 1
        checked += len(own) + 3
    return false, checked


def all_hits(n_images: int) -> Interval:
    """The interval of a share of which every query hits."""
    return share_interval(np.ones(5 * n_images), Clusters.of(np.repeat(np.arange(n_images), 5)), level=LEVEL)


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
    called = []
    for _ in range(n_datasets):
        p = equivalence_p(_differences(rng, n_queries, 0.03 + margin / 2, 0.03 - margin / 2), clusters, margin=margin)
        called.append(p is not None and p < ALPHA)
    return Rate("equivalent", float(np.mean(called)), n_datasets)


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
