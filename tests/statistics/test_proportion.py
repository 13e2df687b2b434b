"""Intervals of proportions and clustered errors: against statsmodels and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm  # type: ignore[import-untyped]
from scipy import stats
from statsmodels.stats.proportion import proportion_confint  # type: ignore[import-untyped]

from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.intervals import cluster_robust_error, wilson_interval


def two_encoders(n_clusters: int, per_cluster: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_clusters), per_cluster)
    ease = rng.random(n_clusters)[labels]
    return (rng.random((2, len(labels))) < np.stack([ease, ease * 0.85])).astype(float), labels


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (10, 10), (3, 8), (47, 400), (15174, 25010)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_wilson_intervals_equal_statsmodels(successes: int, n: int, level: float) -> None:
    wilson = proportion_confint(successes, n, alpha=1 - level, method="wilson")
    assert wilson_interval(successes, n, level=level) == pytest.approx(wilson, abs=1e-12)


@pytest.mark.parametrize(("successes", "n", "level"), [(1, 0, 0.95), (-1, 3, 0.95), (4, 3, 0.95), (1, 3, 1.0)])
def test_impossible_proportions_are_refused(successes: int, n: int, level: float) -> None:
    with pytest.raises(ValueError, match=f"got {successes} of {n} at level {level}"):
        wilson_interval(successes, n, level=level)


def test_the_clustered_error_equals_statsmodels() -> None:
    values, labels = two_encoders(50, 4)
    fit = sm.OLS(values[0], np.ones(200)).fit(cov_type="cluster", cov_kwds={"groups": labels})
    assert cluster_robust_error(values[0], Clusters.of(labels)) == pytest.approx(fit.bse[0], rel=1e-12)
    weights = np.random.default_rng(1).random(200) + 0.5
    fit = sm.WLS(values[0], np.ones(200), weights).fit(cov_type="cluster", cov_kwds={"groups": labels})
    assert cluster_robust_error(values[0], Clusters.of(labels, weights=weights)) == pytest.approx(fit.bse[0], rel=1e-12)


def test_the_clustered_error_of_independent_queries_is_that_of_a_mean() -> None:
    values = np.random.default_rng(1).random(40)
    assert cluster_robust_error(values, Clusters.of(range(40))) == pytest.approx(stats.sem(values), rel=1e-12)


def test_the_clustered_error_of_one_cluster_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 clusters with a query, got 1"):
        cluster_robust_error([0.0, 1.0], Clusters.of([3, 3], 10))
