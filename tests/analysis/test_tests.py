"""Sign flips, McNemar, adjustments, proportions: against SciPy, statsmodels and the definitions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import NormalIndPower
from statsmodels.stats.proportion import proportion_confint, proportion_effectsize

from tasks.analysis import permutation
from tasks.analysis.clusters import Clusters
from tasks.analysis.effect import cohen_dz, cohen_h, mcnemar_exact, odds_ratio, tally
from tasks.analysis.multiplicity import adjusted
from tasks.analysis.permutation import sign_flip_tests
from tasks.analysis.power import clusters_needed, detectable_effect
from tasks.analysis.proportion import clopper_pearson_interval, cluster_robust_error, wilson_interval


def two_encoders(n_clusters: int, per_cluster: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_clusters), per_cluster)
    ease = rng.random(n_clusters)[labels]
    return (rng.random((2, len(labels))) < np.stack([ease, ease * 0.85])).astype(float), labels


# --- sign flips -----------------------------------------------------------------------------------------------


def test_exact_sign_flips_equal_the_definition_written_out() -> None:
    values, labels = two_encoders(9, 5)
    difference = Clusters.of(labels).sums(values)
    difference = difference[:, 0] - difference[:, 1]
    flipped = [abs(np.dot(signs, difference)) for signs in product([1, -1], repeat=9)]
    [test] = sign_flip_tests(values, Clusters.of(labels), [(0, 1)], seed=1)
    assert test.exact
    assert test.p == np.mean(np.array(flipped) >= abs(difference.sum()))


def test_exact_sign_flips_equal_scipys_exact_permutation_test() -> None:
    values = np.random.default_rng(3).random((2, 10))
    peer = stats.permutation_test(
        (values[0], values[1]), lambda a, b, axis: np.mean(a - b, axis=axis), permutation_type="samples",
        vectorized=True, n_resamples=np.inf,
    )  # fmt: skip
    [test] = sign_flip_tests(values, Clusters.of(range(10)), [(0, 1)], seed=1)
    assert (test.exact, test.flips) == (True, 1024)
    assert test.p == pytest.approx(peer.pvalue, abs=1e-12)


def test_random_sign_flips_agree_with_the_exact_test(monkeypatch: pytest.MonkeyPatch) -> None:
    values, labels = two_encoders(18, 3)
    [exact] = sign_flip_tests(values, Clusters.of(labels), [(0, 1)], seed=1)
    monkeypatch.setattr(permutation, "EXACT_FLIPS", 0)
    [drawn] = sign_flip_tests(values, Clusters.of(labels), [(0, 1)], permutations=40_000, seed=1)
    assert exact.exact and not drawn.exact
    assert drawn.p == pytest.approx(exact.p, abs=4 * np.sqrt(0.25 / 40_000))


def test_random_sign_flips_agree_with_mcnemar_where_every_query_is_a_cluster() -> None:
    values, _ = two_encoders(600, 1)
    [test] = sign_flip_tests(values, Clusters.of(range(600)), [(0, 1)], permutations=50_000, seed=2)
    wins, _, losses = tally(values[0], values[1])
    assert test.p == pytest.approx(mcnemar_exact(wins, losses), abs=0.01)


def test_a_random_flip_never_gives_a_p_value_of_zero() -> None:
    values = np.stack([np.ones(500), np.zeros(500)])
    [test] = sign_flip_tests(values, Clusters.of(range(500)), [(0, 1)], permutations=999, seed=2)
    assert test.p == 1 / 1000


def test_pairs_tested_together_get_the_p_values_of_pairs_tested_alone() -> None:
    rng = np.random.default_rng(5)
    values, clusters = rng.random((4, 300)), Clusters.of(np.repeat(np.arange(100), 3))
    pairs = [(0, 1), (0, 3), (2, 1)]
    together = sign_flip_tests(values, clusters, pairs, permutations=500, seed=3)
    alone = [sign_flip_tests(values[list(p)], clusters, [(0, 1)], permutations=500, seed=3)[0] for p in pairs]
    assert together == alone


def test_clusters_without_a_difference_leave_the_test_exact() -> None:
    values = np.ones((2, 5_000))
    values[1, :4] = 0
    [test] = sign_flip_tests(values, Clusters.of(range(5_000)), [(0, 1)], seed=3)
    assert (test.exact, test.flips, test.n_nonzero, test.p) == (True, 16, 4, 0.125)


def test_sums_that_differ_only_by_rounding_are_equal() -> None:
    # 0.1 + 0.2 against 0.3: no difference, so nothing to test
    [test] = sign_flip_tests([[0.1, 0.2, 0.0], [0.3, 0.0, 0.0]], Clusters.of([0, 0, 1]), [(0, 1)], seed=3)
    assert test.p is None


# --- McNemar, effects -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wins", "losses"), [(0, 1), (5, 5), (3, 11), (430, 331), (2089, 1667)])
def test_mcnemar_equals_statsmodels_and_scipys_binomial_test(wins: int, losses: int) -> None:
    peer = mcnemar(np.array([[50, wins], [losses, 20]]), exact=True)
    assert mcnemar_exact(wins, losses) == pytest.approx(peer.pvalue, rel=1e-9)
    assert mcnemar_exact(wins, losses) == pytest.approx(stats.binomtest(wins, wins + losses).pvalue, rel=1e-9)


def test_nothing_discordant_has_neither_test_nor_odds_nor_effect() -> None:
    same = np.array([1.0, 0.0, 1.0])
    assert (mcnemar_exact(0, 0), odds_ratio(0, 0), odds_ratio(3, 0), cohen_dz(same, same)) == (None,) * 4


def test_lower_ranks_win_when_lower_is_better() -> None:
    assert tally(np.array([1.0, 5.0, 2.0]), np.array([2.0, 2.0, 2.0]), lower_is_better=True) == (1, 1, 1)


def test_cohen_h_equals_statsmodels() -> None:
    assert cohen_h(0.6067, 0.5898) == pytest.approx(proportion_effectsize(0.6067, 0.5898), abs=1e-12)


def test_cohen_dz_equals_the_one_sample_t_statistic_over_the_root_of_n() -> None:
    a, b = np.random.default_rng(1).random((2, 40))
    assert cohen_dz(a, b) == pytest.approx(stats.ttest_rel(a, b).statistic / np.sqrt(40), abs=1e-12)


# --- many questions ---------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_adjusted_p_values_equal_statsmodels(p_values: list[float]) -> None:
    for ours, peer in (("holm", "holm"), ("benjamini-hochberg", "fdr_bh")):
        expected = multipletests(p_values, method=peer)[1]
        np.testing.assert_allclose(adjusted(p_values, ours), expected, atol=1e-12)  # type: ignore[arg-type]


def test_no_question_or_one_question_needs_no_adjustment() -> None:
    assert adjusted([]) == []
    assert adjusted([None, 0.04]) == [None, 0.04]


@pytest.mark.parametrize("wrong", [[1.2], [-0.1], [float("nan")]])
def test_impossible_p_values_are_refused(wrong: list[float]) -> None:
    with pytest.raises(ValueError, match=r"p-values must lie in 0\.\.1"):
        adjusted(wrong)


def test_an_unknown_adjustment_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="holm, benjamini-hochberg, got 'bonferroni'"):
        adjusted([0.1], "bonferroni")  # type: ignore[arg-type]


# --- proportions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (10, 10), (3, 8), (47, 400), (15174, 25010)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_proportion_intervals_equal_statsmodels_and_scipy(successes: int, n: int, level: float) -> None:
    wilson = proportion_confint(successes, n, alpha=1 - level, method="wilson")
    assert wilson_interval(successes, n, level=level) == pytest.approx(wilson, abs=1e-12)
    exact = stats.binomtest(successes, n).proportion_ci(level, method="exact")
    assert clopper_pearson_interval(successes, n, level=level) == pytest.approx((exact.low, exact.high), abs=1e-9)


@pytest.mark.parametrize(("successes", "n", "level"), [(1, 0, 0.95), (-1, 3, 0.95), (4, 3, 0.95), (1, 3, 1.0)])
def test_impossible_proportions_are_refused(successes: int, n: int, level: float) -> None:
    for interval in (wilson_interval, clopper_pearson_interval):
        with pytest.raises(ValueError, match=f"got {successes} of {n} at level {level}"):
            interval(successes, n, level=level)


def test_expected_hits_of_ties_have_no_exact_interval() -> None:
    with pytest.raises(ValueError, match=r"whole numbers, got 1.5 of 3; use wilson_interval"):
        clopper_pearson_interval(1.5, 3)  # type: ignore[arg-type]


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


# --- power ------------------------------------------------------------------------------------------------------


def test_the_detectable_effect_has_the_power_that_it_promises() -> None:
    # statsmodels: power of a z test with one sample (ratio 0) at that effect
    effect = detectable_effect(1 / np.sqrt(250), power=0.8)
    assert NormalIndPower().power(effect, nobs1=250, alpha=0.05, ratio=0) == pytest.approx(0.8, abs=1e-5)


def test_the_clusters_needed_detect_the_wanted_effect() -> None:
    needed = clusters_needed(0.01, standard_error=0.02, n_clusters=300)
    assert (
        detectable_effect(0.02 * np.sqrt(300 / needed)) <= 0.01 < detectable_effect(0.02 * np.sqrt(300 / (needed - 1)))
    )


@pytest.mark.parametrize("wrong", [{"power": 1.0}, {"alpha": 0.0}, {"standard_error": -1.0}])
def test_impossible_powers_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"power and alpha must lie in \(0, 1\)"):
        detectable_effect(**{"standard_error": 1.0, **wrong})


def test_no_number_of_images_shows_an_effect_of_zero() -> None:
    with pytest.raises(ValueError, match="effect must not be 0"):
        clusters_needed(0.0, standard_error=1.0, n_clusters=100)
