"""Intervals of shares and clustered errors: against statsmodels and SciPy, and in agreement with the tests."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.decision import NEXT_TO_ZERO
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import (
    FEW_IMAGES,
    NARROWED,
    NO_SPREAD,
    UNBOUNDED,
    WIDENED,
    Interval,
    agreeing_with_test,
    cluster_robust_error,
    interval_of,
    wilson_interval,
)
from capim.tasks.statistics.pairs import compare_encoders


def two_encoders(n_clusters: int, per_cluster: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_clusters), per_cluster)
    ease = rng.random(n_clusters)[labels]
    return (rng.random((2, len(labels))) < np.stack([ease, ease * 0.85])).astype(float), labels


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (10, 10), (3, 8), (47, 400), (15174, 25010)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_wilson_intervals_equal_statsmodels(successes: int, n: int, level: float) -> None:
    from statsmodels.stats.proportion import proportion_confint  # type: ignore[import-untyped]

    wilson = proportion_confint(successes, n, alpha=1 - level, method="wilson")
    assert wilson_interval(successes, n, level=level) == pytest.approx(wilson, abs=1e-12)


@pytest.mark.parametrize(("successes", "n", "level"), [(1, 0, 0.95), (-1, 3, 0.95), (4, 3, 0.95), (1, 3, 1.0)])
def test_impossible_proportions_are_refused(successes: int, n: int, level: float) -> None:
    with pytest.raises(ValueError, match=f"got {successes} of {n} at level {level}"):
        wilson_interval(successes, n, level=level)


def test_the_clustered_error_equals_statsmodels() -> None:
    import statsmodels.api as sm  # type: ignore[import-untyped]

    values, labels = two_encoders(50, 4)
    for weights in (np.ones(200), np.random.default_rng(1).random(200) + 0.5):
        fit = sm.WLS(values[0], np.ones(200), weights).fit(cov_type="cluster", cov_kwds={"groups": labels})
        ours = cluster_robust_error(values[0], Clusters.of(labels, weights=weights))
        assert ours == pytest.approx(fit.bse[0], rel=1e-12)


def test_the_clustered_error_of_independent_queries_is_that_of_a_mean_and_of_one_cluster_there_is_none() -> None:
    values = np.random.default_rng(1).random(40)
    assert cluster_robust_error(values, Clusters.of(range(40))) == pytest.approx(scipy.stats.sem(values), rel=1e-12)
    with pytest.raises(ValueError, match="at least 2 clusters with a query, got 1"):
        cluster_robust_error([0.0, 1.0], Clusters.of([3, 3], 10))


def share_interval(values: np.ndarray, clusters: Clusters, level: float = 0.95) -> Interval:
    return interval_of(values, clusters, Resampling(level=level), bounds=(0.0, 1.0), share=True)


def ends(values: np.ndarray, clusters: Clusters, level: float = 0.95) -> tuple[float, float]:
    interval = share_interval(values, clusters, level=level)
    assert interval.method == "wilson" and interval.low is not None and interval.high is not None
    return interval.low, interval.high


@pytest.mark.parametrize("hits", [300, 2_500, 4_900])
def test_the_interval_of_many_independent_queries_is_wilsons(hits: int) -> None:
    from statsmodels.stats.proportion import proportion_confint  # type: ignore[import-untyped]

    values = (np.arange(5_000) < hits).astype(float)
    wilson = proportion_confint(hits, 5_000, method="wilson")
    assert ends(values, Clusters.of(range(5_000))) == pytest.approx(wilson, abs=2e-4)


@pytest.mark.parametrize("copies", [2, 5])
def test_captions_that_hit_and_miss_together_count_as_one_query(copies: int) -> None:
    values = np.random.default_rng(1).integers(0, 2, 400).astype(float)
    once = ends(values, Clusters.of(range(400)))
    together = ends(np.repeat(values, copies), Clusters.of(np.repeat(np.arange(400), copies)))
    assert together == pytest.approx(once, abs=1e-3)


def test_hits_and_misses_have_mirrored_intervals_that_hold_their_share() -> None:
    rng = np.random.default_rng(2)
    clusters = Clusters.of(np.repeat(np.arange(60), rng.integers(1, 7, 60)), weights=None)
    for share in (0.1, 0.3, 0.9):
        values = (rng.random(clusters.n_queries) < share).astype(float)
        low, high = ends(values, clusters)
        assert ends(1 - values, clusters) == pytest.approx((1 - high, 1 - low))
        assert 0 <= low <= values.mean() <= high <= 1
        narrow = ends(values, clusters, level=0.8)
        assert low < narrow[0] < narrow[1] < high


def test_the_error_of_the_interval_is_the_clustered_error_with_weights_too() -> None:
    rng = np.random.default_rng(3)
    clusters = Clusters.of(np.repeat(np.arange(50), 4), weights=rng.random(200) + 0.5)
    values = rng.integers(0, 2, 200).astype(float)
    interval = share_interval(values, clusters)
    n = clusters.n_effective  # in place of the number of images
    robust = cluster_robust_error(values, clusters) * np.sqrt(n / (n - 1) / (50 / 49))
    assert interval.standard_error == pytest.approx(robust)
    assert interval.value == pytest.approx(np.average(values, weights=clusters.weights))


@pytest.mark.parametrize("share", [1 / 7, 0.4])
def test_a_constant_scorer_on_images_of_five_and_six_captions_has_no_interval(share: float) -> None:
    clusters = Clusters.of(np.repeat(np.arange(300), 5 + (np.arange(300) % 30 == 0)))
    interval = share_interval(np.full(clusters.n_queries, share), clusters)
    assert (interval.low, interval.high, interval.reason) == (None, None, NO_SPREAD)


def test_few_images_few_hits_and_a_mean_rank_have_a_reason_instead_of_an_interval() -> None:
    nine = share_interval(np.arange(9) % 2.0, Clusters.of(range(9)))
    assert (nine.low, nine.reason) == (None, FEW_IMAGES)
    independent, together = Clusters.of(range(1_000)), Clusters.of(np.repeat(range(200), 5))
    for hits, shown in ((4, False), (6, True), (994, True), (996, False), (1_000, False)):
        values = (np.arange(1_000) < hits).astype(float)
        found = share_interval(values, independent)
        assert (found.low is not None) == shown, hits
        assert shown or f"{min(hits, 1_000 - hits):.1f} effective hits or misses" in (found.reason or "")
        assert share_interval(values, together).low is None  # five captions of an image are one hit
    mrr = interval_of(1.0 / np.arange(1, 31), Clusters.of(range(30)), Resampling(), bounds=(0.0, 1.0))
    assert (mrr.low, mrr.reason) == (None, "no interval: 4.0 effective hits or misses, at least 5 of each are needed")
    rank = interval_of(np.arange(1.0, 101), Clusters.of(range(100)), Resampling(), bounds=(1.0, np.inf))
    assert (rank.value, rank.low, rank.reason) == (50.5, None, UNBOUNDED)


@pytest.mark.parametrize(("wins", "losses"), [(5, 0), (6, 0), (9, 2), (10, 2), (1, 0), (0, 5), (0, 6), (30, 14)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_a_difference_holds_zero_if_and_only_if_its_test_does_not_reject(wins: int, losses: int, level: float) -> None:
    """Five wins and no loss: p is .0625, but the bootstrap alone gives 0.5 to 5.0 points."""
    first, second = np.zeros(200), np.zeros(200)
    first[:wins], second[wins : wins + losses] = 1, 1
    [pair] = compare_encoders({"a": first, "b": second}, Clusters.of(range(200)), Resampling(level=level))
    assert pair.difference.low is not None and pair.difference.high is not None and pair.flip_test.p is not None
    holds_zero = pair.difference.low <= 0 <= pair.difference.high
    assert holds_zero == (pair.flip_test.p >= 1 - level)
    assert pair.difference.low <= pair.difference.value <= pair.difference.high


def test_an_end_moves_to_zero_from_either_side_and_says_so() -> None:
    below = Interval(value=-0.03, low=-0.05, high=-0.01, method="percentile")
    assert agreeing_with_test(below, 0.06, level=0.95).high == 0.0
    assert agreeing_with_test(below, 0.06, level=0.95).reason == WIDENED
    across = Interval(value=-0.03, low=-0.06, high=0.001, method="percentile")
    moved = agreeing_with_test(across, 0.04, level=0.95)
    assert moved.high == -NEXT_TO_ZERO
    assert (moved.low, moved.reason) == (-0.06, NARROWED)
    assert agreeing_with_test(across, None, level=0.95) == across
