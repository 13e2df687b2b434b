"""What changed between two states, whether it is chance, and what a watch makes of it in a year."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from capim.store.schema import Comparison, Result
from capim.tasks.reference.changes import (
    FEW_FLIPS,
    FigureChange,
    WatchRule,
    adjust,
    decline_tests,
    figure_changes,
    judge_figures,
    setting_changes,
)
from capim.tasks.statistics.draws import Resampling
from tests.benchmarks.watch_years import Year, false_alarm_rate, reported_within, watched_year
from tests.random_store import row_of

KEY = ("shapes", "t2i/all", "R@1", "tiny-clip")


def row(value: float | None, **changed: object) -> Result:
    fields = {"value": value, "evaluation": "e", "encoder_fingerprint": "f", "corpus_fingerprint": "c"}
    return row_of(Result, **{**fields, "standard_error": 0.01, "metric_version": "1", **changed})


def change(difference: float, p: float | None, *, lower_is_better: bool = False) -> FigureChange:
    return FigureChange(key=KEY, difference=difference, p=p, basis="paired test", lower_is_better=lower_is_better)


def test_the_basis_of_a_p_value_is_the_best_there_is() -> None:
    def basis(old: Result, new: Result) -> tuple[str, float | None]:
        test: dict[str, Any] = {"corpus": "shapes", "protocol": "t2i/all", "metric": "R@1", "p_sign_flip": 0.03}
        comparison = row_of(Comparison, **test, fingerprint_a="g", fingerprint_b="f")
        [found] = figure_changes({KEY: old}, {KEY: new}, [comparison])
        return found.basis, found.p

    assert basis(row(0.5), row(0.5)) == ("same rows", None)
    assert basis(row(0.5), row(0.4, evaluation="d", encoder_fingerprint="g")) == ("paired test", 0.03)
    other_corpus = row(0.4, evaluation="d", encoder_fingerprint="g", corpus_fingerprint="d")
    assert basis(row(0.5), other_corpus)[0] == "unpaired bound"
    assert basis(row(0.5), row(0.4, evaluation="d", standard_error=None)) == ("none", None)
    assert basis(row(None), row(0.4)) == ("none", None)
    assert basis(row(0.5), row(0.25, metric_version="2")) == ("another version", None)
    assert figure_changes({KEY: row(0.5)}, {}, []) == []  # a figure of one state alone has not changed


def test_a_change_is_significant_after_holm_over_all_changes_with_a_test() -> None:
    first, untested, second = adjust([change(-0.1, 0.02), change(0.0, None), change(-0.1, 0.03)])
    assert (first.p_adjusted, untested.p_adjusted, second.p_adjusted) == (0.04, None, 0.04)
    assert first.significant and not untested.significant
    assert not first.is_significant(0.01)


def test_worse_is_a_lower_share_or_a_higher_rank() -> None:
    assert [change(difference, 0.01).worse for difference in (-0.1, 0.1)] == [True, False]
    assert [change(d, 0.01, lower_is_better=True).worse for d in (4.0, -4.0, 0.0)] == [True, False, False]


def test_settings_that_appear_or_go_are_changes_too() -> None:
    found = setting_changes("library", {"a": 1, "b": 2}, {"b": 2, "c": None, "d": 3})
    assert found == [("library", "a", 1, None), ("library", "d", None, 3)]


LEVEL = 0.001


def drop(difference: float, p: float, protocol: str = "t2i/all") -> FigureChange:
    plain = replace(change(difference, p), key=("c", protocol, "R@1", "m"), p_adjusted=p)
    return replace(plain, old=0.6, new=0.6 + difference, since="run r of 2026-01-05")


def test_a_large_drop_that_is_not_significant_is_a_warning_that_says_so() -> None:
    drops = [drop(-0.02, 0.3), drop(-0.03, 0.2, "i2t/any"), drop(-0.009, 0.1), drop(0.05, 0.9)]
    [finding] = judge_figures(drops, WatchRule(), LEVEL)
    message = (
        "i2t/any R@1 from 60.0 to 57.0 (-3.0 points) since run r of 2026-01-05, adjusted p = 0.2 ≥ 0.001, "
        "not significant; the same holds for 1 more drop of 1 point or more"
    )
    assert finding[:3] == ("warn", "m on c", message)


def test_the_largest_drop_is_the_farthest_change_for_the_worse_in_either_direction() -> None:
    fall = replace(change(-0.011, 0.5), old=0.5, new=0.489)
    rise = replace(change(0.05, 0.5, lower_is_better=True), old=0.1, new=0.15)
    [finding] = judge_figures([fall, rise], WatchRule(), LEVEL)
    assert (finding.before, finding.now) == (0.1, 0.15)


def test_significant_drops_come_one_by_one_the_clearest_first() -> None:
    drops = [drop(-0.005, 0.0005), drop(-0.02, 0.0001, "i2t/any")]
    findings = [(finding.verdict, finding.subject) for finding in judge_figures(drops, WatchRule(), LEVEL)]
    assert findings == [("fail", "m on c, i2t/any R@1"), ("warn", "m on c, t2i/all R@1")]


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


def noise(n_clusters: int, n_figures: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-1, 2, size=(n_clusters, n_figures)).astype(np.float64)


def test_p_values_are_those_of_every_flip_of_both_corpora_together() -> None:
    falls = [noise(5, 2, 0) + 0.5, noise(4, 1, 1) + 0.25]
    groups = decline_tests(falls, level=0.05, resampling=Resampling(permutations=10))
    tests = [test for group in groups for test in group]
    scale = np.concatenate([np.sqrt((fall**2).sum(axis=0)) for fall in falls])
    flipped = []
    for signs in product([1, -1], repeat=9):
        first, second = np.array(signs[:5]), np.array(signs[5:])
        flipped.append(np.concatenate([first @ falls[0], second @ falls[1]]) / scale)
    clarity = flipped[0]  # nothing is flipped
    back = np.argsort(clarity)
    expected, least = {}, 0.0
    for place in reversed(range(3)):
        largest = np.array(flipped)[:, back[: place + 1]].max(axis=1)
        least = max(least, float((largest >= clarity[back[place]] - 1e-9).mean()))
        expected[int(back[place])] = least
    assert [test.p_adjusted for test in tests] == pytest.approx([expected[i] for i in range(3)])


def p_values(fall: np.ndarray, *, level: float, permutations: int = 999) -> list[Any]:
    [tests] = decline_tests([fall], level=level, resampling=Resampling(permutations=permutations))
    return [test.p_adjusted for test in tests]


def test_a_figure_that_rose_is_never_significant() -> None:
    assert p_values(-np.ones((200, 1)), level=0.05) == [1.0]


def test_a_clear_fall_gets_a_p_value_below_a_level_that_few_flips_could_not_reach() -> None:
    [p] = p_values(np.concatenate([np.ones((60, 1)), np.zeros((40, 1))]), level=1e-4, permutations=100)
    assert p < 1e-4 < 1 / (FEW_FLIPS + 1)


def test_many_unchanged_and_noisy_figures_cost_a_clear_fall_nothing_but_their_own_maximum() -> None:
    family = np.concatenate([np.ones((200, 1)), noise(200, 125, 3), np.zeros((200, 1))], axis=1)
    first, *_, last = p_values(family, level=0.001)
    assert first < 0.001
    assert last is None
