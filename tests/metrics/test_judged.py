"""Metrics of judged documents: chance, unjudged ones, two stages, mteb on files, and what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.store.types import Corpus, digest16
from capim.store.vectors import Ragged
from capim.tasks.corpora.build import CaptionRow, ImageRow, RelevanceRow, build_corpus, keep_images
from capim.tasks.metrics import METRICS, metrics_of
from capim.tasks.metrics.table import Figure, headline_of, planned_figures
from capim.tasks.ranking.evaluate import evaluate
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_task, drawn_clusters, protocols_of, select_protocols
from capim.tasks.ranking.ranker import score_given
from capim.tasks.ranking.two_stage import SecondScores, two_stage
from tests.ranking.conftest import assert_same, stored_and_read, task_of, tasks_of, unit

TREC = {"nDCG@5": "ndcg_cut_5", "nDCG@10": "ndcg_cut_10", "AP": "map", "MRR": "recip_rank"}
TREC |= {f"{measure}@{k}": f"{measure}_{k}" for measure in ("recall", "success") for k in (1, 5, 10)}
Grades = Sequence[Sequence[int | None]]  # of every document for every query; None: nobody judged it


def corpus_of(
    grades: Grades, *, languages: Sequence[str] = (), groups: Sequence[str | None] = (), main: str = ""
) -> Corpus:
    rows = zip(languages or ["en"] * len(grades), groups or [None] * len(grades), strict=True)
    queries = [CaptionRow(f"q{k}", None, "text", language=l, query_group=g) for k, (l, g) in enumerate(rows)]  # noqa: E741
    judgements = [
        RelevanceRow("judged", "t2i", f"q{q}", f"d{d}", grade)
        for q, row in enumerate(grades)
        for d, grade in enumerate(row)
        if grade is not None
    ]
    pages = [ImageRow(f"d{k}") for k in range(len(grades[0]))]
    return build_corpus("pages", pages, queries, source=None, relevance=judgements, main_metric=main)


def outcomes_of_scores(scores: NDArray[np.float32], grades: Grades, protocol: str = "t2i/judged") -> Outcomes:
    return score_given(scores, tasks_of(corpus_of(grades), protocol))[protocol]


def test_a_constant_scorer_gets_the_chance_value_of_every_metric() -> None:
    grades = [[2, 1, None, 0, None, 1, None, None, None, None, None, None]]
    constant = outcomes_of_scores(np.zeros((1, 12), np.float32), grades)
    some = outcomes_of_scores(np.arange(12, dtype=np.float32)[None], grades)
    for name in TREC:
        assert METRICS[name].chance(some) == pytest.approx(METRICS[name].value(constant)), name
    assert METRICS["recall@5"].value(constant) == pytest.approx(5 / 12)


def test_dense_and_late_interaction_are_ranked_alike() -> None:
    rng = np.random.default_rng(6)
    grades = [[int(g) if g >= 0 else None for g in row] for row in rng.integers(-4, 3, (9, 40))]
    for row in grades:
        row[3] = 1
    corpus = corpus_of(grades)
    protocols = select_protocols(corpus, ["t2i/judged"])
    sides = {"images": unit(rng.normal(size=(40, 16))), "captions": unit(rng.normal(size=(9, 16)))}
    blocks: Any = {name: lambda v=v: [Ragged.of(list(v[:, None]))] for name, v in sides.items()}
    dense, late = (evaluate(corpus, protocols, **each)["t2i/judged"] for each in (sides, blocks))
    for name in ("relevant_rank_best", "relevant_grades", "unjudged"):
        np.testing.assert_array_equal(getattr(late, name), getattr(dense, name), err_msg=name)


def test_the_metrics_of_judged_documents_and_of_captioned_images_are_not_mixed() -> None:
    outcomes = outcomes_of_scores(np.array([[3, 2, 1]], dtype=np.float32), [[1, None, 0]])
    names = [metric.name for metric in metrics_of(outcomes)]
    assert set(TREC) < set(names)
    assert set(names) - set(TREC) == {"unjudged@10", "P@1", "P@5", "P@10", "R-Precision"}


def test_the_share_of_unjudged_documents_counts_ties_and_knows_what_was_dismissed() -> None:
    grades: Grades = [[1, 0, -1, *[None] * 17], [1, 0, -1, *[None] * 17]]
    scores = np.stack([np.arange(20, 0, -1), np.ones(20)]).astype(np.float32)
    outcomes = outcomes_of_scores(scores, grades)
    assert outcomes.unjudged is not None
    assert outcomes.unjudged.tolist() == pytest.approx([0.7, 17 / 20])
    assert METRICS["unjudged@10"].chance(outcomes) is None


def test_stored_outcomes_are_read_back_with_grades_scores_and_unjudged_share() -> None:
    outcomes = outcomes_of_scores(np.array([[3, 3, 1], [1, 2, 3]], dtype=np.float32), [[1, 2, 0], [None, 3, None]])
    again = stored_and_read({"again": outcomes})
    assert_same(again, {"again": outcomes})
    grades = again["again"].relevant_grades
    assert grades is not None
    assert grades.tolist() == [2, 1, 3]  # the higher grade of a tie first


def test_protocols_languages_clusters_and_headline() -> None:
    grades: Grades = [[1, None], [None, 1], [1, None], [1, 1]]
    languages, groups = ["en", "en", "fr", "fr"], ["a", "b", "a", None]
    corpus = corpus_of(grades, languages=languages, groups=groups, main="nDCG@5")
    protocols = {protocol.id: protocol for protocol in protocols_of(corpus)}
    assert list(protocols) == ["t2i/judged", "t2i/judged/en", "t2i/judged/fr"]
    task: Any = build_task(corpus, protocols["t2i/judged"])
    assert task.clusters.tolist() == [0, 1, 0, 3]
    assert drawn_clusters(corpus, protocols["t2i/judged"]) == 4
    french: Any = build_task(corpus, protocols["t2i/judged/fr"])
    assert french.query_ids.tolist() == ["q2", "q3"]
    assert french.clusters.tolist() == [0, 3]
    assert headline_of(protocols.values()) == (Figure("t2i/judged", "nDCG@5"),)
    assert headline_of([protocols["t2i/judged/fr"]]) == (Figure("t2i/judged/fr", "nDCG@5"),)
    assert planned_figures(protocols.values()) == {Figure("t2i/judged", "nDCG@5")}
    assert [p.id for p in protocols_of(corpus_of(grades))] == ["t2i/judged"]
    captioned = build_corpus("c", [ImageRow("i")], [CaptionRow("c", "i", "x")], source=None)
    with pytest.raises(RequestError, match="'t2i/judged' does not fit corpus 'c': it has no graded judgements"):
        select_protocols(captioned, ["t2i/judged"])
    assert headline_of(protocols_of(corpus_of(grades))) == (Figure("t2i/judged", "nDCG@10"),)


def test_some_queries_of_a_task_keep_their_grades_and_dismissed_documents() -> None:
    corpus = corpus_of([[1, 0, None], [None, 2, 0], [0, 3, 1]])
    task: Any = build_task(corpus, protocols_of(corpus)[0])
    some = task.of_queries(np.array([0, 2]))
    assert (some.grades.tolist(), some.relevant.tolist()) == ([1, 3, 1], [0, 1, 2])
    assert some.dismissed.tolist() == [[0, 1], [1, 0]]
    assert digest16(some.query_ids.tolist()) == digest16(["q0", "q2"])


@pytest.mark.peers
@pytest.mark.slow
def test_a_small_corpus_as_files_gets_the_figures_of_pytrec_eval_and_of_mteb() -> None:
    """The small version of ``make bench ONLY=judged``, which has the size of ViDoRe 3 and compares the times."""
    pytest.importorskip("mteb", reason="the peers extra is not installed")
    from tests.benchmarks.bench_judged import run

    _, from_trec, from_mteb = run(quick=True)
    assert from_trec.value is not None and from_trec.value <= 1e-9
    assert from_mteb.value is not None and from_mteb.value <= 1e-6


def test_a_sample_of_the_documents_has_the_protocols_of_the_queries_that_are_left() -> None:
    corpus = corpus_of([[1, None, 0], [None, 1, 0]], languages=["en", "fr"])
    assert [p.id for p in protocols_of(keep_images(corpus, pa.array(["d0", "d2"])))] == ["t2i/judged"]
    assert protocols_of(keep_images(corpus, pa.array(["d2"]))) == ()


def _second(scores: NDArray[np.float32]) -> SecondScores:
    return lambda queries, items: np.take_along_axis(scores[queries], items, axis=1)


@pytest.mark.parametrize("levels", [3, 1000])
def test_judged_pages_in_two_stages_are_the_first_n_by_the_second_encoder_and_then_the_rest(levels: int) -> None:
    rng = np.random.default_rng(levels)
    drawn = rng.choice(5, size=(9, 40), p=[0.2, 0.1, 0.1, 0.1, 0.5]).tolist()
    grades: Grades = [[None if grade == 4 else grade for grade in row] for row in drawn]
    task = task_of(corpus_of(grades), "t2i/judged")
    scores = rng.permuted(np.tile(np.arange(40, dtype=np.float32), (9, 1)), axis=1)
    second = rng.integers(0, levels, size=(9, 40)).astype(np.float32)
    first = outcomes_of_scores(scores, grades)
    for depth in two_stage(first, task, _second(second), [5, 20, 40]):
        listed = scores >= 40 - depth.n
        expected = outcomes_of_scores(np.where(listed, 1000 + second, scores).astype(np.float32), grades)
        for name in (*TREC, "unjudged@10"):
            for ties in ("lost", "expected", "won"):
                found, wanted = (METRICS[name].per_query(each, ties) for each in (depth.outcomes, expected))
                np.testing.assert_allclose(found, wanted, err_msg=name)


def test_where_n_cuts_a_tie_of_the_first_encoder_every_grade_counts_once() -> None:
    grades: Grades = [[3, 1, 2, 0, 1, 2, None, 3]]
    task = task_of(corpus_of(grades), "t2i/judged")
    first = outcomes_of_scores(np.array([[2, 1, 1, 1, 1, 1, 1, 0]], np.float32), grades)
    [depth] = two_stage(first, task, _second(np.arange(8, dtype=np.float32)[None]), [3])
    assert depth.outcomes.relevant_grades is not None
    assert sorted(depth.outcomes.relevant_grades.tolist()) == [1, 1, 2, 2, 3, 3]
    assert depth.outcomes.relevant_grades.tolist()[:3] == [2, 1, 3]  # items 2, 1 and 0 by the second encoder
    assert depth.outcomes.relevant_grades.tolist()[3:] == [2, 1, 3]
