"""Adjusted p-values: against statsmodels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]

from capim.tasks.statistics.decision import adjusted
from capim.tasks.statistics.draws import Resampling


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
    with pytest.raises(ValueError, match="max-t, holm, benjamini-hochberg, got 'bonferroni'"):
        Resampling(adjustment="bonferroni")  # type: ignore[arg-type]
