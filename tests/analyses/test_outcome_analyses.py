"""Kinds of misses, hubs, margins, disagreement and families, on corpora small enough to work out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.analyses.analysis import AnalysisInput, Slice, slice_rows
from capim.tasks.analyses.calibration import score_margin, score_margins
from capim.tasks.analyses.gallery import _never_without, _skewness_without, hubs, k_occurrence, skewness
from capim.tasks.analyses.misses import (
    confusable_images,
    disagreement,
    error_kinds,
    kinds_of,
)
from capim.tasks.analyses.table import diagnose
from capim.tasks.corpora.build import CaptionRow, ImageRow, RelevanceRow, build_corpus
from capim.tasks.ranking.cosine import score_dense
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_task, select_protocols
from capim.tasks.statistics.draws import Resampling

N = 12


def corpus(relevance: Sequence[RelevanceRow] = ()) -> Corpus:
    """Twelve images with one caption each."""
    return build_corpus(
        "twelve",
        [ImageRow(f"i{k}") for k in range(N)],
        [CaptionRow(f"c{k}", f"i{k}", f"caption {k}") for k in range(N)],
        source=None,
        relevance=relevance,
    )


def outcomes_of(scores: np.ndarray, of: Corpus, protocol: str = "t2i/all") -> Outcomes:
    """Outcomes whose score matrix (captions by images) is, up to a shift, the given one."""
    [asked] = select_protocols(of, [protocol])
    captions = np.concatenate([scores, np.ones((N, 1))], axis=1).astype(np.float32)
    images = np.concatenate([np.eye(N), np.full((N, 1), 0.5)], axis=1).astype(np.float32)
    return score_dense(images, captions, [build_task(of, asked)])[protocol]


def subject(of: Corpus, **encoders: np.ndarray) -> AnalysisInput:
    [protocol] = select_protocols(of, ["t2i/all"])
    return AnalysisInput(
        corpus=of,
        protocol=protocol,
        outcomes={name: outcomes_of(scores, of) for name, scores in encoders.items()},
        resampling=Resampling(replicates=200),
    )


def perfect() -> np.ndarray:
    return np.eye(N)


def one_wrong(query: int, item: int) -> np.ndarray:
    """Perfect but for one caption, which scores another image higher."""
    scores = perfect()
    scores[query, item] = 2.0
    return scores


def by_name(slices: Sequence[Slice], encoder: str, feature: str, level_name: str = "") -> float:
    [found] = [s for s in slices if (s.encoder, s.feature, s.level_name) == (encoder, feature, level_name)]
    return found.interval.value


def test_every_query_has_exactly_one_kind() -> None:
    rng = np.random.default_rng(0)
    kinds = kinds_of(outcomes_of(rng.normal(size=(N, N)), corpus()), corpus(), None)
    assert np.sum(list(kinds.values()), axis=0).tolist() == [1] * N


def test_a_relevant_item_at_two_is_a_near_miss() -> None:
    slices = list(error_kinds(subject(corpus(), a=one_wrong(3, 5))))
    assert by_name(slices, "a", "near miss") == pytest.approx(1 / N)
    assert by_name(slices, "a", "hit") == pytest.approx(1 - 1 / N)
    [near] = [s for s in slices if s.feature == "near miss"]
    assert near.detail == {"share_of_misses": 1.0, "examples": ["c3"]}


def test_a_relevant_item_at_eleven_is_not_near() -> None:
    scores = perfect()
    scores[3] = 5.0
    scores[3, 3], scores[3, 0] = 1.0, 0.5  # ten above, one below
    slices = list(error_kinds(subject(corpus(), a=scores)))
    assert by_name(slices, "a", "rest") == pytest.approx(1 / N)
    assert by_name(slices, "a", "near miss") == 0


def test_a_tie_at_the_top_is_neither_hit_nor_miss_kind() -> None:
    scores = perfect()
    scores[4, 7] = 1.0
    assert by_name(list(error_kinds(subject(corpus(), a=scores))), "a", "tie") == pytest.approx(1 / N)


def test_a_miss_whose_first_item_another_ground_truth_calls_right_is_its_fault() -> None:
    of = corpus([RelevanceRow("cxc", "t2i", "c3", "i5"), RelevanceRow("cxc", "t2i", "c3", "i3")])
    slices = list(error_kinds(subject(of, a=one_wrong(3, 5), b=one_wrong(3, 6))))
    assert by_name(slices, "a", "false negative") == pytest.approx(1 / N)
    assert by_name(slices, "b", "false negative") == 0
    assert by_name(slices, "b", "near miss") == pytest.approx(1 / N)


def test_an_image_that_is_first_for_everything_is_the_worst_hub() -> None:
    scores = perfect()
    scores[:, 8] = 3.0
    slices = list(hubs(subject(corpus(), a=scores)))
    [row] = [s for s in slices if s.feature == "skewness"]
    assert row.detail is not None
    worst = row.detail["worst"]
    assert isinstance(worst, list)
    assert (worst[0]["id"], worst[0]["wrongly_first"]) == ("i8", N - 1)


def test_n_k_counts_the_lists_that_an_item_is_in() -> None:
    assert k_occurrence(np.array([[3, 1, -1], [3, 0, 2]], np.int32), 2, 5).tolist() == [1, 1, 0, 2, 0]


def test_the_jackknife_of_hubs_leaves_each_cluster_out() -> None:
    """Against the definition: counting again without the cluster's lists."""
    from scipy import sparse

    rng = np.random.default_rng(1)
    lists = sparse.csr_matrix(rng.integers(0, 2, size=(6, 9)).astype(float))
    counts = np.asarray(lists.sum(axis=0)).ravel().astype(np.int64)
    without = [counts - lists[c].toarray().ravel().astype(np.int64) for c in range(6)]
    assert _skewness_without(lists, counts) == pytest.approx([skewness(w) for w in without])
    assert _never_without(lists, counts) == pytest.approx([(w == 0).mean() for w in without])


