"""The detectors of what a caption speaks of, on made-up traps and on 400 real captions labelled by hand."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from capim.tasks.analyses.content import FEATURES, Rule, caption_features, lexicon, read_lexicon_file, tokens_of

LABELS = Path(__file__).parents[1] / "golden" / "caption_labels.tsv"
ENOUGH = 0.95


@pytest.mark.parametrize(
    ("feature", "text"),
    [
        ("counting", "someone at a phone"),
        ("counting", "a pair of scissors on a desk"),
        ("counting", "a clock that says half past two"),
        ("counting", "no one is there"),
        ("counting", "7:30 on a clock"),
        ("counting", "4 x 4 driving uphill"),
        ("colour", "a bed covered in blankets"),
        ("colour", "a glass of orange juice beside sliced oranges"),
        ("colour", "some blueberries and ice cream"),
        ("colour", "a man in a colosseum"),
        ("spatial", "a child left home"),
        ("spatial", "a cake made by a baker"),
        ("spatial", "a man in a rightful mood"),
        ("negation", "a notable knot"),
        ("action", "a building in the evening"),
    ],
)
def test_a_word_inside_another_or_in_another_sense_does_not_count(feature: str, text: str) -> None:
    assert lexicon(feature).matches(tokens_of(text)) == []


@pytest.mark.parametrize(
    ("feature", "text", "found"),
    [
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


def test_features_of_captions_stand_in_the_order_of_the_captions() -> None:
    features = caption_features(["a red bus", "two dogs next to a tree", ""])
    assert {name: has.tolist() for name, has in features.items() if has.any()} == {
        "spatial": [False, True, False],
        "colour": [True, False, False],
        "counting": [False, True, False],
    }


@pytest.mark.parametrize("part", ["test", "development"])
@pytest.mark.parametrize("feature", ["spatial", "colour", "counting"])
def test_precision_and_recall_on_captions_labelled_by_hand(shared_data: Path, part: str, feature: str) -> None:
    images = json.loads((shared_data / "coco_karpathy" / "test_5k.json").read_text())
    captions = {str(image["image_id"]): image["captions"] for image in images}
    with LABELS.open(newline="") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["part"] == part]
    assert len(rows) == 200
    detected = [
        bool(lexicon(feature).matches(tokens_of(captions[row["image_id"]][int(row["ordinal"])]))) for row in rows
    ]
    true = [row[feature] == "1" for row in rows]
    hits = sum(a and b for a, b in zip(detected, true, strict=True))
    assert hits / sum(detected) >= ENOUGH
    assert hits / sum(true) >= ENOUGH


def test_real_captions_that_begin_with_a_numeral_say_how_many(shared_data: Path) -> None:
    """None of them counted: what stood before the first word was taken for a full stop."""
    images = json.loads((shared_data / "coco_karpathy" / "test_5k.json").read_text())
    captions = [caption for image in images for caption in image["captions"] if caption.strip()[0].isdigit()]
    assert len(captions) == 12
    assert all(lexicon("counting").matches(tokens_of(caption)) for caption in captions)
