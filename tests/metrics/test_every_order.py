"""Metrics from scores: against every order of the ties of small tables, and against trec_eval where nothing ties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from capim.tasks.metrics import METRICS
from capim.tasks.metrics.retrieval import average_precision, expected_hit, found_in_top, ndcg
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.layout import ALL_CAPTIONS, ALL_IMAGES
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.ranker import score_given
from capim.tasks.ranking.tasks import RetrievalTask
from tests.ranking.conftest import tied_orders

Measure = Callable[[Sequence[int]], float]
KS = (1, 2, 3, 5, 10)
OF_OUTCOMES = ("MRR", "mean_rank", "mAP@R", "R-Precision", "AP by trapezoids")


def score_table(table: NDArray[np.float32], relevant: Sequence[Sequence[int]]) -> Outcomes:
    """The outcomes of queries with these scores, shape ``(n_queries, n_items)``, and these relevant items."""
    n_queries, n_items = table.shape
    task = RetrievalTask(
        protocol=Protocol.of("t2i/all"),
        query_space=ALL_CAPTIONS,
        item_space=ALL_IMAGES,
        query_ids=np.array([f"q{k}" for k in range(n_queries)], dtype=object),
        queries=np.arange(n_queries, dtype=np.int32),
        clusters=np.arange(n_queries, dtype=np.int32),
        galleries=(np.arange(n_items, dtype=np.int32),),
        gallery_of=np.zeros(n_queries, np.int32),
        offsets=np.concatenate([[0], np.cumsum([len(items) for items in relevant])]),
        relevant=np.array([item for items in relevant for item in sorted(items)], dtype=np.int32),
        weights=np.ones(n_queries),
    )
    return score_given(table, [task])["t2i/all"]


def dcg(hits: Sequence[int]) -> float:
    return float(sum(hit / np.log2(place + 2) for place, hit in enumerate(hits)))


def precision_sum(hits: Sequence[int]) -> float:
    return sum(sum(hits[: place + 1]) / (place + 1) for place, hit in enumerate(hits) if hit)


def trapezoids(hits: Sequence[int]) -> float:
    """The mean of the precisions just before and at every hit; 1 before the first place."""
    at = [place for place, hit in enumerate(hits) if hit]
    return (
        sum((found / place if place else 1) + (found + 1) / (place + 1) for found, place in enumerate(at)) / 2 / len(at)
    )


def by_hand() -> dict[str, Measure]:
    """The definitions of trec_eval and of ECCV Caption, for one order."""
    measures: dict[str, Measure] = {
        "MRR": lambda hits: 1 / (hits.index(1) + 1),
        "mean_rank": lambda hits: hits.index(1) + 1.0,
        "AP": lambda hits: precision_sum(hits) / sum(hits),
        "mAP@R": lambda hits: precision_sum(hits[: sum(hits)]) / sum(hits),
        "R-Precision": lambda hits: sum(hits[: sum(hits)]) / sum(hits),
        "AP by trapezoids": trapezoids,
    }
    for k in KS:
        measures[f"R@{k}"] = partial(lambda k, hits: float(any(hits[:k])), k)
        measures[f"recall_all@{k}"] = partial(lambda k, hits: sum(hits[:k]) / sum(hits), k)
        measures[f"nDCG@{k}"] = partial(lambda k, hits: dcg(hits[:k]) / dcg(sorted(hits, reverse=True)[:k]), k)
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
def tables(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int]]]:
    """Scores of three levels for up to three queries and seven items, and the relevant items of each query."""
    n_items = draw(st.integers(2, 7))
    query = st.lists(st.integers(0, 2), min_size=n_items, max_size=n_items)
    items = st.lists(st.integers(0, n_items - 1), min_size=1, max_size=n_items, unique=True)
    n_queries = draw(st.integers(1, 3))
    return [draw(query) for _ in range(n_queries)], [draw(items) for _ in range(n_queries)]


@settings(max_examples=60)
@given(tables())
def test_every_metric_is_the_mean_over_every_order_of_all_ties_and_its_bounds_are_the_ends(
    case: tuple[list[list[int]], list[list[int]]],
) -> None:
    scores, relevant = case
    outcomes = score_table(np.array(scores, dtype=np.float32), relevant)
    found = ours(outcomes)
    for query, (row, items) in enumerate(zip(scores, relevant, strict=True)):
        lists = [[int(item in items) for item in order] for order in tied_orders(row)]
        for name, measure in by_hand().items():
            values = [measure(hits) for hits in lists]
            assert found[name][query] == pytest.approx(np.mean(values), abs=1e-12), name
            if name in METRICS and METRICS[name].judged is not True:
                ends = sorted(METRICS[name].per_query(outcomes, ties)[query] for ties in ("lost", "won"))
                assert ends == pytest.approx([min(values), max(values)], abs=1e-12), name


def test_without_ties_every_metric_equals_trec_eval() -> None:
    """Of longer galleries than the lists of 100 items that are stored."""
    peer = pytest.importorskip("pytrec_eval")
    rng = np.random.default_rng(3)
    n_queries, n_items = 50, 150
    scores = rng.permuted(np.tile(np.arange(n_items) / 64, (n_queries, 1)), axis=1).astype(np.float32)
    relevant = [rng.choice(n_items, rng.integers(1, 9), replace=False).tolist() for _ in range(n_queries)]
    found = ours(score_table(scores, relevant))
    judged = {f"q{k}": {f"d{item}": 1 for item in items} for k, items in enumerate(relevant)}
    run = {f"q{k}": {f"d{item}": float(s) for item, s in enumerate(row)} for k, row in enumerate(scores)}
    names = {"MRR": "recip_rank", "AP": "map", "R-Precision": "Rprec"} | {
        f"{ours}@{k}": f"{theirs}_{k}"
        for k in KS
        for ours, theirs in (("R", "success"), ("recall_all", "recall"), ("nDCG", "ndcg_cut"))
    }
    measures = {"recip_rank", "map", "Rprec", *(f"{m}.1,2,3,5,10" for m in ("success", "recall", "ndcg_cut"))}
    theirs = peer.RelevanceEvaluator(judged, measures).evaluate(run)
    for name, measure in names.items():
        expected = [theirs[f"q{k}"][measure] for k in range(n_queries)]
        np.testing.assert_allclose(found[name], expected, atol=1e-12, err_msg=name)
