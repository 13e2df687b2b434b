"""Intervals cover and tests err as often as they say: a small part of ``make bench ONLY=validity``."""

from __future__ import annotations

import numpy as np
import pytest

from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import Hits, interval_of, student_interval
from tests.benchmarks.simulations.families import false_claims, far_apart, sparse_power
from tests.benchmarks.simulations.known import coco_chance, constant_scorers, simulated_chance
from tests.benchmarks.simulations.means import MeanCell, mean_coverage
from tests.benchmarks.simulations.pairs import Scenario, simulated_hits, study
from tests.benchmarks.simulations.shares import LEVEL, SIZES, Cell, coverage, grid, images_by_hits, per_query
from tests.benchmarks.simulations.slices import slice_rates

N = 500
NOISE = 4 * np.sqrt(0.05 * 0.95 / N)  # four standard errors of a rate near 5 %


@pytest.mark.parametrize(("per_cluster", "correlation"), [(1, 0.0), (5, 0.5)])
def test_intervals_cover_and_tests_err_as_often_as_they_say(per_cluster: int, correlation: float) -> None:
    scenario = Scenario(n_clusters=300, per_cluster=per_cluster, correlation=correlation)
    for name, (rate, _) in study(scenario, n_datasets=N, seed=1).items():
        if name.startswith("against the test"):
            assert name.endswith("bootstrap alone") or rate == 0, name
        elif name.startswith("coverage"):
            assert 0.95 - NOISE < rate < 0.95 + NOISE, name
        elif name == "error/sign-flip":
            assert 0.05 - NOISE < rate < 0.05 + NOISE, name
        else:
            assert 0.05 - NOISE < rate < 0.06 + NOISE, name


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_simulated_encoders_correlate_as_requested_and_their_images_too(correlation: float) -> None:
    a, b = simulated_hits(Scenario(n_clusters=40_000, per_cluster=2, correlation=correlation), 1, seed=3)[0]
    assert np.corrcoef(a, b)[0, 1] == pytest.approx(correlation, abs=0.015)
    # two queries of one image share an encoder's difficulty when both or neither are common draws: icc 1/3
    expected = (correlation**2 + (1 - correlation) ** 2) / 3
    assert np.corrcoef(a[::2], a[1::2])[0, 1] == pytest.approx(expected, abs=0.015)
    assert (a.mean(), b.mean()) == pytest.approx((0.5, 0.5), abs=0.01)


@pytest.mark.parametrize("sizes", SIZES)
def test_intervals_of_shares_cover_over_the_whole_grid(sizes: str) -> None:
    """Percentile intervals cover 87 to 92 % with few hits or misses; with equal weights assumed, .43."""
    equal = sizes in ("1", "5")
    n = 2_000 if equal else 500
    noise = 4 * np.sqrt(0.05 * 0.95 / n)
    for cell in grid():
        if cell.sizes == sizes and 30 <= cell.n_images <= (5_000 if equal else 300) and cell.n_effective >= 10:
            rate = coverage(cell, n, seed=2).rate
            assert cell.effective < 5 - 1e-9 or rate > (0.945 if equal else 0.935) - noise, cell
            assert not equal or cell.effective < 5 - 1e-9 or rate < 0.972 + noise, cell


def test_a_few_heavy_images_are_not_many() -> None:
    """Three images of 20 captions among 97 of one: covered in 91 % when all images counted alike."""
    cell = Cell(share=0.2, n_images=100, sizes="3 x 20", correlation=0.6)
    assert coverage(cell, 2_000, seed=1, old=True).rate < 0.91
    assert coverage(cell, 2_000, seed=1).rate > 0.92


@pytest.mark.parametrize("figure", ["nDCG, U-shaped", "difference of .95 and .85"])
def test_intervals_of_other_figures_cover_where_percentile_intervals_do_not(figure: str) -> None:
    cell = MeanCell(figure=figure, n_images=20, sizes="5", correlation=0.6)
    covered, hidden = mean_coverage(cell, 1_000, seed=1, methods=("default", "percentile"))
    assert hidden < 0.05 and covered["percentile"] < 0.94
    assert covered["default"] > 0.95 - 4 * np.sqrt(0.05 * 0.95 / 1_000)


def test_the_simulated_share_and_error_are_those_of_the_queries() -> None:
    cell = Cell(share=0.3, n_images=40, sizes="5", correlation=0.3)
    [(_, [images])] = images_by_hits(cell, 1, seed=4)
    hits = np.arange(6) / 5
    share = float(images @ hits / 40)
    clusters = Clusters.of(np.repeat(np.arange(40), 5))
    interval = interval_of(per_query(images, 5), clusters, Resampling(level=LEVEL), bounds=(0.0, 1.0), share=True)
    influence = np.repeat(hits - share, images) / 40
    short = student_interval(
        share, influence, level=LEVEL, n_effective=40.0, bounds=(0.0, 1.0), hits=Hits(200.0, clusters.shares)
    )
    assert (interval.low, interval.high) == pytest.approx((short.low, short.high))


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_small_slices_are_not_judged_and_larger_ones_rightly(share: float) -> None:
    """By bootstrap p-values, slices of 3, 5 and 20 queries at R@1 .9 differed in 60, 36 and 12 % of data sets."""
    rates = slice_rates(share, N, seed=3)
    assert [rates[size].shown for size in (2, 3, 5)] == [0, 0, 0]
    for rate in rates.values():
        assert rate.contradictions == 0
        assert rate.claims < 0.05 + NOISE
        assert rate.shown < 1 or rate.coverage > 0.95 - NOISE


def test_many_equally_good_encoders_are_rarely_called_different_and_far_ones_are() -> None:
    assert false_claims(33, 0.5, 100, seed=5).rate < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 100)
    p, best, worst = far_apart(33, seed=5)
    assert p < 0.001
    assert int(best.split()[-1]) < 10 and int(worst.split()[0]) > 24


def test_a_study_with_one_win_detects_what_it_says() -> None:
    stated, rate = sparse_power(200, N, seed=6)
    assert stated == pytest.approx(0.039, abs=0.001)
    assert rate.rate == pytest.approx(0.8, abs=4 * np.sqrt(0.16 / N))


def test_constant_scorers_get_no_false_statement_and_chance_is_that_of_random_orders() -> None:
    assert constant_scorers()[0] == 0
    chance = simulated_chance("median_rank", "i2t", 20, seed=7)
    assert coco_chance("median_rank", "i2t") == pytest.approx(chance, rel=0.02)