@pytest.mark.parametrize(("seed", "size", "bias"), [(0, 6, 0.0), (4, 4, 0.5)])
def test_the_interval_of_a_share_stays_within_0_and_1(seed: int, size: int, bias: float) -> None:
    """The share of images that are never found, 0 in one of these, had an interval from -3.2 points."""
    rng, n = np.random.default_rng(seed), 60
    of = build_corpus(
        "sixty",
        [ImageRow(f"i{k}") for k in range(n)],
        [CaptionRow(f"c{k}", f"i{k}", "x") for k in range(n)],
        source=None,
    )
    [protocol] = select_protocols(of, ["t2i/all"])
    captions, images = (rng.normal(size=(n, size)).astype(np.float32) for _ in range(2))
    if bias:
        images[:, 0], captions[:, 0] = bias * images[:, 0], 1
    else:
        images /= np.linalg.norm(images, axis=1, keepdims=True)
    outcomes = score_dense(images, captions, [build_task(of, protocol)])["t2i/all"]
    data = AnalysisInput(corpus=of, protocol=protocol, outcomes={"a": outcomes})
    [share] = [s.interval for s in hubs(data) if s.feature == "share never found"]
    assert share.low is not None
    assert share.high is not None
    assert 0 <= share.low <= share.value < share.high <= 1


def test_a_margin_is_the_best_relevant_score_less_the_best_irrelevant_one() -> None:
    scores = perfect()
    scores[3, 5], scores[4, 7] = 2.0, 1.0
    outcomes = outcomes_of(scores, corpus())
    assert outcomes.top_scores is not None
    margin = score_margin(outcomes, outcomes.top_scores)
    expected = np.ones(N)
    expected[3], expected[4] = -1, 0
    assert margin == pytest.approx(expected)


