"""Metrics that apply, chance values and weights, and Winoground's scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capim.tasks.metrics import METRICS, metrics_of
from capim.tasks.metrics.table import headline_of
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.outcomes import Outcomes, outcomes_of


def quadruples_of(scores: Sequence[Sequence[float]]) -> Outcomes:
    """Winoground outcomes from scores ``c0i0 c0i1 c1i0 c1i1`` per example; only what metrics read is filled in."""
    n = len(scores)
    outcomes = outcomes_of([[1]] * n, n_gallery=5, protocol="winoground")
    return replace(outcomes, scores=np.asarray(scores, dtype=np.float32))


def test_metrics_that_would_repeat_others_are_left_out() -> None:
    once = [metric.name for metric in metrics_of(outcomes_of([[1], [2]]))]
    assert set(once) >= {"R@1", "R@5", "R@10", "MRR", "median_rank", "mean_rank"}  # and whatever else the table holds
    assert not [name for name in once if METRICS[name].several or METRICS[name].guess is None or METRICS[name].judged]
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


def test_weights_make_unequal_groups_count_alike_and_have_no_part_in_a_median() -> None:
    outcomes = replace(outcomes_of([[1], [1], [2], [9], [9]]), weights=np.array([0.75, 0.75, 2, 0.75, 0.75]))
    assert METRICS["R@1"].value(outcomes) == 0.3
    assert METRICS["median_rank"].value(outcomes) == 2


def test_chance_of_ranks_is_that_of_random_orders() -> None:
    """Chance of MRR was 1 / E[rank], and that of the median rank the expected rank."""
    rng = np.random.default_rng(0)
    galleries = [(400, 1)] * 30 + [(400, 5)] * 170
    random = outcomes_of([np.sort(rng.permutation(n)[:c] + 1).tolist() for n, c in galleries * 20], n_gallery=400)
    first = random.rank_best.astype(float)
    assert METRICS["MRR"].chance(random) == pytest.approx((1 / first).mean(), rel=0.05)
    assert METRICS["median_rank"].chance(random) == pytest.approx(np.median(first), rel=0.05)
    assert METRICS["mean_rank"].chance(random) == pytest.approx(first.mean(), rel=0.05)
    constant = replace(outcomes_of([[1]], n_gallery=5_000), rank_worst=np.array([5_000], np.int32))
    assert METRICS["MRR"].value(constant) == pytest.approx((1 / np.arange(1, 5_001)).sum() / 5_000)


# --- the headline of a corpus, by the protocols that it was evaluated by
@pytest.mark.parametrize(
    ("evaluated", "expected"),
    [
        ("i2t/any t2i/all t2i/first i2t/any@image-as-query", {"t2i/all": "R@1", "i2t/any": "R@1"}),
        ("i2t/any i2t/any5", {"i2t/any": "R@1"}),
        (
            "winoground/Object winoground/Both",
            dict.fromkeys(["winoground/Object", "winoground/Both"], "winoground_group"),
        ),
        ("t2i/all pairs/colour pairs/shape pairs/macro pairs/micro", {"pairs/macro": "pair_accuracy"}),
        ("aro/order aro/all-negatives", {"aro/order": "pair_accuracy"}),
        ("aro/all-negatives", {"aro/all-negatives": "pair_accuracy"}),
        ("i2t/class i2t/class-balanced i2i/label", {"i2t/class-balanced": "R@1"}),
        ("i2t/class t2i/class i2i/label", {"t2i/class": "AP"}),
        ("t2i/all t2i/de/google t2i/en/human i2t/any", {"t2i/de/google": "R@1", "t2i/en/human": "R@1"}),
        ("t2i/all t2i/en/google t2i/en/human t2i/first", {"t2i/all": "R@1"}),  # by two translators in one language
        ("t2i/en/google t2i/en/bing t2i/first", {"t2i/en/bing": "R@1", "t2i/en/google": "R@1"}),
        ("t2i/first t2i/cxc i2t/cxc", {"t2i/cxc": "R@1", "i2t/cxc": "R@1"}),
        ("t2i/composed-subset t2i/composed", {"t2i/composed": "R@1"}),
        ("i2i/similarity", {"i2i/similarity": "Spearman"}),
        ("", {}),
    ],
)
def test_a_corpus_has_the_headline_of_its_kind(evaluated: str, expected: dict[str, str]) -> None:
    assert dict(headline_of(map(Protocol.of, evaluated.split()))) == expected
