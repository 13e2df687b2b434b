"""What queries ask for and images show: features, tags, what captions alone give away, categories, judged queries.

The detectors of what a caption speaks of are tested on made-up traps and on 400 real captions labelled by hand.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from capim.store.types import Corpus
from capim.tasks.analyses.analysis import AnalysisInput
from capim.tasks.analyses.content import (
    FEATURES,
    Rule,
    categories,
    complexity,
    lexicon,
    read_lexicon_file,
    tags,
    tokens_of,
)
from capim.tasks.corpora.build import CaptionRow, ImageRow, RelevanceRow, build_corpus
from capim.tasks.ranking.protocols import build_task, protocols_of
from capim.tasks.ranking.ranker import score_given
from tests.results.thirty import analysed, diagnose, quadruples, ranked

RIGHT = np.array([[1, 0], [0, 1]], np.float32)  # the two images, and what a right caption says
LEVEL = np.array([[1, 1], [1, 1]], np.float32)
LABELS = Path(__file__).parents[1] / "golden" / "caption_labels.tsv"
ENOUGH = 0.95


def subject(corpus: Corpus, captions: np.ndarray, protocol: str) -> AnalysisInput:
    images = np.tile(RIGHT, (len(corpus.images) // 2, 1))
    return analysed(corpus, {"a": ranked(corpus, images, captions, protocol)}, 50)


def test_a_score_per_tag_is_over_the_examples_with_the_tag() -> None:
    """The first and the last example are right, the second is exchanged, the third a tie throughout."""
    corpus = quadruples({"0": ["Object"], "1": ["Object"], "2": ["Relation", "Object"], "3": []})
    slices = list(tags(subject(corpus, np.concatenate([RIGHT, RIGHT[::-1], LEVEL, RIGHT]), "winoground")))
    group = {s.feature: (s.interval.value, s.n_queries) for s in slices if s.metric == "winoground_group"}
    assert group == {"Object": (pytest.approx(1 / 3), 3), "Relation": (0, 1), "no tag": (1, 1)}
    assert [s.interval.value for s in slices if s.feature == "ties"] == [0.25]


def two_texts(*texts: str, language: str = "en") -> Corpus:
    captions = [CaptionRow(f"{i}0", i, text, language=language) for i, text in zip("ab", texts, strict=True)]
    images = [ImageRow("a"), ImageRow("b")]
    return build_corpus("words", images, captions, source=None, languages_reference=language)


def test_what_is_not_there_gives_no_rows() -> None:
    """No objects and no English: nothing by category or complexity, and no error."""
    corpus = two_texts("ein Hund", "eine Katze", language="de")
    of = subject(corpus, RIGHT, next(p.id for p in protocols_of(corpus) if p.direction == "t2i"))
    assert list(categories(of)) == list(complexity(of)) == []


def test_without_annotations_categories_are_inferred_and_say_so() -> None:
    slices = list(categories(subject(two_texts("a dog", "a bus"), RIGHT, "t2i/all")))
    assert {(s.analysis, s.feature) for s in slices} == {("category-inferred", name) for name in ("animal", "vehicle")}


def test_parts_are_languages_kinds_numbers_of_documents_and_pages() -> None:
    """Query 0: three pages, the best of grade 2 on page 3; query 1: one page, the first; query 2: no page number."""
    judgements = (("q0", "a", 1), ("q0", "b", 2), ("q0", "c", 2), ("q1", "a", 1), ("q2", "d", 1))
    corpus = build_corpus(
        "pages",
        [ImageRow("a", page=1), ImageRow("b", page=3), ImageRow("c", page=7), ImageRow("d")],
        [
            CaptionRow("q0", None, "x", query_types=["number", "table"]),
            CaptionRow("q1", None, "y", language="fr", query_types=["table"]),
            CaptionRow("q2", None, "z", language="fr"),
        ],
        source=None,
        relevance=[RelevanceRow("judged", "t2i", *judged) for judged in judgements],
    )
    protocol = protocols_of(corpus)[0]
    scores = np.array([[1, 4, 3, 2], [4, 3, 2, 1], [4, 3, 2, 1]], dtype=np.float32)
    outcomes = score_given(scores, [build_task(corpus, protocol)])[protocol.id]
    slices = list(diagnose(analysed(corpus, {"model": outcomes})))
    assert {each.analysis for each in slices} == {"judged", "errors"}
    judged = [each for each in slices if each.analysis == "judged"]
    assert {(s.feature, s.level_name): s.n_queries for s in judged} == {
        ("language", "en"): 1,
        ("language", "fr"): 2,
        ("kind of query", "number"): 1,
        ("kind of query", "table"): 2,
        ("relevant documents", "1"): 2,
        ("relevant documents", "2-3"): 1,
        ("where in the document", "page 1"): 1,
        ("where in the document", "pages 2-5"): 1,
    }
    assert {s.metric for s in judged} == {"nDCG@10"}


# --- Lexicons.


@pytest.mark.parametrize(
    ("feature", "text", "found"),
    [  # a word inside another, or in another sense, does not count
        ("counting", "a clock that says half past two", []),
        ("counting", "no one is there", []),
        ("counting", "7:30 on a clock", []),
        ("counting", "4 x 4 driving uphill", []),
        ("colour", "a bed covered in blankets", []),
        ("colour", "a glass of orange juice beside sliced oranges", []),
        ("colour", "some blueberries and ice cream", []),
        ("spatial", "a child left home", []),
        ("spatial", "a cake made by a baker", []),
        ("action", "a building in the evening", []),
        ("counting", "Two dogs, one cat and several birds", ["two", "several", "one"]),
        ("counting", "A COUPLE OF people", ["couple of"]),
        ("counting", "2 dogs on a sofa", ["2"]),
        ("counting", "12 large yellow dump trucks", ["12"]),
        ("colour", "A grey-white, multi-colored bus", ["grey", "white", "colored"]),
        ("colour", "an orange cat", ["orange"]),
        ("spatial", "left of a bus, next to a tree, under it", ["left of", "next to", "under"]),
        ("spatial", "a van parked by the river", ["by"]),
        ("negation", "an empty road without cars, it isn't day", ["without", "isn't"]),
        ("action", "men riding and a girl who throws", ["riding", "throws"]),
    ],
)
def test_words_phrases_and_inflections_are_found(feature: str, text: str, found: list[str]) -> None:
    assert lexicon(feature).matches(tokens_of(text)) == found


@pytest.mark.parametrize(
    ("rule", "text", "accepted"),
    [
        (Rule(word="by", after="parked"), "parked by night", True),
        (Rule(word="by", not_after="*ed"), "parked by night", False),
        (Rule(word="by", before="night"), "by starry night", False),
        (Rule(word="by", before="night", reach=2), "by starry night", True),
        (Rule(word="by", not_before="."), "they walk by", False),
        (Rule(word="by", not_before="."), "they walk by .", False),
        (Rule(word="#", before="*s"), "99 dogs", True),
        (Rule(word="#", not_after="."), "99 dogs", True),
        (Rule(word="#", not_after="."), ": 99 dogs", False),
        (Rule(word="#", after="."), "99 dogs", False),
        (Rule(word="#", after="^"), "99 dogs", True),
        (Rule(word="#", after="^"), "the 99 dogs", False),
        (Rule(word="#", before="*s"), "100 dogs", False),
    ],
)
def test_a_rule_looks_at_its_neighbours(rule: Rule, text: str, accepted: bool) -> None:
    tokens = text.split()
    assert any(rule.accepts(tokens, at) for at in range(len(tokens))) is accepted


def test_every_lexicon_says_where_its_words_come_from() -> None:
    files = [read_lexicon_file(name) for name in (*FEATURES, "coco_objects")]
    assert all(each["sources"] and each["title"] for each in files)


@pytest.fixture(scope="module")
def coco(shared_data: Path) -> dict[str, list[str]]:
    """Image id -> its captions."""
    images = json.loads((shared_data / "coco_karpathy" / "test_5k.json").read_text())
    return {str(image["image_id"]): image["captions"] for image in images}


@pytest.mark.parametrize("part", ["test", "development"])
@pytest.mark.parametrize("feature", ["spatial", "colour", "counting"])
def test_precision_and_recall_on_captions_labelled_by_hand(coco, part, feature) -> None:
    with LABELS.open(newline="") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["part"] == part]
    assert len(rows) == 200
    texts = [coco[row["image_id"]][int(row["ordinal"])] for row in rows]
    detected = [bool(lexicon(feature).matches(tokens_of(text))) for text in texts]
    true = [row[feature] == "1" for row in rows]
    hits = sum(a and b for a, b in zip(detected, true, strict=True))
    assert hits / sum(detected) >= ENOUGH
    assert hits / sum(true) >= ENOUGH
