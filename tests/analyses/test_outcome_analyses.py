"""Kinds of misses, and ambiguous ones, on corpora worked out by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from capim.store.errors import RequestError
from capim.store.schema import SHARE_OF_MISSES
from capim.store.types import Corpus
from capim.tasks.analyses.analysis import AnalysisInput, part_slices, slice_rows
from capim.tasks.analyses.misses import WITHOUT, ambiguous, error_kinds, first_is_right, kinds_of, without_ambiguous
from capim.tasks.corpora.build import CaptionRow, ImageRow, RelevanceRow, build_corpus
from capim.tasks.corpora.readers.shapes import Scene, parse_scene, read_shapes, wordings
from capim.tasks.metrics import METRICS
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.ranker import score_given
from tests.results.thirty import analysed, captioned, diagnose, ranked, retrieval_task

N = 12
TWELVE = captioned(N)


def outcomes_of(scores: np.ndarray, of: Corpus = TWELVE, protocol: str = "t2i/all") -> Outcomes:
    """Outcomes of this score matrix (captions by images)."""
    return score_given(scores.astype(np.float32), [retrieval_task(of, protocol)])[protocol]


def subject(of: Corpus = TWELVE, **encoders: np.ndarray) -> AnalysisInput:
    return analysed(of, {name: outcomes_of(scores, of) for name, scores in encoders.items()}, 200)


def wrong(*pairs: tuple[int, int], score: float = 2.0) -> np.ndarray:
    """Perfect scores, but for captions that score another image this high."""
    scores = np.eye(N)
    for query, item in pairs:
        scores[query, item] = score
    return scores


def test_every_query_has_exactly_one_kind() -> None:
    kinds = kinds_of(outcomes_of(np.random.default_rng(0).normal(size=(N, N))), TWELVE, None)
    assert np.sum(list(kinds.values()), axis=0).tolist() == [1] * N


def test_a_relevant_item_at_two_is_a_near_miss_at_eleven_not_and_a_tie_at_the_top_is_neither_hit_nor_miss() -> None:
    eleventh = np.eye(N)
    eleventh[3] = 5.0
    eleventh[3, 3], eleventh[3, 0] = 1.0, 0.5  # ten above, one below
    for kind, scores in {"near miss": wrong((3, 5)), "rest": eleventh, "tie": wrong((3, 7), score=1.0)}.items():
        slices = {s.feature: s for s in error_kinds(subject(a=scores))}
        values = dict.fromkeys(("hit", "tie", "near miss", "hub", "rest"), 0.0) | {"hit": 1 - 1 / N, kind: 1 / N}
        assert {name: s.interval.value for name, s in slices.items()} == pytest.approx(values)
        assert slices[kind].detail == {"share_of_misses": 1.0, "examples": ["c3-0"]}


def test_a_miss_whose_first_item_another_ground_truth_calls_right_is_its_fault() -> None:
    of = captioned(N, relevance=[RelevanceRow("cxc", "t2i", "c3-0", f"i{item}") for item in (5, 3)])
    slices = error_kinds(subject(of, a=wrong((3, 5)), b=wrong((3, 6))))
    values = {(s.encoder, s.feature): s.interval.value for s in slices}
    assert values["a", "false negative"] == pytest.approx(1 / N)
    assert values["b", "false negative"] == 0
    assert values["b", "near miss"] == pytest.approx(1 / N)


def test_rows_are_the_same_when_made_again_and_are_identified() -> None:
    of = subject(a=wrong((3, 5)))
    first, second = (
        slice_rows(diagnose(of), corpus=of.corpus, protocol="t2i/all", fingerprints={"a": "f"}, run=run)
        for run in ("one", "two")
    )
    assert len(first) > 10
    assert len({row.slice for row in first}) == len(first)
    assert first == [replace(row, run="one", created=own.created) for row, own in zip(second, first, strict=True)]


def test_encoders_evaluated_on_different_queries_are_refused() -> None:
    whole = outcomes_of(np.eye(N))
    other = replace(whole, query_ords=whole.query_ords[::-1])
    with pytest.raises(RequestError, match="evaluated on different queries"):
        AnalysisInput(corpus=TWELVE, protocol=whole.protocol, outcomes={"a": whole, "b": other})


def test_parts_of_a_recall_that_any_scores_have_get_no_interval() -> None:
    small = replace(subject(a=np.eye(N)), metric=METRICS["R@10"])
    assert small.is_share(small.metric)
    few = replace(small.queries, n_gallery=np.full(N, 10, np.int32))
    assert not replace(small, outcomes={"a": few}).is_share(small.metric)
    assert not small.is_share(METRICS["MRR"])


def test_an_unknown_analysis_is_refused_with_the_known_ones_and_one_on_request_runs_only_when_it_is_named() -> None:
    of = subject(a=np.eye(N))
    with pytest.raises(RequestError, match="analysis 'moods' is unknown; known: complexity"):
        list(diagnose(of, ["moods"]))
    assert "resampled-gallery" not in {each.analysis for each in diagnose(of)}
    assert {each.analysis for each in diagnose(of, ["resampled-gallery"])} == {"resampled-gallery"}


# --- Ambiguous misses: what another annotation makes right, what most encoders choose, and R@1 without them.


def row(slices: Iterable[Any], feature: str, metric: str, encoder: str = "a") -> Any:
    [found] = [s for s in slices if (s.encoder, s.feature, s.metric) == (encoder, feature, metric)]
    return found


def other_truth(query: int, item: int) -> Corpus:
    """The twelve images, and another ground truth of one pair."""
    return captioned(N, relevance=[RelevanceRow("cxc", "t2i", f"c{query}-0", f"i{item}")])


def test_a_miss_that_another_ground_truth_calls_right_is_ambiguous_and_the_headline_stays() -> None:
    slices = list(ambiguous(subject(other_truth(3, 5), a=wrong((3, 5), (4, 5)))))
    share = row(slices, "annotation", SHARE_OF_MISSES)
    assert (share.interval.value, share.n_queries, share.n_clusters) == (0.5, 2, 2)
    assert share.detail == {"ambiguous": 1, "misses": 2, "queries": ["c3-0"], "sources": ["cxc"]}
    headline, kept = row(slices, "all queries", "R@1"), row(slices, "annotation", WITHOUT)
    assert (headline.interval.value, headline.n_queries) == (pytest.approx((N - 2) / N), N)
    assert kept.interval.value == pytest.approx((N - 2) / (N - 1))
    assert (kept.n_queries, kept.n_clusters) == (N - 1, N - 1)
    assert row(slices, "either", WITHOUT).interval.value == kept.interval.value


def test_a_tie_is_no_ambiguous_miss() -> None:
    slices = list(ambiguous(subject(other_truth(4, 7), a=wrong((4, 7), score=1.0))))
    assert row(slices, "annotation", WITHOUT).interval.value == row(slices, "all queries", "R@1").interval.value


def test_the_same_words_or_the_same_picture_make_another_item_right_in_both_directions() -> None:
    of = build_corpus(
        "four",
        [ImageRow(f"i{k}", sha=sha) for k, sha in enumerate("abbc")],
        [CaptionRow(f"c{k}", f"i{k}", t) for k, t in enumerate(("A red  bus.", "two men", "men", "a red bus"))],
        source=None,
    )
    for protocol in ("t2i/all", "i2t/any"):
        for source, (query, item) in {"same words": (0, 3), "same picture": (1, 2)}.items():
            scores = np.eye(4)
            scores[(query, item) if protocol == "t2i/all" else (item, query)] = 2.0
            outcomes = outcomes_of(scores, of, protocol)
            missed = outcomes.rank_best > 1
            assert missed.tolist() == [at == query for at in range(4)], (protocol, source)
            said = {name: (says & missed).sum() for name, says in first_is_right(outcomes, of).items()}
            assert said == {name: name == source for name in ("same words", "same picture")}


def test_what_most_of_three_or_more_encoders_choose_is_a_suspicion() -> None:
    miss = wrong((3, 5))
    three = list(ambiguous(subject(a=miss, b=miss, c=miss)))
    assert row(three, "agreement", SHARE_OF_MISSES).detail == {"ambiguous": 1, "misses": 1, "queries": ["c3-0"]}
    assert row(three, "agreement", WITHOUT).interval.value == 1
    two_of_three = ambiguous(subject(a=miss, b=miss, c=wrong((3, 6))))
    assert row(two_of_three, "agreement", SHARE_OF_MISSES).interval.value == 0
    five: dict[str, Any] = {**dict.fromkeys("abc", miss), "d": wrong((3, 6)), "e": np.eye(N)}
    assert row(ambiguous(subject(**five)), "agreement", SHARE_OF_MISSES).interval.value == 0
    slices = list(ambiguous(subject(**{**five, "d": miss})))
    assert row(slices, "agreement", SHARE_OF_MISSES).interval.value == 1
    assert "e" not in {s.encoder for s in slices if s.metric == SHARE_OF_MISSES}  # it misses nothing
    assert list(ambiguous(subject(a=miss, b=miss))) == []  # two encoders, and no other annotation


def test_a_part_without_ambiguous_misses_has_an_interval_within_0_and_1() -> None:
    """It was Student's: -0.024 to 0.078 of two hits in 75 queries."""
    n = 60
    of = captioned(n, relevance=[RelevanceRow("cxc", "t2i", "c0-0", "i1")])
    scores = np.eye(n)
    scores[:6, 20] = 2.0
    data = analysed(of, {"a": outcomes_of(scores, of)})
    without = without_ambiguous(replace(data, corpus=of))
    assert without is not None
    every = np.ones(n, dtype=bool)
    whole, kept = (
        next(part_slices(each, "x", {("all", ""): every}, metric=each.metric)).interval for each in (data, without)
    )
    assert (whole.method, kept.method) == ("wilson", "wilson")
    assert kept.low is not None and kept.high is not None
    assert 0 < kept.low < kept.value < kept.high < 1


