"""Coverage of the intervals and type I error of the tests of two equally good encoders, by simulation.

Both encoders hit the same share of queries, every image has a difficulty of its own for each encoder, and their
outcomes have a given correlation. A 95 % interval of the share of one encoder must contain it in 95 % of data sets, and
a test at 5 % must find a difference in 5 %. Sign flips count a tie with the observed table as evidence against a
difference, so with few discordant pairs they stay below 5 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.flips import sign_flip_tests
from capim.tasks.statistics.intervals import agreeing_with_test, interval_of, paired_intervals
from tests.benchmarks.simulations.shares import AT_ONCE, LEVEL, Rate, contains, rate_of, significant


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """The parameters of simulated data sets.

    Attributes:
        n_clusters: Images.
        per_cluster: Queries of each image.
        correlation: Between the two encoders' outcomes on one query, 0..1.
        share: Of queries that each encoder hits.
    """

    n_clusters: int
    per_cluster: int
    correlation: float
    share: float = 0.5


def simulated_hits(scenario: Scenario, n_datasets: int, *, seed: int) -> NDArray[np.float64]:
    """Hits of two equally good encoders in several data sets.

    Each encoder hits an image's queries with a probability drawn for that image from a beta distribution (uniform for a
    share of one half), so that queries of one image correlate by 1/3. With the probability ``correlation`` the outcome
    of a query is one draw for both, from an image probability of its own; that makes ``correlation`` exactly their
    correlation, and the two exchangeable.

    Returns:
        float64 zeros and ones, shape ``(n_datasets, 2, n_clusters * per_cluster)``, queries of an image together.

    Examples:
        >>> hits = simulated_hits(Scenario(n_clusters=20_000, per_cluster=1, correlation=0.5), 1, seed=0)[0]
        >>> round(float(np.corrcoef(hits)[0, 1]), 1), round(float(hits.mean()), 1)
        (0.5, 0.5)
    """
    rng = np.random.default_rng(seed)
    shape = (n_datasets, 3, scenario.n_clusters, scenario.per_cluster)
    ease = rng.beta(2 * scenario.share, 2 * (1 - scenario.share), size=(*shape[:3], 1))
    own_a, own_b, common = np.moveaxis(rng.random(shape) < ease, 1, 0)
    together = rng.random(common.shape) < scenario.correlation
    both = np.stack([np.where(together, common, own_a), np.where(together, common, own_b)], axis=1)
    return both.reshape(n_datasets, 2, -1).astype(np.float64)


def study(scenario: Scenario, *, n_datasets: int, seed: int, draws: int = 999) -> dict[str, Rate]:
    """Coverage of the intervals and type-I error of the tests at 5 %, by names such as ``coverage/percentile``.

    Args:
        scenario: Parameters of the data sets.
        n_datasets: A multiple of ``AT_ONCE``.
        seed: Of data and draws.
        draws: Bootstrap replicates and random flips per data set.

    Raises:
        ValueError: ``n_datasets`` is no multiple of ``AT_ONCE``.
    """
    if n_datasets < 1 or n_datasets % AT_ONCE:
        raise ValueError(f"n_datasets must be a multiple of {AT_ONCE}, got {n_datasets}")
    clusters = Clusters.of(np.repeat(np.arange(scenario.n_clusters), scenario.per_cluster))
    happened: dict[str, list[bool]] = {}
    for group in range(n_datasets // AT_ONCE):
        group_seed = seed * 100_003 + group
        for name, flags in _group(scenario, clusters, group_seed, draws).items():
            happened.setdefault(name, []).extend(flags)
    return {name: rate_of(flags) for name, flags in happened.items()}


def _group(scenario: Scenario, clusters: Clusters, seed: int, draws: int) -> dict[str, list[bool]]:
    """One flag per data set for everything that is counted."""
    hits = simulated_hits(scenario, AT_ONCE, seed=seed)
    firsts, rows = hits[:, 0], hits.reshape(2 * AT_ONCE, -1)
    pairs = [(2 * i, 2 * i + 1) for i in range(AT_ONCE)]
    flags: dict[str, list[bool]] = {}
    flips = sign_flip_tests(rows, clusters, pairs, Resampling(permutations=draws, seed=seed))
    flags["error/sign-flip"] = [significant(test.p) for test in flips]
    for method in ("wilson", "percentile"):
        resampling = Resampling(seed=seed, replicates=draws, method=method)  # type: ignore[arg-type]
        alone = [interval_of(row, clusters, resampling, bounds=(0.0, 1.0), share=True) for row in firsts]
        flags[f"coverage/{method}"] = [contains(interval, scenario.share) for interval in alone]
        paired = paired_intervals(rows, clusters, pairs, resampling)
        flags[f"error/{method} of the difference"] = [not contains(interval, 0.0) for interval in paired]
    agreed = [agreeing_with_test(i, test.p, level=LEVEL) for i, test in zip(paired, flips, strict=True)]
    for name, intervals in (("bootstrap alone", paired), ("as printed", agreed)):
        against = [contains(i, 0.0) == significant(t.p) for i, t in zip(intervals, flips, strict=True)]
        flags[f"against the test/{name}"] = against
    return flags