def test_a_margin_with_several_relevant_items_skips_all_that_lead() -> None:
    """Image to caption with three own captions at 0.9, 0.8 and 0.1, and an irrelevant one at 0.5: 0.9 - 0.5."""
    of = build_corpus(
        "two",
        [ImageRow("i0"), ImageRow("i1")],
        [
            CaptionRow("c0", "i0", "a"),
            CaptionRow("c1", "i0", "b"),
            CaptionRow("c2", "i0", "c"),
            CaptionRow("d", "i1", "d"),
        ],
        source=None,
    )
    [protocol] = select_protocols(of, ["i2t/any"])
    captions = np.array([[0.9, 1], [0.8, 1], [0.1, 1], [0.5, 1]], np.float32)
    images = np.array([[1, 0], [-1, 0.001]], np.float32)
    outcomes = score_dense(images, captions, [build_task(of, protocol)])["i2t/any"]
    assert outcomes.top_scores is not None
    margin = score_margin(outcomes, outcomes.top_scores)
    assert margin[0] == pytest.approx(0.4, abs=1e-6)


def test_misses_have_negative_margins_and_hits_positive_ones() -> None:
    slices = list(score_margins(subject(corpus(), a=one_wrong(3, 5))))
    assert by_name(slices, "a", "hits") == pytest.approx(1)
    assert by_name(slices, "a", "misses") == pytest.approx(-1)


def test_disagreement_counts_who_is_right_where_the_other_is_wrong() -> None:
    slices = list(disagreement(subject(corpus(), a=perfect(), b=one_wrong(3, 5), c=one_wrong(4, 5))))
    assert by_name(slices, "a", "right where wrong", "b") == pytest.approx(1 / N)
    assert by_name(slices, "b", "right where wrong", "a") == 0
    assert by_name(slices, "b", "alone wrong") == pytest.approx(1 / N)
    assert by_name(slices, "a", "missed by all") == 0


def test_what_all_miss_is_named() -> None:
    slices = list(disagreement(subject(corpus(), a=one_wrong(3, 5), b=one_wrong(3, 6))))
    [row] = [s for s in slices if (s.encoder, s.feature) == ("a", "missed by all")]
    assert row.detail == {"examples": ["c3"]}


def test_families_name_the_images_that_are_taken_for_each_other() -> None:
    scores = one_wrong(3, 5)
    scores[5, 3] = 2.0
    [row] = confusable_images(subject(corpus(), a=scores))
    assert row.interval.value == pytest.approx(2 / N)
    assert row.detail is not None
    assert row.detail["families"] == [["i3", "i5"]]


def test_rows_are_the_same_when_made_again_and_are_identified() -> None:
    of = subject(corpus(), a=one_wrong(3, 5))
    first, second = (
        slice_rows(diagnose(of), corpus=of.corpus, protocol="t2i/all", fingerprints={"a": "f"}, run=run)
        for run in ("one", "two")
    )
    assert first.num_rows > 10
    assert len(set(first["slice"].to_pylist())) == first.num_rows
    assert first.drop_columns(["run", "created"]).equals(second.drop_columns(["run", "created"]))


def test_encoders_evaluated_on_different_queries_are_refused() -> None:
    of = corpus()
    [protocol] = select_protocols(of, ["t2i/all"])
    whole = outcomes_of(perfect(), of)
    other = outcomes_of(perfect(), of)
    object.__setattr__(other, "query_ords", other.query_ords[::-1])
    with pytest.raises(RequestError, match="evaluated on different queries"):
        AnalysisInput(corpus=of, protocol=protocol, outcomes={"a": whole, "b": other})


def test_parts_of_a_recall_that_any_scores_have_get_no_interval() -> None:
    small = replace(subject(corpus(), a=perfect()), metric="R@10")
    assert small.is_share("R@10")
    few = replace(small.queries, n_gallery=np.full(N, 10, np.int32))
    assert not replace(small, outcomes={"a": few}).is_share("R@10")
    assert not small.is_share("MRR")


def test_an_unknown_analysis_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RequestError, match="analysis 'moods' is unknown; known: complexity"):
        list(diagnose(subject(corpus(), a=perfect()), ["moods"]))


def test_an_analysis_on_request_runs_only_when_it_is_named() -> None:
    of = subject(corpus(), a=perfect())
    assert "resampled-gallery" not in {each.analysis for each in diagnose(of)}
    assert {each.analysis for each in diagnose(of, ["resampled-gallery"])} == {"resampled-gallery"}
