"""What queries ask for and images show: tags, what captions alone give away, categories, judged and cut-off queries."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from capim.store.types import Corpus
from capim.tasks.analyses.analysis import AnalysisInput, Slice
from capim.tasks.analyses.content import caption_baselines, categories, complexity, tags
from capim.tasks.analyses.table import diagnose
from capim.tasks.corpora.build import CaptionRow, ImageRow, PairRow, QuadrupleRow, RelevanceRow, build_corpus
from capim.tasks.corpora.readers.translations import read_urban1k
from capim.tasks.encoders import encode_captions, load_encoder, resolve, spec_of
from capim.tasks.ranking.cosine import score_dense
from capim.tasks.ranking.protocols import build_task, protocols_of, select_protocols
from capim.tasks.ranking.ranker import score_given
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
    assert [s.interval.value for s in slices if s.feature == "ties"] == [0.25]


def longer_caption(n: int, each: int, texts: Callable[[int], tuple[str, str]]) -> Slice:
    """The baseline of images with some items each: how often the right one of an image's two texts is the longer."""
    items = [(k, j) for k in range(n) for j in range(each)]
    corpus = build_corpus(
        "pairs",
        [ImageRow(f"i{k}") for k in range(n)],
        [CaptionRow(f"c{k}-{j}", f"i{k}", texts(k)[0]) for k, j in items]
        + [CaptionRow(f"n{k}-{j}", None, texts(k)[1]) for k, j in items],
        source=None,
        pairs=[PairRow(f"p{k}-{j}", f"i{k}", f"c{k}-{j}", f"n{k}-{j}", "x") for k, j in items],
    )
    [protocol] = [p for p in protocols_of(corpus) if p.direction == "pairs"][:1]
    data = subject(corpus, np.tile(np.repeat(RIGHT, each, axis=0), (n, 1)), protocol.id)
    return next(s for s in caption_baselines(data) if s.feature == "longer caption")


def test_negatives_that_are_always_longer_give_themselves_away() -> None:
    longer = longer_caption(2, 1, lambda k: ("a dog runs", "a dog that does not run"))
    assert longer.interval.value == 0
    assert longer.interval.high is not None
    assert longer.interval.high > 0


def test_the_interval_of_a_caption_baseline_counts_images_not_items() -> None:
    """Twenty images with ten items each, alike within an image, had an interval as narrow as that of 200 items."""
    texts = ["a dog runs", "a dog runs far"]
    found = longer_caption(20, 10, lambda k: (texts[k % 2], texts[1 - k % 2]))
    longer = found.interval
    assert (longer.value, found.n_clusters) == (0.5, 20)
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


def test_parts_are_languages_kinds_numbers_of_documents_and_pages() -> None:
    """Query 0: three pages, the best of grade 2 on page 3; query 1: one page, the first; query 2: no page number."""
    corpus = build_corpus(
        "pages",
        [ImageRow("a", page=1), ImageRow("b", page=3), ImageRow("c", page=7), ImageRow("d")],
        [
            CaptionRow("q0", None, "x", query_types=["number", "table"]),
            CaptionRow("q1", None, "y", language="fr", query_types=["table"]),
            CaptionRow("q2", None, "z", language="fr"),
        ],
        source=None,
        relevance=[
            RelevanceRow("judged", "t2i", query, page, grade)
            for query, page, grade in (("q0", "a", 1), ("q0", "b", 2), ("q0", "c", 2), ("q1", "a", 1), ("q2", "d", 1))
        ],
    )
    protocol = protocols_of(corpus)[0]
    scores = np.array([[1, 4, 3, 2], [4, 3, 2, 1], [4, 3, 2, 1]], dtype=np.float32)
    outcomes = score_given(scores, [build_task(corpus, protocol)])[protocol.id]
    data = AnalysisInput(corpus=corpus, protocol=protocol, outcomes={"model": outcomes})
    slices = list(diagnose(data))
    assert {each.analysis for each in slices} == {"judged", "errors"}
    counts = {(s.feature, s.level_name): s.n_queries for s in slices if s.analysis == "judged"}
    assert counts == {
        ("language", "en"): 1,
        ("language", "fr"): 2,
        ("kind of query", "number"): 1,
        ("kind of query", "table"): 2,
        ("relevant documents", "1"): 2,
        ("relevant documents", "2-3"): 1,
        ("where in the document", "page 1"): 1,
        ("where in the document", "pages 2-5"): 1,
    }
    assert {s.metric for s in slices if s.analysis == "judged"} == {"nDCG@10"}


SHORT, LONG = "a red circle", "a red circle left of a blue square " * 4


@pytest.fixture
def street(tmp_path: Path) -> Path:
    """Six images in the layout of Urban1k, the odd ones with a long caption."""
    (tmp_path / "caption").mkdir()
    for number in range(6):
        (tmp_path / "caption" / f"{number}.txt").write_text(LONG if number % 2 else SHORT)
    return tmp_path


def slices(street: Path, protocol_id: str, truncated: dict[str, np.ndarray]) -> list[Slice]:
    """Image and caption vectors are equal where the caption is short, and opposite where it is long."""
    corpus = read_urban1k(street)
    [protocol] = select_protocols(corpus, [protocol_id])
    images = np.eye(6, dtype=np.float32)
    captions = np.where((np.arange(6) % 2 == 1)[:, None], -images, images)
    outcomes = score_dense(images, captions, [build_task(corpus, protocol)])[protocol_id]
    data = AnalysisInput(
        corpus=corpus,
        protocol=protocol,
        outcomes={"short-context": outcomes, "long-context": outcomes},
        resampling=Resampling(replicates=50),
        truncated=truncated,
    )
    return list(diagnose(data, ["truncated-captions"]))


@pytest.mark.parametrize("protocol", ["t2i/all", "i2t/any"])
def test_an_encoder_of_short_context_is_compared_where_it_reads_all_and_where_it_does_not(
    street: Path, protocol: str
) -> None:
    spec = resolve(replace(spec_of("tiny-clip"), options={**spec_of("tiny-clip").options, "max_length": 12}))
    texts = [text or "" for text in read_urban1k(street).captions["text"].to_pylist()]
    truncated = encode_captions(load_encoder(spec), texts).truncated
    assert truncated.tolist() == [False, True] * 3
    found = slices(street, protocol, {"short-context": truncated})
    assert {s.encoder for s in found} == {"short-context"}
    value = {s.level_name: s.interval.value for s in found}
    assert value["share"] == 0.5
    assert value["without"] == 1
    assert value["with"] < 1
    assert value["difference"] == pytest.approx(value["with"] - 1)
    assert {s.n_queries for s in found if s.level_name in ("with", "without")} == {3}


def test_where_nothing_is_truncated_there_are_no_slices_and_where_all_is_only_the_share(street: Path) -> None:
    assert slices(street, "t2i/all", {}) == []
    [share] = slices(street, "t2i/all", {"long-context": np.ones(6, dtype=bool)})
    assert (share.encoder, share.level_name, share.interval.value) == ("long-context", "share", 1)
