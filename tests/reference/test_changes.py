"""What changed between two states: figures with their tests, and settings."""

from __future__ import annotations

import pytest

from capim.tasks.reference.changes import FigureChange, adjust, figure_changes, setting_changes, unpaired_bound

KEY = ("shapes", "t2i/all", "R@1", "tiny-clip")


def row(value: float | None, **changed: object) -> dict[str, object]:
    fields = {"value": value, "evaluation": "e", "encoder_fingerprint": "f", "corpus_fingerprint": "c"}
    return {**fields, "standard_error": 0.01, "lower_is_better": False, "metric_version": "1", **changed}


def change(difference: float, p: float | None, *, lower_is_better: bool = False) -> FigureChange:
    return FigureChange(key=KEY, difference=difference, p=p, basis="paired test", lower_is_better=lower_is_better)


def test_the_basis_of_a_p_value_is_the_best_there_is() -> None:
    def basis(old: dict[str, object], new: dict[str, object]) -> tuple[str, float | None]:
        test = {"corpus": "shapes", "protocol": "t2i/all", "metric": "R@1", "p_sign_flip": 0.03}
        comparison = {**test, "fingerprint_a": "g", "fingerprint_b": "f"}
        [found] = figure_changes({KEY: old}, {KEY: new}, [comparison])
        return found.basis, found.p

    assert basis(row(0.5), row(0.5)) == ("same rows", None)
    assert basis(row(0.5), row(0.4, evaluation="d", encoder_fingerprint="g")) == ("paired test", 0.03)
    other_corpus = row(0.4, evaluation="d", encoder_fingerprint="g", corpus_fingerprint="d")
    assert basis(row(0.5), other_corpus)[0] == "unpaired bound"
    assert basis(row(0.5), row(0.4, evaluation="d", standard_error=None)) == ("none", None)
    assert basis(row(None), row(0.4)) == ("none", None)
    assert basis(row(0.5), row(0.25, metric_version="2")) == ("another version", None)


def test_figures_of_one_state_alone_have_not_changed() -> None:
    assert figure_changes({KEY: row(0.5)}, {}, []) == []


def test_a_change_is_significant_after_holm_over_all_changes_with_a_test() -> None:
    first, untested, second = adjust([change(-0.1, 0.02), change(0.0, None), change(-0.1, 0.03)])
    assert (first.p_adjusted, untested.p_adjusted, second.p_adjusted) == (0.04, None, 0.04)
    assert first.significant and not untested.significant
    assert not first.is_significant(0.01)


@pytest.mark.parametrize(("difference", "lower_is_better", "worse"), [
    (-0.1, False, True), (0.1, False, False), (4.0, True, True), (-4.0, True, False), (0.0, True, False),
])  # fmt: skip
def test_worse_is_a_lower_share_or_a_higher_rank(difference: float, lower_is_better: bool, worse: bool) -> None:
    assert change(difference, 0.01, lower_is_better=lower_is_better).worse is worse


def test_settings_that_appear_or_go_are_changes_too() -> None:
    assert setting_changes("library", {"a": 1, "b": 2}, {"b": 2, "c": None, "d": 3}) == [
        ("library", "a", 1, None),
        ("library", "d", None, 3),
    ]


def test_the_bound_is_the_two_sided_normal_p_of_independent_figures() -> None:
    assert unpaired_bound(1.959964, 0.6, 0.8) == pytest.approx(0.05, abs=1e-6)
