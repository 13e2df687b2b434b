"""Metrics from scores: against every order of the ties of small tables, and against trec_eval where nothing ties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from capim.tasks.metrics import METRICS
from capim.tasks.metrics.retrieval import average_precision, expected_hit, found_in_top, ndcg
from capim.tasks.ranking.outcomes import Outcomes
from tests.metrics.test_judged import TREC, outcomes_of_scores
from tests.ranking.conftest import tied_orders

KS = (1, 2, 3, 5, 10)
OF_OUTCOMES = ("MRR", "mean_rank", "mAP@R", "R-Precision", "AP by trapezoids")


def dcg(gains: Sequence[int]) -> float:
    return float(sum(gain / np.log2(place + 2) for place, gain in enumerate(gains)))


def precision_sum(hits: Sequence[int]) -> float:
    return sum(sum(hits[: place + 1]) / (place + 1) for place, hit in enumerate(hits) if hit)


def trapezoids(hits: Sequence[int]) -> float:
    """The mean of the precisions just before and at every hit; 1 before the first place."""
    at = [place for place, hit in enumerate(hits) if hit]
    return (
        sum((found / place if place else 1) + (found + 1) / (place + 1) for found, place in enumerate(at)) / 2 / len(at)
    )


def by_hand(gains: Sequence[int]) -> dict[str, float]:
    """The definitions of trec_eval and of ECCV Caption, for one order: the grades by place."""
    hits, ideal = [int(gain > 0) for gain in gains], sorted(gains, reverse=True)
    n = sum(hits)
    measures = {
        "MRR": 1 / (hits.index(1) + 1),
        "mean_rank": hits.index(1) + 1.0,
        "AP": precision_sum(hits) / n,
        "mAP@R": precision_sum(hits[:n]) / n,
        "R-Precision": sum(hits[:n]) / n,
        "AP by trapezoids": trapezoids(hits),
    }
    for k in KS:
        measures |= dict.fromkeys((f"R@{k}", f"success@{k}"), float(any(hits[:k])))
        measures |= dict.fromkeys((f"recall_all@{k}", f"recall@{k}"), sum(hits[:k]) / n)
        measures[f"nDCG@{k}"] = dcg(gains[:k]) / dcg(ideal[:k])
    return measures


def ours(outcomes: Outcomes) -> Mapping[str, NDArray[np.float64]]:
    """The same measures of outcomes, by the functions behind the table of metrics."""
    found = {name: METRICS[name].per_query(outcomes) for name in OF_OUTCOMES}
    found["AP"] = average_precision(outcomes, outcomes.n_gallery.astype(np.int64))
    for k in KS:
        top = np.full(len(outcomes), k, dtype=np.int64)
        found[f"R@{k}"] = expected_hit(outcomes.rank_best, outcomes.rank_worst, outcomes.n_tied_relevant, k=k)
        found[f"recall_all@{k}"] = found_in_top(outcomes, top) / outcomes.n_relevant
        found[f"nDCG@{k}"] = ndcg(outcomes, k)
    return found


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int | None]]]:
    """Scores of three levels for up to three queries and seven documents, and their grades: each has a relevant one."""
    n_items, n_queries = draw(st.integers(2, 7)), draw(st.integers(1, 3))
    scores = st.lists(st.integers(0, 2), min_size=n_items, max_size=n_items)
    grades = st.lists(st.sampled_from([None, -1, 0, 1, 2, 3]), min_size=n_items, max_size=n_items)
    judged = [draw(grades) for _ in range(n_queries)]
    for of_query in judged:
        of_query[draw(st.integers(0, n_items - 1))] = draw(st.integers(1, 3))
    return [draw(scores) for _ in range(n_queries)], judged


@settings(max_examples=100)
@given(tables(), st.booleans())
def test_every_metric_is_the_mean_over_every_order_of_all_ties_and_its_bounds_are_the_ends(
    case: tuple[list[list[int]], list[list[int | None]]], graded: bool
) -> None:
    """Negative grades and those of documents that nobody judged are 0; without grades what is relevant gains 1."""
    scores, grades = case
    outcomes = outcomes_of_scores(np.array(scores, dtype=np.float32), grades)
    outcomes = outcomes if graded else replace(outcomes, relevant_grades=None)
    found = ours(outcomes)
    for query, (row, of_query) in enumerate(zip(scores, grades, strict=True)):
        gains = [min(max(grade or 0, 0), 3 if graded else 1) for grade in of_query]
        orders = [by_hand([gains[k] for k in order]) for order in tied_orders(row)]
        for name in orders[0]:
            values = [order[name] for order in orders]
            if name in found:
                assert found[name][query] == pytest.approx(np.mean(values), abs=1e-12), name
            if name in METRICS and (graded or METRICS[name].judged is not True):
                worst_to_best = sorted([min(values), max(values)], reverse=not METRICS[name].higher_is_better)
                ends = [METRICS[name].per_query(outcomes, ties)[query] for ties in ("lost", "won")]
                assert ends == pytest.approx(worst_to_best, abs=1e-12), name
                assert METRICS[name].per_query(outcomes)[query] == pytest.approx(np.mean(values), abs=1e-12), name


def test_without_ties_every_metric_equals_trec_eval() -> None:
    """60 queries on longer galleries than the lists of 100 items that are stored; negative grades are 0 to the peer."""
    peer = pytest.importorskip("pytrec_eval", reason="the peers extra is not installed")
    rng = np.random.default_rng(5)
    n_queries, n_items = 60, 150
    scores = rng.permuted(np.tile(np.arange(n_items, dtype=np.float32) / 256, (n_queries, 1)), axis=1)
    grades: list[list[int | None]] = [[None] * n_items for _ in range(n_queries)]
    for row in grades:
        for document in rng.choice(n_items, rng.integers(2, 12), replace=False):
            row[document] = int(rng.integers(-1, 4))
        row[int(rng.integers(n_items))] = 2
    outcomes = outcomes_of_scores(scores, grades)
    judged = {
        f"q{q}": {f"d{d}": max(grade, 0) for d, grade in enumerate(row) if grade is not None}
        for q, row in enumerate(grades)
    }
    run = {f"q{q}": {f"d{d}": float(s) for d, s in enumerate(row)} for q, row in enumerate(scores)}
    names = {"MRR": "recip_rank", "AP": "map", "R-Precision": "Rprec"} | {
        f"{ours}@{k}": f"{theirs}_{k}"
        for k in KS
        for ours, theirs in (("R", "success"), ("recall_all", "recall"), ("nDCG", "ndcg_cut"))
    }
    measures = {"recip_rank", "map", "Rprec", *(f"{m}.1,2,3,5,10" for m in ("success", "recall", "ndcg_cut"))}
    theirs = peer.RelevanceEvaluator(judged, measures).evaluate(run)
    of_rows = {name: METRICS[name].per_query(outcomes) for name in TREC}
    for found, of_theirs in ((ours(outcomes), names), (of_rows, TREC)):
        for name, measure in of_theirs.items():
            expected = [theirs[f"q{q}"][measure] for q in range(n_queries)]
            np.testing.assert_allclose(found[name], expected, atol=1e-9, err_msg=name)
