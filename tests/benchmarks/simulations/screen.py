"""What a reader sees at once: any false claim on a first screen, beside chance, of few or heavy images, over corpora.

All encoders are equally good (or guess), so every "better", "worse" or "below" is false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from capim.tasks.statistics.chance import chance_p
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.decision import BesideChance, against_chance, decide, over_families
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.flips import sign_flip_tests
from capim.tasks.statistics.intervals import ClusteredValues
from capim.tasks.statistics.pairs import Comparison, Scale, compare_encoders
from capim.tasks.statistics.ranking import rank_over_corpora
from tests.benchmarks.rows import Row
from tests.benchmarks.simulations.shares import Rate, percent, significant

SEED = 41
BAR = "<= 5"
STRUCTURES: dict[str, Callable[[np.random.Generator], NDArray[np.int64]]] = {
    "20 images of 5": lambda rng: np.full(20, 5),
    "100 images of 5": lambda rng: np.full(100, 5),
    "1 x 50 + 19 x 1": lambda rng: np.array([50] + [1] * 19),
    "1 x 50 + 99 x 1": lambda rng: np.array([50] + [1] * 99),
    "3 x 20 + 27 x 1": lambda rng: np.array([20] * 3 + [1] * 27),
    "40 images, log-normal": lambda rng: np.ceil(rng.lognormal(1.0, 1.0, 40)).astype(np.int64),
    "1,200 images, 30 with 50": lambda rng: np.where(np.arange(1200) < 30, 50, 1),
}


def rows(n: int) -> list[Row]:
    """Rows of RESULTS.md, from ``n`` simulated screens each."""
    found = []
    for n_corpora, n_encoders in product((1, 3, 5), (2, 5, 10, 33)):
        shared, alone = false_screens(n_encoders, n_corpora, n)
        old = {(2, 1): "issue 41: .07", (5, 3): "issue 41: .25"}.get((n_encoders, n_corpora), "")
        name = f"first screen of {n_encoders} equal encoders on {n_corpora} corpora: any false better or worse"
        found.append(percent(name, shared, BAR, peer=old, note=f"each figure by itself {100 * alone.rate:.1f} %"))
    for n_encoders, old in ((1, ".18 / .17"), (4, ".54 / .55"), (10, ".87 / .86")):
        rate = false_chance(n_encoders, n)
        name = f"{n_encoders} guessers in 7 categories: any better than or below chance"
        found.append(percent(name, rate, BAR, peer=f"issue 41: {old}", note="250 pairs each"))
    for structure in STRUCTURES:
        rate = guessers_of(structure, n)
        found.append(percent(f"guessers, {structure}: better than or below chance", rate, BAR, note="captions agree"))
        claims, covers = equal_pairs(structure, n)
        found.append(percent(f"two equal encoders, {structure}: better or worse", claims, BAR))
        name = f"two encoders 10 points apart, {structure}: simultaneous interval covers"
        found.append(percent(name, covers, ">= 93"))
    for n_clusters, old in ((6, ".26"), (10, ".10"), (20, ".07")):
        every, silent = skewed(n_clusters, n)
        name = f"skewed differences of mean 0, {n_clusters} images: claims without “few images” beside them"
        found.append(percent(name, silent, BAR, peer=f"issue 41: {old}", note=f"claims {100 * every.rate:.1f} %"))
    for name, n_corpora, shared_images, old in (
        ("one corpus under three names", 3, 1.0, "“95 % confidence” where p is .24"),
        ("three corpora that share half their images", 3, 0.5, ".10"),
        ("one corpus under five names", 5, 1.0, ".56"),
    ):
        rate = false_ranks(n_corpora, shared_images, n)
        title = f"{name}, joined by photograph: any false rank of equal encoders"
        found.append(percent(title, rate, BAR, peer=f"issue 41: {old}"))
    return found


def false_screens(n_encoders: int, n_corpora: int, n: int, *, n_images: int = 150) -> tuple[Rate, Rate]:
    """Screens with any false claim, by one budget and with a budget for each figure.

    Three planned figures of each corpus: text to image, image to text, and their sum.
    """
    rng, clusters = np.random.default_rng((SEED, n_encoders, n_corpora)), Clusters.of(range(n_images))
    pairs = list(combinations(range(n_encoders), 2))
    shared, alone = 0, 0
    for screen in range(n):
        resampling, families = Resampling(permutations=999, seed=screen), []
        for _ in range(n_corpora):
            ease = rng.random((2, 1, n_images))
            t2i, i2t = (rng.random((2, n_encoders, n_images)) < ease).astype(np.float64)
            for values in (t2i, i2t, t2i + i2t):
                tests = sign_flip_tests(values, clusters, pairs, resampling)
                families.append([test.p_adjusted for test in tests])
        alone += any(significant(p) for of in families for p in of)
        shared += any(significant(p) for of in over_families(families) for p in of)
    return Rate(shared / n, n), Rate(alone / n, n)


def false_chance(n_encoders: int, n: int, *, n_pairs: int = 250, n_categories: int = 7) -> Rate:
    """Tables of guessers in which anything but "not shown to be better" is said."""
    rng, said, pairs = np.random.default_rng((SEED, n_encoders)), 0, Clusters.of(range(n_pairs))
    for _ in range(n):
        values = rng.binomial(n_pairs, 0.5, n_encoders * n_categories) / n_pairs
        figures = [BesideChance(value, 0.5, chance_p(value, 0.5, pairs)) for value in values.tolist()]
        said += {*against_chance(figures)} != {"open"}
    return Rate(said / n, n)


def guessers_of(structure: str, n: int, *, chance: float = 0.5) -> Rate:
    """One guesser on images with so many captions, all of which hit or miss together."""
    rng, said = np.random.default_rng((SEED, len(structure))), 0
    for _ in range(n):
        images = _images(STRUCTURES[structure](rng))
        hits = (rng.random(images.n_clusters) < chance)[images.labels].astype(np.float64)
        value = images.mean(hits)
        [label] = against_chance([BesideChance(value, chance, chance_p(value, chance, images))])
        said += label in ("better", "below")
    return Rate(said / n, n)


def _images(sizes: NDArray[np.int64]) -> Clusters:
    return Clusters.of(np.repeat(np.arange(len(sizes)), sizes))


def _compared(a: NDArray[np.float64], b: NDArray[np.float64], clusters: Clusters, seed: int) -> Comparison:
    """One pair of encoders whose figure is a share."""
    resampling = Resampling(permutations=999, seed=seed)
    [pair] = compare_encoders({"a": a, "b": b}, clusters, resampling, Scale(span=1.0))
    return pair


def equal_pairs(structure: str, n: int) -> tuple[Rate, Rate]:
    """False claims of two equal encoders; and how often the simultaneous interval holds a true 10 points.

    The captions of an image have a difficulty of their own, larger images another one. An interval without an end
    holds everything.
    """
    rng, claims, covers = np.random.default_rng((SEED, len(structure), 2)), 0, 0
    for at in range(n):
        clusters = _images(STRUCTURES[structure](rng))
        for better_by in (0.0, 0.1):
            ease = rng.beta(1.5, 1.5, (2, clusters.n_clusters)) * (1 - better_by)
            ease[0] += better_by
            a, b = (rng.random((2, clusters.n_queries)) < ease[:, clusters.labels]).astype(np.float64)
            pair = _compared(a, b, clusters, at)
            if not better_by:
                found = decide(pair.simultaneous, p_equivalent=None, margin=None, n_effective=pair.n_effective)
                claims += found.state in ("better", "worse")
            else:
                low, high = pair.simultaneous or (-1.0, 1.0)
                covers += low <= better_by <= high
    return Rate(claims / n, n), Rate(covers / n, n)


def skewed(n_clusters: int, n: int) -> tuple[Rate, Rate]:
    """Claims where many small wins and one large loss of six images have a mean of 0, and those that say no more."""
    rng, every, silent = np.random.default_rng((SEED, n_clusters)), 0, 0
    clusters = Clusters.of(range(n_clusters))
    for at in range(n):
        lost = rng.random(n_clusters) < 1 / 6
        noise = rng.uniform(0.9, 1.1, n_clusters)
        pair = _compared(np.where(lost, 0.0, 0.2 * noise), np.where(lost, 1.0 * noise.mean(), 0.0), clusters, at)
        found = decide(pair.simultaneous, p_equivalent=None, margin=None, n_effective=pair.n_effective)
        claimed = found.state in ("better", "worse")
        every, silent = every + claimed, silent + (claimed and not found.few_images)
    return Rate(every / n, n), Rate(silent / n, n)


def false_ranks(n_corpora: int, shared: float, n: int, *, n_images: int = 100, n_encoders: int = 3) -> Rate:
    """Suites of equal encoders in which any rank is wrong, of corpora that have a share of their images in common."""
    rng, wrong = np.random.default_rng((SEED, n_corpora, int(10 * shared))), 0
    resampling = Resampling(replicates=100, permutations=999)
    for _ in range(n):
        hits, units = [*_sharing(n_corpora, shared, n_images, n_encoders, rng)], [*_units(n_corpora, shared, n_images)]
        corpora = [[ClusteredValues(values, Clusters.of(range(n_images)))] for values in hits]
        found = rank_over_corpora(corpora, resampling, units)
        held = [standing.held for standing in found["these corpora"]]
        wrong += any(ranks is not None and (ranks.best, ranks.worst) != (1, n_encoders) for ranks in held)
    return Rate(wrong / n, n)


def _units(n_corpora: int, shared: float, n_images: int) -> Iterator[NDArray[np.int64]]:
    common = round(shared * n_images)
    for corpus in range(n_corpora):
        own = common + corpus * (n_images - common) + np.arange(n_images - common)
        yield np.concatenate([np.arange(common), own])


def _sharing(
    n_corpora: int, shared: float, n_images: int, n_encoders: int, rng: np.random.Generator
) -> Iterator[NDArray[np.float64]]:
    units: Sequence[NDArray[np.int64]] = [*_units(n_corpora, shared, n_images)]
    ease = rng.random(1 + max(int(unit.max()) for unit in units))
    hits = (rng.random((n_encoders, len(ease))) < ease).astype(np.float64)
    yield from (hits[:, unit] for unit in units)
