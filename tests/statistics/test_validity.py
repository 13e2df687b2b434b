"""Intervals cover and tests err as often as they say: two scenarios; ``make bench ONLY=statistics`` runs all."""

from __future__ import annotations

import numpy as np
import pytest

from tests.benchmarks.validity import Scenario, simulated_hits, study

N = 500
NOISE = 4 * np.sqrt(0.05 * 0.95 / N)  # four standard errors of a rate near 5 %


@pytest.mark.parametrize(("per_cluster", "correlation"), [(1, 0.0), (5, 0.5)])
def test_intervals_cover_and_tests_err_as_often_as_they_say(per_cluster: int, correlation: float) -> None:
    scenario = Scenario(n_clusters=300, per_cluster=per_cluster, correlation=correlation)
    rates = {rate.name: rate.rate for rate in study(scenario, n_datasets=N, seed=1)}
    assert {name for name in rates if "mcnemar" in name} == ({"error/mcnemar"} if per_cluster == 1 else set())
    for name, rate in rates.items():
        if name.startswith("coverage"):
            assert 0.95 - NOISE < rate < 0.95 + NOISE, name
        elif name in {"error/sign-flip", "error/mcnemar"}:
            assert 0.05 - NOISE < rate < 0.05 + NOISE, name
        else:
            assert 0.05 - NOISE < rate < 0.06 + NOISE, name


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_simulated_encoders_correlate_as_asked_and_their_images_too(correlation: float) -> None:
    a, b = simulated_hits(Scenario(n_clusters=40_000, per_cluster=2, correlation=correlation), 1, seed=3)[0]
    assert np.corrcoef(a, b)[0, 1] == pytest.approx(correlation, abs=0.015)
    # two queries of one image share an encoder's difficulty when both or neither are common draws: icc 1/3
    expected = (correlation**2 + (1 - correlation) ** 2) / 3
    assert np.corrcoef(a[::2], a[1::2])[0, 1] == pytest.approx(expected, abs=0.015)
    assert (a.mean(), b.mean()) == pytest.approx((0.5, 0.5), abs=0.01)


def test_the_number_of_data_sets_must_fill_groups() -> None:
    with pytest.raises(ValueError, match="multiple of 50, got 70"):
        study(Scenario(n_clusters=10, per_cluster=1, correlation=0.0), n_datasets=70, seed=1)
