"""What holds of every row of METRICS, those of installed packages among them; a new row is found here by itself."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from capim.tasks.metrics import METRICS
from capim.tasks.protocols import Direction
from capim.tasks.ranking.outcomes import Outcomes, outcomes_of
from capim.tasks.ranking.protocols import PROTOCOLS
from capim.tasks.results.comparison import compared_figures, figure_rows
from capim.tasks.results.summary import Evaluated, result_rows
from tests.repeated import QUICK, SOURCE, assert_mean

pytestmark = [pytest.mark.parametrize("name", METRICS)]
RANKS = [[1, 4], [2, 9], [7, 8], [30, 31], [1, 2], [400, 990]]
SCORES = np.array(
    [[2, 1, 1, 2], [1, 1, 0, 1], [0, 2, 2, 0], [1, 1, 1, 1], [2, 2, 0, 1], [1, 0, 1, 0]], dtype=np.float32
)


def example(direction: Direction, order: Sequence[int] = range(6)) -> Outcomes:
    """Six queries with ties, in an order."""
    ranks = [RANKS[query] for query in order]
    if direction in ("pairs", "quadruples"):
        protocol = "winoground" if direction == "quadruples" else direction
        lost = outcomes_of([[1 + query % 2] for query in order], n_gallery=3, protocol=protocol)
        return replace(lost, rank_worst=lost.rank_best + 1, scores=SCORES[list(order)])
    best = outcomes_of(ranks, protocol=f"{direction}/all")
    compared = np.array([RANKS[query][0] / 1000 for query in order])
    return replace(
        best,
        rank_worst=best.rank_best + 1,
        relevant_rank_worst=best.relevant_rank_worst + 1,
        reference_ndcg=compared,
        reference_rbo=compared,
    )


def judged(outcomes: Outcomes) -> Outcomes:
    """The same queries with a grade for each relevant item."""
    if outcomes.protocol.direction in ("pairs", "quadruples"):
        return outcomes
    return replace(
        outcomes,
        protocol=replace(outcomes.protocol, kind="judged"),
        relevant_grades=np.array([2, 1] * len(outcomes), np.int32),
        relevant_scores=-outcomes.relevant_rank_best.astype(np.float32),
        unjudged=1 / outcomes.relevant_rank_best[::2].astype(np.float64),
    )


def as_trec_eval(outcomes: Outcomes) -> Outcomes:
    """The same queries in trec_eval's order, which has no ties."""
    low, every = outcomes.rank_best, outcomes.relevant_rank_best
    return replace(outcomes, rank_worst=low, relevant_rank_worst=every, bpref=1 / low.astype(np.float64))


def examples(name: str, order: Sequence[int] = range(6)) -> list[Outcomes]:
    """The examples, of every direction, with grades, in trec_eval's order or neither, that the metric applies to."""
    plain = [example(direction, order) for direction in sorted(METRICS[name].directions)]
    every = [*plain, *map(judged, plain), *map(as_trec_eval, map(judged, plain))]
    special = [rule.protocol for rule in PROTOCOLS.values() if name in rule.protocol.metrics]
    every += [replace(outcomes, protocol=protocol) for protocol in special for outcomes in every]
    found = [outcomes for outcomes in every if METRICS[name].applies(outcomes)]
    assert found, "it applies to no example: add what it reads to `example`"
    return found


def test_a_metric_is_found_by_its_name_and_describes_itself(name) -> None:
    metric = METRICS[name]
    assert metric.name == name
    assert metric.title
    assert metric.directions


def test_a_metric_gives_one_number_per_query_and_changes_nothing(name) -> None:
    for outcomes in examples(name):
        before = copy.deepcopy(outcomes)
        for ties in ("lost", "expected", "won"):
            values = METRICS[name].per_query(outcomes, ties)
            assert values.shape == (6,)
            assert values.dtype == np.float64
            np.testing.assert_array_equal(values, METRICS[name].per_query(outcomes, ties))
        for field, value in vars(before).items():
            np.testing.assert_array_equal(getattr(outcomes, field), value, err_msg=field)


def test_the_expectation_lies_between_all_ties_lost_and_all_ties_won(name) -> None:
    for outcomes in examples(name):
        lost, expected, won = (METRICS[name].per_query(outcomes, ties) for ties in ("lost", "expected", "won"))
        low, high = (lost, won) if METRICS[name].higher_is_better else (won, lost)
        known = ~np.isnan(expected)
        assert (low[known] - 1e-12 <= expected[known]).all()
        assert (expected[known] <= high[known] + 1e-12).all()


def test_the_figure_and_the_difference_are_of_photographs_where_images_repeat_or_are_named_by_nothing(name) -> None:
    metric, images = METRICS[name], np.array([0, 0, 2, 3, 4, 5], dtype=np.int32)
    frame = np.array([0, -1, 1, 2, 3, 0])  # of images; 0 and 5 show one photograph, and nothing names 1
    for both in zip(examples(name), examples(name, [3, 5, 0, 2, 1, 4]), strict=True):
        one, other = (replace(outcomes, clusters=images) for outcomes in both)
        evaluated = Evaluated(outcomes=one, metrics=[metric], source=SOURCE, drawn=frame)
        for row, (_, sample) in zip(result_rows([evaluated], QUICK), evaluated.samples, strict=True):
            assert_mean(row, metric, sample, one, frame[images])
        values, of_other = metric.per_query(one), metric.per_query(other)
        figures = compared_figures({"one@1": one, "other@2": other}, [metric], frame)
        for row in figure_rows(figures, corpus="c", corpus_fingerprint="g", run="r", resampling=QUICK):
            known = ~np.isnan(values) & ~np.isnan(of_other)
            assert row.n_clusters == len(np.unique(frame[images][known]))
            if metric.reduce == "mean":
                assert row.difference == pytest.approx((values - of_other)[known].mean(), abs=1e-12)


def test_the_order_of_the_queries_does_not_matter(name) -> None:
    order = [3, 5, 0, 2, 1, 4]
    metric = METRICS[name]
    for outcomes, shuffled in zip(examples(name), examples(name, order), strict=True):
        np.testing.assert_allclose(metric.per_query(shuffled), metric.per_query(outcomes)[order], rtol=1e-12)
        assert metric.value(shuffled) == pytest.approx(metric.value(outcomes), rel=1e-12, nan_ok=True)


def test_chance_is_a_finite_number_or_unknown(name) -> None:
    for outcomes in examples(name):
        chance = METRICS[name].chance(outcomes)
        assert chance is None or np.isfinite(chance)
