"""All pairs of many encoders: false claims, power and detectable differences of step-down max-T, by simulation."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.flips import FlipTest, sign_flip_tests
from capim.tasks.statistics.pairs import compare_encoders, detectable_effect
from capim.tasks.statistics.ranking import rank_encoders
from tests.benchmarks.simulations.shares import AT_ONCE, Rate, rate_of, significant


def suite_of_hits(
    n_encoders: int, share: float, n_images: int, rng: np.random.Generator, *, better_by: float = 0.0
) -> NDArray[np.float64]:
    """Hits of encoders that find the same images difficult, shape ``(n_encoders, n_images)``.

    The first encoder is better by ``better_by``: it also hits some of the queries that it would miss.
    """
    ease = rng.beta(2 * share, 2 * (1 - share), size=n_images)
    hits = rng.random((n_encoders, n_images)) < ease
    hits[0] |= rng.random(n_images) < better_by / (1 - share)
    return hits.astype(np.float64)


def tested(hits: NDArray[np.float64], *, seed: int, permutations: int = 999) -> list[FlipTest]:
    """The tests of all pairs, those of the first encoder first."""
    pairs = list(combinations(range(len(hits)), 2))
    return sign_flip_tests(
        hits, Clusters.of(range(hits.shape[1])), pairs, Resampling(permutations=permutations, seed=seed)
    )


def false_claims(n_encoders: int, share: float, n_suites: int, *, seed: int, n_images: int = 300) -> Rate:
    """Share of suites of equally good encoders in which any pair is called different."""
    rng = np.random.default_rng(seed)
    drawn = (suite_of_hits(n_encoders, share, n_images, rng) for _ in range(n_suites))
    tests = (tested(hits, seed=suite) for suite, hits in enumerate(drawn))
    return rate_of([any(significant(test.p_adjusted) for test in of_suite) for of_suite in tests])


def power(
    n_encoders: int, better_by: float, n_suites: int, *, seed: int, share: float = 0.5, n_images: int = 500
) -> Rate:
    """How often the first encoder, better than all others by so much, is called better than the second."""
    rng = np.random.default_rng(seed)
    found = []
    for suite in range(n_suites):
        [first, *_] = tested(suite_of_hits(n_encoders, share, n_images, rng, better_by=better_by), seed=suite)
        found.append(significant(first.p_adjusted))
    return rate_of(found)


def detectable(n_encoders: int, n_suites: int, *, seed: int, share: float = 0.5, n_images: int = 500) -> float:
    """The difference that studies of equally good encoders say they detect with 80 % power, their mean."""
    rng, clusters = np.random.default_rng(seed), Clusters.of(range(n_images))
    stated = []
    for suite in range(n_suites):
        hits = suite_of_hits(n_encoders, share, n_images, rng)
        first = tested(hits, seed=suite)[0]
        if first.criticals:
            stated.append(detectable_effect(hits[0] - hits[1], clusters, critical=first.criticals[0], share=True))
    return float(np.mean([value for value in stated if value is not None]))


def sparse_power(n_queries: int, n_datasets: int, *, seed: int) -> tuple[float, Rate]:
    """The difference that a study with a single win says it detects, and how often a study of its size then does."""
    clusters = Clusters.of(range(n_queries))
    one_win = (np.arange(n_queries) == 0).astype(np.float64)
    stated = detectable_effect(one_win, clusters, critical=1.96, share=True)
    if stated is None:
        raise ValueError(f"{n_queries} queries state no detectable difference")
    rng, found = np.random.default_rng(seed), []
    for start in range(0, n_datasets, AT_ONCE):
        wins = (rng.random((AT_ONCE, n_queries)) < stated).astype(np.float64)
        rows = np.concatenate([wins, np.zeros((1, n_queries))])
        pairs = [(row, AT_ONCE) for row in range(AT_ONCE)]
        tests = sign_flip_tests(rows, clusters, pairs, Resampling(permutations=999, seed=seed + start))
        found += [significant(test.p) for test in tests]
    return stated, rate_of(found)


def value_power(n_queries: int, n_datasets: int, *, seed: int) -> tuple[float, Rate] | None:
    """The difference in nDCG that studies say they detect, and how often they do; None where none says so."""
    rng, clusters = np.random.default_rng(seed), Clusters.of(range(n_queries))

    def pairs_of_encoders(n: int, better_by: float) -> NDArray[np.float64]:
        ease = rng.beta(2, 2, size=(n, n_queries))
        both = ease + 0.15 * rng.standard_normal((2, n, n_queries))
        both[0] += better_by
        return both

    stated = []
    for first, second in pairs_of_encoders(n_datasets // 10, 0.0).swapaxes(0, 1):
        [test] = tested(np.stack([first, second]), seed=seed)
        if test.criticals:
            stated.append(detectable_effect(first - second, clusters, critical=test.criticals[0]))
    known = [value for value in stated if value is not None]
    if not known:
        return None
    difference, found = float(np.mean(known)), []
    for start in range(0, n_datasets, AT_ONCE):
        rows = np.concatenate([*pairs_of_encoders(AT_ONCE, difference)])
        chosen = [(row, AT_ONCE + row) for row in range(AT_ONCE)]
        tests = sign_flip_tests(rows, clusters, chosen, Resampling(permutations=999, seed=seed + start))
        found += [significant(test.p) for test in tests]
    return difference, rate_of(found)


def far_apart(n_encoders: int, *, seed: int, n_images: int = 300) -> tuple[float, str, str]:
    """Encoders with R@1 from .97 to .03: the adjusted p of the first and the last, and the ranks that they can hold."""
    rng, clusters = np.random.default_rng(seed), Clusters.of(range(n_images))
    hits = (rng.random((n_encoders, n_images)) < np.linspace(0.97, 0.03, n_encoders)[:, None]).astype(np.float64)
    names = [f"encoder {at}" for at in range(n_encoders)]
    compared = compare_encoders(dict(zip(names, hits, strict=True)), clusters, Resampling())
    tests = [(pair.a, pair.b, pair.difference.value, pair.p_adjusted) for pair in compared]
    ranks = rank_encoders(names, tests)
    best, worst = (f"{ranks[name].best} to {ranks[name].worst}" for name in (names[0], names[-1]))
    return compared[n_encoders - 2].p_adjusted or np.nan, best, worst
