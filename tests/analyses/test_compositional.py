"""Winoground by tag, ties, and what captions give away without the image."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from capim.store.types import Corpus
from capim.tasks.analyses.analysis import AnalysisInput
from capim.tasks.analyses.content import caption_baselines, categories, complexity, tags
from capim.tasks.corpora.build import CaptionRow, ImageRow, PairRow, QuadrupleRow, build_corpus
from capim.tasks.ranking.cosine import score_dense
from capim.tasks.ranking.protocols import build_task, protocols_of, select_protocols
from capim.tasks.statistics.draws import Resampling

RIGHT = np.array([[1, 0], [0, 1]], np.float32)  # the two images, and what a right caption says
LEVEL = np.array([[1, 1], [1, 1]], np.float32)


def quadruples() -> Corpus:
    """Four examples: two tagged Object, one Relation and Object, one without a tag."""
    of = (("Object",), ("Object",), ("Relation", "Object"), ())
    return build_corpus(
        "four",
        [ImageRow(f"q{k}-{side}") for k in range(4) for side in range(2)],
        [CaptionRow(f"c{k}-{side}", f"q{k}-{side}", "x") for k in range(4) for side in range(2)],
        source=None,
        quadruples=[QuadrupleRow(f"q{k}", f"q{k}-0", f"q{k}-1", f"c{k}-0", f"c{k}-1", of[k]) for k in range(4)],
    )


def subject(corpus: Corpus, captions: np.ndarray, protocol_id: str) -> AnalysisInput:
    [protocol] = select_protocols(corpus, [protocol_id])
    images = np.tile(RIGHT, (len(corpus.images) // 2, 1))
    outcomes = score_dense(images, captions.astype(np.float32), [build_task(corpus, protocol)])[protocol_id]
    return AnalysisInput(
        corpus=corpus,
        protocol=protocol,
        outcomes={"a": outcomes},
        resampling=Resampling(replicates=50),
    )


def test_a_score_per_tag_is_over_the_examples_with_the_tag() -> None:
    """The first and the last example are right, the second is exchanged, the third a tie throughout."""
    slices = list(tags(subject(quadruples(), np.concatenate([RIGHT, RIGHT[::-1], LEVEL, RIGHT]), "winoground")))
    group = {s.feature: (s.interval.value, s.n_queries) for s in slices if s.metric == "winoground_group"}
    assert group == {"Object": (pytest.approx(1 / 3), 3), "Relation": (0, 1), "no tag": (1, 1)}


def test_ties_are_counted() -> None:
    slices = list(tags(subject(quadruples(), np.concatenate([RIGHT, RIGHT, LEVEL, RIGHT]), "winoground")))
    [ties] = [s for s in slices if s.feature == "ties"]
    assert ties.interval.value == 0.25


def test_a_tag_with_one_example_has_no_interval_but_a_reason() -> None:
    slices = list(tags(subject(quadruples(), np.concatenate([RIGHT] * 4), "winoground")))
    [relation] = [s for s in slices if (s.feature, s.metric) == ("Relation", "winoground_text")]
    assert relation.interval.low is None
    assert relation.interval.reason is not None


def test_negatives_that_are_always_longer_give_themselves_away() -> None:
    corpus = build_corpus(
        "pairs",
        [ImageRow("i0"), ImageRow("i1")],
        [CaptionRow(f"c{k}", f"i{k}", "a dog runs") for k in range(2)]
        + [CaptionRow(f"n{k}", None, "a dog that does not run") for k in range(2)],
        source=None,
        pairs=[PairRow(f"p{k}", f"i{k}", f"c{k}", f"n{k}", "add_att") for k in range(2)],
    )
    [protocol] = [p for p in protocols_of(corpus) if p.direction == "pairs"][:1]
    slices = {s.feature: s.interval for s in caption_baselines(subject(corpus, np.tile(RIGHT, (2, 1)), protocol.id))}
    assert slices["longer caption"].value == 0
    assert slices["longer caption"].high is not None
    assert slices["longer caption"].high > 0


def test_the_interval_of_a_caption_baseline_counts_images_not_items() -> None:
    """Twenty images with ten items each, alike within an image, had an interval as narrow as that of 200 items."""
    n, each = 20, 10
    texts = ["a dog runs", "a dog runs far"]
    corpus = build_corpus(
        "pairs",
        [ImageRow(f"i{k}") for k in range(n)],
        [CaptionRow(f"c{k}-{j}", f"i{k}", texts[k % 2]) for k in range(n) for j in range(each)]
        + [CaptionRow(f"n{k}-{j}", None, texts[1 - k % 2]) for k in range(n) for j in range(each)],
        source=None,
        pairs=[PairRow(f"p{k}-{j}", f"i{k}", f"c{k}-{j}", f"n{k}-{j}", "x") for k in range(n) for j in range(each)],
    )
    [protocol] = [p for p in protocols_of(corpus) if p.direction == "pairs"][:1]
    captions = np.tile(np.repeat(RIGHT, each, axis=0), (n, 1))
    slices = {s.feature: s for s in caption_baselines(subject(corpus, captions, protocol.id))}
    longer = slices["longer caption"].interval
    assert (longer.value, slices["longer caption"].n_clusters) == (0.5, n)
    assert longer.low is not None
    assert longer.high is not None
    assert longer.high - longer.low > 0.3  # Wilson's of 200 items: 0.14


def test_what_is_not_there_gives_no_rows() -> None:
    """No objects and no English: nothing by category or complexity, and no error."""
    corpus = build_corpus(
        "deutsch",
        [ImageRow("a"), ImageRow("b")],
        [CaptionRow("a0", "a", "ein Hund", language="de"), CaptionRow("b0", "b", "eine Katze", language="de")],
        source=None,
        languages_reference="de",
    )
    of = subject(corpus, RIGHT, next(p.id for p in protocols_of(corpus) if p.direction == "t2i"))
    assert list(categories(of)) == []
    assert list(complexity(of)) == []


def test_without_annotations_categories_are_inferred_and_say_so() -> None:
    corpus = build_corpus(
        "words",
        [ImageRow("a"), ImageRow("b")],
        [CaptionRow("a0", "a", "a dog"), CaptionRow("b0", "b", "a bus")],
        source=None,
    )
    slices = list(categories(subject(corpus, RIGHT, "t2i/all")))
    assert {s.analysis for s in slices} == {"category-inferred"}
    assert {s.feature for s in slices} == {"animal", "vehicle"}


def test_why_winoground_is_hard_by_its_own_tags(shared_data: Path) -> None:
    """The counts of "Why is Winoground Hard?" come back as the n of each tag; a right scorer is right in each."""
    assigned = json.loads((shared_data / "winoground_tags" / "new_tag_assignments.json").read_text())
    corpus = build_corpus(
        "winoground",
        [ImageRow(f"{k}/{side}") for k in assigned for side in range(2)],
        [CaptionRow(f"{k}/{side}", f"{k}/{side}", "x") for k in assigned for side in range(2)],
        source=None,
        quadruples=[QuadrupleRow(k, f"{k}/0", f"{k}/1", f"{k}/0", f"{k}/1", tuple(of)) for k, of in assigned.items()],
    )
    slices = list(tags(subject(corpus, np.tile(RIGHT, (400, 1)), "winoground")))
    group = {s.feature: s.n_queries for s in slices if s.metric == "winoground_group"}
    assert group == {
        "Ambiguously Correct": 46,
        "Complex Reasoning": 78,
        "Non Minimal": 30,
        "Unusual Image": 56,
        "Unusual Text": 50,
        "Visually Difficult": 38,
        "no tag": 172,
    }
    assert {s.interval.value for s in slices if s.metric == "winoground_group"} == {1.0}
