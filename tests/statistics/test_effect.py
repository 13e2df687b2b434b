"""McNemar's test and effect sizes: against SciPy and statsmodels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar  # type: ignore[import-untyped]
from statsmodels.stats.power import NormalIndPower  # type: ignore[import-untyped]
from statsmodels.stats.proportion import proportion_effectsize  # type: ignore[import-untyped]

from tasks.statistics.clusters import Clusters
from tasks.statistics.effect import cohen_dz, cohen_h, detectable_effect, effect_of, mcnemar_exact, tally


@pytest.mark.parametrize(("wins", "losses"), [(0, 1), (5, 5), (3, 11), (430, 331), (2089, 1667)])
def test_mcnemar_equals_statsmodels_and_scipys_binomial_test(wins: int, losses: int) -> None:
    peer = mcnemar(np.array([[50, wins], [losses, 20]]), exact=True)
    assert mcnemar_exact(wins, losses) == pytest.approx(peer.pvalue, rel=1e-9)
    assert mcnemar_exact(wins, losses) == pytest.approx(stats.binomtest(wins, wins + losses).pvalue, rel=1e-9)


def test_nothing_discordant_has_neither_test_nor_odds_nor_effect() -> None:
    same = np.array([1.0, 0.0, 1.0])
    assert (mcnemar_exact(0, 0), cohen_dz(same, same)) == (None, None)
    for worse in (same, np.zeros(3)):
        assert effect_of(same, worse, Clusters.of(range(3))).odds_ratio is None


def test_lower_ranks_win_when_lower_is_better() -> None:
    assert tally(np.array([1.0, 5.0, 2.0]), np.array([2.0, 2.0, 2.0]), lower_is_better=True) == (1, 1, 1)


def test_cohen_h_equals_statsmodels() -> None:
    assert cohen_h(0.6067, 0.5898) == pytest.approx(proportion_effectsize(0.6067, 0.5898), abs=1e-12)


def test_cohen_dz_equals_the_one_sample_t_statistic_over_the_root_of_n() -> None:
    a, b = np.random.default_rng(1).random((2, 40))
    assert cohen_dz(a, b) == pytest.approx(stats.ttest_rel(a, b).statistic / np.sqrt(40), abs=1e-12)


def test_the_detectable_effect_has_the_power_that_it_promises() -> None:
    # statsmodels: power of a z test with one sample (ratio 0) at that effect
    effect = detectable_effect(1 / np.sqrt(250), alpha=0.05)
    assert NormalIndPower().power(effect, nobs1=250, alpha=0.05, ratio=0) == pytest.approx(0.8, abs=1e-5)