def test_an_encoder_without_result_lists_has_no_rows() -> None:
    data = subject(other_truth(3, 5), a=wrong((3, 5)), b=wrong((3, 5)))
    bare = replace(data.outcomes["b"], top_ords=None, top_scores=None)
    assert {s.encoder for s in ambiguous(replace(data, outcomes={**data.outcomes, "b": bare}))} == {"a"}


def in_shapes(of: Corpus, seed: int, protocol: str = "t2i/all") -> AnalysisInput:
    """An encoder that sees sizes, shapes and places better than colours: which it confuses."""
    rng = np.random.default_rng(seed)
    scenes = [parse_scene(str(key).partition(".")[0]) for key in of.images["key"].to_pylist()]
    seen = [(s.relation, s.first.size, s.first.shape, s.second.size, s.second.shape) for s in scenes]
    place = {what: at for at, what in enumerate(sorted(set(seen)))}
    images = rng.normal(size=(len(place), 24))[[place[what] for what in seen]] * 2 + rng.normal(size=(len(seen), 24))
    own = np.repeat(np.arange(len(of.images)), 5)
    captions = images[own] + rng.normal(scale=4.0, size=(len(own), 24))
    images, captions = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (images, captions))
    return analysed(of, {"a": ranked(of, images, captions, protocol)})


