"""Ties in expectation, against drawing every order of small lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capim.tasks.metrics import METRICS, metrics_of
from capim.tasks.ranking.outcomes import Outcomes, outcomes_of


def tied(above: int, irrelevant: int, relevant: int, below_relevant: int = 0) -> Outcomes:
    """One query: items above, a tie of irrelevant and relevant ones, relevant ones below, five others."""
    lost = above + irrelevant
    after = lost + relevant
    low = [above + 1 + j for j in range(relevant)] + [after + 1 + j for j in range(below_relevant)]
    high = [lost + 1 + j for j in range(relevant)] + [after + 1 + j for j in range(below_relevant)]
    outcomes = outcomes_of([low], n_gallery=after + below_relevant + 5)
    return replace(
        outcomes,
        rank_worst=np.array([high[0]], np.int32),
        n_tied_relevant=np.array([relevant], np.int32),
        relevant_rank_worst=np.array(high, np.int32),
    )


def quadruples_of(scores: Sequence[Sequence[float]]) -> Outcomes:
    """Winoground outcomes from scores ``c0i0 c0i1 c1i0 c1i1`` per example; only what metrics read is filled in."""
    n = len(scores)
    outcomes = outcomes_of([[1]] * n, n_gallery=5, direction="quadruples", protocol="winoground")
    return replace(outcomes, scores=np.asarray(scores, dtype=np.float32))


def every_order(above: int, irrelevant: int, relevant: int, below: int) -> list[list[int]]:
    """The list as hits (1) and misses (0), for every order of the tied items."""
    orders = set(permutations([0] * irrelevant + [1] * relevant))
    return [[0] * above + list(order) + [1] * below + [0] * 5 for order in orders]


def at_r(hits: list[int]) -> float:
    total = sum(hits)
    return sum(sum(hits[: i + 1]) / (i + 1) for i in range(total) if hits[i]) / total


def ndcg_10(hits: list[int]) -> float:
    discounts = 1 / np.log2(np.arange(2, 12))
    return float((np.array(hits[:10]) * discounts[: len(hits[:10])]).sum() / discounts[: min(10, sum(hits))].sum())


BY_HAND = {
    "R@1": lambda hits: float(any(hits[:1])),
    "R@5": lambda hits: float(any(hits[:5])),
    "R@10": lambda hits: float(any(hits[:10])),
    "mAP@R": at_r,
    "R-Precision": lambda hits: sum(hits[: sum(hits)]) / sum(hits),
    "nDCG@10": ndcg_10,
    "recall_all@10": lambda hits: sum(hits[:10]) / sum(hits),
    "mean_rank": lambda hits: hits.index(1) + 1.0,
    "MRR": lambda hits: 1 / (hits.index(1) + 1),
}


@given(above=st.integers(0, 6), irrelevant=st.integers(0, 4), relevant=st.integers(1, 3), below=st.integers(0, 2))
def test_expected_values_are_the_mean_over_every_order_of_the_tied_items(
    above: int, irrelevant: int, relevant: int, below: int
) -> None:
    outcomes = tied(above, irrelevant, relevant, below)
    lists = every_order(above, irrelevant, relevant, below)
    for name, measure in BY_HAND.items():
        values = [measure(hits) for hits in lists]
        metric = METRICS[name]
        assert metric.per_query(outcomes)[0] == pytest.approx(np.mean(values), abs=1e-12), name
        extremes = metric.per_query(outcomes, "lost")[0], metric.per_query(outcomes, "won")[0]
        assert sorted(extremes) == pytest.approx([min(values), max(values)], abs=1e-12), name


def test_metrics_that_would_repeat_others_are_left_out() -> None:
    once = [metric.name for metric in metrics_of(outcomes_of([[1], [2]]))]
    assert set(once) >= {"R@1", "R@5", "R@10", "MRR", "median_rank", "mean_rank"}  # and whatever else the table holds
    assert not [name for name in once if METRICS[name].several or METRICS[name].reference or METRICS[name].judged]
    assert "mAP@R" in [metric.name for metric in metrics_of(outcomes_of([[1, 2]]))]
    assert [metric.name for metric in metrics_of(quadruples_of([[1, 0, 0, 1]]))] == [
        "winoground_text", "winoground_image", "winoground_group",
    ]  # fmt: skip


@given(st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=1, max_size=30))
def test_group_score_is_at_most_text_and_image_score(scores: list[list[int]]) -> None:
    outcomes = quadruples_of(scores)
    text, image, group = (METRICS[f"winoground_{s}"].per_query(outcomes) for s in ("text", "image", "group"))
    np.testing.assert_array_equal(group, np.minimum(text, image))


def test_a_tie_is_wrong_in_winoground_and_shown_by_the_highest_value() -> None:
    outcomes = quadruples_of([[1, 1, 1, 1]])
    for score in ("text", "image", "group"):
        metric = METRICS[f"winoground_{score}"]
        assert (metric.value(outcomes), metric.per_query(outcomes, "won")[0]) == (0, 1)


def test_weights_make_unequal_groups_count_alike() -> None:
    outcomes = replace(outcomes_of([[1], [1], [2]]), weights=np.array([0.75, 0.75, 1.5]))
    assert METRICS["R@1"].value(outcomes) == 0.5


def test_chance_of_ranks_is_that_of_random_orders() -> None:
    """Chance of MRR was 1 / E[rank], and that of the median rank the expected rank."""
    rng = np.random.default_rng(0)
    galleries = [(400, 1)] * 30 + [(400, 5)] * 170
    random = outcomes_of([np.sort(rng.permutation(n)[:c] + 1).tolist() for n, c in galleries * 20], n_gallery=400)
    first = random.rank_best.astype(float)
    assert METRICS["MRR"].chance(random) == pytest.approx((1 / first).mean(), rel=0.05)
    assert METRICS["median_rank"].chance(random) == pytest.approx(np.median(first), rel=0.05)
    assert METRICS["mean_rank"].chance(random) == pytest.approx(first.mean(), rel=0.05)
    constant = tied(0, 4_999, 1)
    assert METRICS["MRR"].value(constant) == pytest.approx((1 / np.arange(1, 5_001)).sum() / 5_000)


def test_median_rank_is_the_median_of_expected_ranks() -> None:
    assert METRICS["median_rank"].value(outcomes_of([[1], [3], [100]])) == 3
