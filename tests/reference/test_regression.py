"""What a watch makes of changed figures, and how often it errs in a year."""

from __future__ import annotations

import pytest

from capim.tasks.reference.changes import FigureChange, WatchRule, judge_figures
from tests.benchmarks.watch_years import Year, false_alarm_rate, reported_within, watched_year

LEVEL = 0.001


def change(difference: float, p_adjusted: float, protocol: str = "t2i/all") -> FigureChange:
    return FigureChange(
        key=("c", protocol, "R@1", "m"),
        old={"value": 0.6, "since": "run r of 2026-01-05"},
        new={"value": 0.6 + difference},
        difference=difference,
        p=p_adjusted,
        basis="paired test",
        p_adjusted=p_adjusted,
    )


def test_a_large_drop_that_is_not_significant_is_a_warning_that_says_so() -> None:
    drops = [change(-0.02, 0.3), change(-0.03, 0.2, "i2t/any"), change(-0.009, 0.1), change(0.05, 0.9)]
    [finding] = judge_figures(drops, WatchRule(), LEVEL)
    assert finding == (
        "warn",
        "m on c",
        (
            "i2t/any R@1 from 60.0 to 57.0 (-3.0 points) since run r of 2026-01-05, adjusted p = 0.2 ≥ 0.001, "
            "not significant; the same holds for 1 more drop of 1 point or more"
        ),
    )


def test_significant_drops_come_one_by_one_the_clearest_first() -> None:
    drops = [change(-0.005, 0.0005), change(-0.02, 0.0001, "i2t/any")]
    findings = judge_figures(drops, WatchRule(), LEVEL)
    assert [(finding.verdict, finding.subject) for finding in findings] == [
        ("fail", "m on c, i2t/any R@1"),
        ("warn", "m on c, t2i/all R@1"),
    ]


def test_the_levels_of_a_year_add_up_to_alpha_however_often_it_is_watched() -> None:
    rule = WatchRule()
    for n_watches in (12, 52, 365):
        assert n_watches * rule.alarm_level(365 / n_watches) == pytest.approx(rule.alpha) == pytest.approx(0.03)


def test_at_most_one_year_in_twenty_without_a_change_has_an_alarm() -> None:
    assert false_alarm_rate(Year(n_images=100, n_protocols=12), 20, seed=5) <= 0.05


def test_a_drift_of_half_a_point_a_week_fails_within_ten_weeks() -> None:
    drift = Year(n_images=600, n_protocols=2, drift=0.005, weeks=10)
    assert reported_within(drift, 10, seed=1) == 1.0


def test_small_drops_fail_together_though_none_of_them_would_alone() -> None:
    weekly = Year(n_images=600, n_protocols=1, drift=0.009, weeks=10)
    alone = Year(n_images=600, n_protocols=1, drift=0.009, weeks=1)
    assert all(watched_year(alone, WatchRule(), seed=seed).failed is None for seed in range(5))
    assert all(watched_year(weekly, WatchRule(), seed=seed).failed is not None for seed in range(5))