def is_true(caption: str, scene: Scene) -> bool:
    """Whether a caption is true of a scene, by writing out everything that can be said of it."""
    swapped = [text for text in wordings(scene.swap_objects()) if text.startswith("a picture of")]
    return caption in [*wordings(scene), *swapped]


@pytest.mark.parametrize("protocol", ["t2i/all", "i2t/any"])
def test_ambiguous_misses_of_shapes_are_those_that_a_brute_force_reading_of_the_scenes_finds(protocol: str) -> None:
    of = read_shapes()
    data = in_shapes(of, 0, protocol)
    text, image = of.captions["text"].to_pylist(), of.images["key"].to_pylist()
    outcomes = data.outcomes["a"]
    assert outcomes.top_ords is not None
    expected = []
    for at in np.flatnonzero(outcomes.rank_best > 1):
        query, first = int(outcomes.query_ords[at]), int(outcomes.top_ords[at, 0])
        caption, picture = (query, first) if protocol == "t2i/all" else (first, query)
        if is_true(str(text[caption]), parse_scene(str(image[picture]).partition(".")[0])):
            expected.append(str(outcomes.query_ids[at]))
    detail = row(ambiguous(data), "annotation", SHARE_OF_MISSES).detail
    assert (detail["queries"], detail["ambiguous"]) == (expected, len(expected))
    assert len(expected) > 10


def test_slices_are_computed_with_and_without_the_ambiguous_misses() -> None:
    slices = list(diagnose(in_shapes(read_shapes(), 0), ["complexity", "categories"]))
    by_metric = {
        metric: {(s.analysis, s.feature, s.level_name): s for s in slices if s.metric == metric}
        for metric in ("R@1", WITHOUT)
    }
    assert by_metric["R@1"].keys() == by_metric[WITHOUT].keys()
    both = [(by_metric[WITHOUT][key], of_all) for key, of_all in by_metric["R@1"].items()]
    fewer = [(without, of_all) for without, of_all in both if without.n_queries < of_all.n_queries]
    assert fewer
    for without, of_all in fewer:
        assert without.level_name != "with" or without.interval.value >= of_all.interval.value
