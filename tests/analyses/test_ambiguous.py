"""Ambiguous misses: what another annotation makes right, what most encoders choose, and R@1 with and without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from capim.store.types import Corpus
from capim.tasks.analyses.analysis import AnalysisInput, Slice
from capim.tasks.analyses.misses import SHARE, WITHOUT, ambiguous, first_is_right
from capim.tasks.analyses.table import diagnose
from capim.tasks.corpora.build import CaptionRow, ImageRow, RelevanceRow, build_corpus
from capim.tasks.corpora.readers.shapes import Scene, parse_scene, read_shapes, wordings
from capim.tasks.ranking.cosine import score_dense
from capim.tasks.ranking.protocols import build_task, select_protocols
from capim.tasks.statistics.draws import Resampling
from tests.analyses.test_outcome_analyses import N, corpus, one_wrong, perfect, subject


def row(slices: Sequence[Slice], encoder: str, feature: str, metric: str) -> Slice:
    [found] = [s for s in slices if (s.encoder, s.feature, s.metric) == (encoder, feature, metric)]
    return found


def wrong(*pairs: tuple[int, int]) -> np.ndarray:
    scores = perfect()
    for query, item in pairs:
        scores[query, item] = 2.0
    return scores


def test_a_miss_that_another_ground_truth_calls_right_is_ambiguous_and_the_headline_stays() -> None:
    of = corpus([RelevanceRow("cxc", "t2i", "c3", "i5")])
    slices = list(ambiguous(subject(of, a=wrong((3, 5), (4, 5)))))
    share = row(slices, "a", "annotation", SHARE)
    assert share.interval.value == 0.5
    assert (share.n_queries, share.n_clusters) == (2, 2)
    assert share.detail == {"ambiguous": 1, "misses": 2, "queries": ["c3"], "sources": ["cxc"]}
    headline, kept = row(slices, "a", "all queries", "R@1"), row(slices, "a", "annotation", WITHOUT)
    assert headline.interval.value == pytest.approx((N - 2) / N)
    assert headline.n_queries == N
    assert kept.interval.value == pytest.approx((N - 2) / (N - 1))
    assert (kept.n_queries, kept.n_clusters) == (N - 1, N - 1)
    assert row(slices, "a", "either", WITHOUT).interval.value == kept.interval.value


def test_the_same_words_or_the_same_picture_make_another_item_right_in_both_directions() -> None:
    of = build_corpus(
        "four",
        [ImageRow("i0", sha="a"), ImageRow("i1", sha="b"), ImageRow("i2", sha="b"), ImageRow("i3", sha="c")],
        [
            CaptionRow("c0", "i0", "A red  bus."),
            CaptionRow("c1", "i1", "two men"),
            CaptionRow("c2", "i2", "men"),
            CaptionRow("c3", "i3", "a red bus"),
        ],
        source=None,
    )
    for protocol in ("t2i/all", "i2t/any"):
        [chosen] = select_protocols(of, [protocol])
        for source, (query, item) in {"same words": (0, 3), "same picture": (1, 2)}.items():
            scores = np.eye(4, dtype=np.float32)
            scores[(query, item) if protocol == "t2i/all" else (item, query)] = 2.0
            images, captions = np.eye(4, dtype=np.float32), np.concatenate([scores, np.ones((4, 1))], axis=1)
            padded = np.concatenate([images, np.full((4, 1), 0.5)], axis=1).astype(np.float32)
            outcomes = score_dense(padded, captions.astype(np.float32), [build_task(of, chosen)])[protocol]
            right = first_is_right(outcomes, of)
            missed = outcomes.rank_best > 1
            assert missed.tolist() == [at == query for at in range(4)], (protocol, source)
            assert {name: (says & missed).sum() for name, says in right.items()} == {
                "same words": source == "same words",
                "same picture": source == "same picture",
            }


def test_what_most_of_three_or_more_encoders_choose_is_a_suspicion() -> None:
    three = list(ambiguous(subject(corpus(), a=one_wrong(3, 5), b=one_wrong(3, 5), c=one_wrong(3, 5))))
    assert row(three, "a", "agreement", SHARE).detail == {"ambiguous": 1, "misses": 1, "queries": ["c3"]}
    assert row(three, "a", "agreement", WITHOUT).interval.value == 1
    two_of_three = list(ambiguous(subject(corpus(), a=one_wrong(3, 5), b=one_wrong(3, 5), c=one_wrong(3, 6))))
    assert row(two_of_three, "a", "agreement", SHARE).interval.value == 0
    five = {name: one_wrong(3, 5) for name in "abc"} | {"d": one_wrong(3, 6), "e": perfect()}
    assert row(list(ambiguous(subject(corpus(), **five))), "a", "agreement", SHARE).interval.value == 0
    five["d"] = one_wrong(3, 5)
    slices = list(ambiguous(subject(corpus(), **five)))
    assert row(slices, "a", "agreement", SHARE).interval.value == 1
    assert "e" not in {s.encoder for s in slices if s.metric == SHARE}  # it misses nothing


def test_two_encoders_without_other_annotations_have_no_rows() -> None:
    assert list(ambiguous(subject(corpus(), a=one_wrong(3, 5), b=one_wrong(3, 5)))) == []


def test_a_tie_is_no_ambiguous_miss() -> None:
    scores = perfect()
    scores[4, 7] = scores[4, 4]
    of = corpus([RelevanceRow("cxc", "t2i", "c4", "i7")])
    slices = list(ambiguous(subject(of, a=scores)))
    assert (
        row(slices, "a", "annotation", WITHOUT).interval.value == row(slices, "a", "all queries", "R@1").interval.value
    )


def test_an_encoder_without_result_lists_has_no_rows() -> None:
    of = corpus([RelevanceRow("cxc", "t2i", "c3", "i5")])
    data = subject(of, a=one_wrong(3, 5), b=one_wrong(3, 5))
    bare = replace(data.outcomes["b"], top_ords=None, top_scores=None)
    assert {s.encoder for s in ambiguous(replace(data, outcomes={**data.outcomes, "b": bare}))} == {"a"}


def in_shapes(of: Corpus, seed: int, protocol: str) -> AnalysisInput:
    """An encoder that sees sizes, shapes and places better than colours: which it confuses."""
    [chosen] = select_protocols(of, [protocol])
    rng = np.random.default_rng(seed)
    scenes = [parse_scene(str(key).partition(".")[0]) for key in of.images["key"].to_pylist()]
    seen = [(s.relation, s.first.size, s.first.shape, s.second.size, s.second.shape) for s in scenes]
    place = {what: at for at, what in enumerate(sorted(set(seen)))}
    images = rng.normal(size=(len(place), 24))[[place[what] for what in seen]] * 2 + rng.normal(size=(len(seen), 24))
    own = np.repeat(np.arange(len(of.images)), 5)
    captions = images[own] + rng.normal(scale=4.0, size=(len(own), 24))
    images, captions = ((x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32) for x in (images, captions))
    outcomes = score_dense(images, captions, [build_task(of, chosen)])[protocol]
    return AnalysisInput(corpus=of, protocol=chosen, outcomes={"a": outcomes}, resampling=Resampling(replicates=100))


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
    share = row(list(ambiguous(data)), "a", "annotation", SHARE)
    assert share.detail is not None
    assert share.detail["queries"] == expected
    assert share.detail["ambiguous"] == len(expected)
    assert len(expected) > 10


def test_slices_are_computed_with_and_without_the_ambiguous_misses() -> None:
    slices = list(diagnose(in_shapes(read_shapes(), 0, "t2i/all"), ["complexity", "categories"]))
    keys = {
        metric: {(s.analysis, s.feature, s.level_name) for s in slices if s.metric == metric}
        for metric in ("R@1", WITHOUT)
    }
    assert keys["R@1"] == keys[WITHOUT]
    values = {(s.metric, s.feature, s.level_name): s for s in slices}
    larger = [
        values[WITHOUT, s.feature, s.level_name]
        for s in slices
        if s.metric == "R@1" and values[WITHOUT, s.feature, s.level_name].n_queries < s.n_queries
    ]
    assert larger
    assert all(
        s.interval.value >= values["R@1", s.feature, s.level_name].interval.value
        for s in larger
        if s.level_name == "with"
    )


def test_errors_count_as_many_false_negatives_as_there_are_ambiguous_misses() -> None:
    slices = list(diagnose(in_shapes(read_shapes(), 1, "t2i/all"), ["errors", "ambiguous"]))
    [kind] = [s for s in slices if s.feature == "false negative"]
    share = row(slices, "a", "annotation", SHARE)
    assert share.detail is not None
    assert kind.interval.value * kind.n_queries == pytest.approx(share.detail["ambiguous"])
