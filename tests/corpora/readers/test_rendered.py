"""The worlds of shapes and of pages: what is held out stays held out, and their corpora say what they claim."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from PIL import Image

from capim.store.types import Corpus
from capim.tasks.corpora.description import open_corpus
from capim.tasks.corpora.images.decode import decode_image
from capim.tasks.corpora.images.source import RenderedImages
from capim.tasks.corpora.readers import pages, shapes
from capim.tasks.corpora.readers.pages import LANGUAGES as PAGE_LANGUAGES
from tests.tiny_models.curriculum import asked_pages, training_scenes


def duplicates_by_bytes(*corpora: Corpus) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Pairs of images of the same bytes, as corpus and id."""
    rows = [(corpus.name, row["id"], row["sha"]) for corpus in corpora for row in corpus.images.to_pylist()]
    yield from ((a[:2], b[:2]) for a, b in combinations(rows, 2) if a[2] == b[2])


def test_the_world_has_6960_scenes_and_300_orbits_of_four_are_held_out() -> None:
    assert len(shapes.scenes()) == len(set(shapes.scenes())) == 6960
    assert len({scene for orbit in shapes.held_out_orbits() for scene in orbit}) == 1200
    assert len(training_scenes()) == 6960 - 1200


def test_no_held_out_scene_and_no_swap_of_one_was_trained_on() -> None:
    trained = set(training_scenes())
    for scene in shapes.held_out_scenes(1200, seed=3):
        assert not trained & {*scene.orbit(), scene.swap_objects(), scene.swap_colours()}


@pytest.mark.parametrize(
    "key", ["", "nonsense", "small-red-circle_under_large-blue-star", "small-pink-circle_left_x-y-z"]
)
def test_a_key_that_names_no_scene_is_a_missing_file(key: str) -> None:
    with pytest.raises(FileNotFoundError):
        RenderedImages(shapes.draw_scene, 0).read(key)


def test_a_picture_shows_the_colours_of_its_scene_in_their_places() -> None:
    png = RenderedImages(shapes.draw_scene, 0).read("large-red-square_left_large-blue-square.0.png")
    image = Image.open(io.BytesIO(png))
    (left_red, _, left_blue), (right_red, _, right_blue) = np.asarray(image)[32, [17, 47]]
    assert image.size == (64, 64)
    assert left_red > left_blue
    assert right_blue > right_red


@pytest.mark.parametrize("world", [{"reader": "shapes", "n_scenes": 20}, {"reader": "pages", "n_reports": 4}])
def test_the_same_seed_gives_the_same_corpus_and_another_seed_another(world: dict[str, Any]) -> None:
    drawn = [open_corpus({**world, "seed": seed}).fingerprint for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_each_of_300_scenes_has_five_different_captions_and_its_objects() -> None:
    corpus = shapes.read_shapes()
    texts = corpus.captions["text"].to_pylist()
    assert corpus.images.num_rows == 300
    assert len(texts) == 1500
    assert all(len(set(texts[i : i + 5])) == 5 for i in range(0, 1500, 5))
    assert corpus.captions["ordinal"].to_pylist() == [0, 1, 2, 3, 4] * 300
    assert all(len(image["objects"]) == 2 for image in corpus.images.to_pylist())


def test_the_wordings_differ_in_places_colours_counts_and_negation() -> None:
    captions = shapes.read_shapes(n_scenes=70).captions.to_pylist()
    words = [set(row["text"].replace(":", "").replace(",", "").split()) for row in captions]
    for feature in ("left right above below over", "red green blue yellow purple orange", "one two", "no"):
        share = sum(bool({*feature.split()} & caption) for caption in words) / len(words)
        assert 0.05 < share < 0.95, feature


def test_no_caption_is_true_of_two_scenes_unless_it_leaves_something_out() -> None:
    owners = Counter(text for scene in shapes.scenes() for text in set(shapes.wordings(scene)))
    shared = {text for text, count in owners.items() if count > 1}
    coloured = {text for text in shared if any(colour in text for colour in ("red", "green", "blue"))}
    assert all(text.startswith("a picture of") for text in coloured)


def test_both_captions_of_a_quadruple_have_the_same_words_and_no_image_is_in_two() -> None:
    corpus = shapes.read_shapes_winoground()
    text = {row["id"]: row["text"] for row in corpus.captions.to_pylist()}
    sha = {row["id"]: row["sha"] for row in corpus.images.to_pylist()}
    for row in corpus.quadruples.to_pylist():
        assert text[row["caption_0"]] != text[row["caption_1"]]
        assert sorted(text[row["caption_0"]].split()) == sorted(text[row["caption_1"]].split())
        assert sha[row["image_0"]] != sha[row["image_1"]]
    tags = Counter(tag for row in corpus.quadruples.to_pylist() for tag in row["tags"])
    assert tags == {"object": 150, "attribute": 150}
    images = corpus.quadruples["image_0"].to_pylist() + corpus.quadruples["image_1"].to_pylist()
    assert len(images) == len(set(images)) == 600


def test_labelled_scenes_have_their_two_colours_and_the_duplicates_that_were_planted() -> None:
    corpus, of_shapes = shapes.read_shapes_labels(), shapes.read_shapes()
    class_of = {row["query_id"]: row["item_id"].partition("#")[0] for row in corpus.relevance.to_pylist()}
    for image in corpus.images.to_pylist():
        scene = shapes.parse_scene(image["key"].partition(".")[0])
        assert class_of[image["id"]].split("_and_a_") == sorted((scene.first.colour, scene.second.colour))
    counts = Counter(class_of.values())
    assert len(counts) == 15
    assert min(counts.values()) > 8, "enough for a probe"
    pairs = [*duplicates_by_bytes(corpus, of_shapes)]
    within = [(first, second) for first, second in pairs if first[0] == second[0]]
    assert len(within) == len(pairs) - len(within) == 15
    assert all(second[1] == f"{first[1]}-copy" for first, second in within)
    again = [row["id"] for row in corpus.images.to_pylist() if row["id"].endswith("-again")]
    assert len(again) == 15


def test_every_image_has_one_caption_per_language_and_translator() -> None:
    captions = shapes.read_shapes_multilingual(n_scenes=10).captions
    parts = (captions[column].to_pylist() for column in ("image_id", "language", "translator"))
    places = Counter(zip(*parts, strict=True))
    assert len(places) == 10 * len(shapes.LANGUAGES) * len(shapes.TRANSLATORS)
    assert set(places.values()) == {1}


@pytest.mark.parametrize(
    ("language", "translator", "expected"),
    [
        ("en", "plain", "a small red star above a large green square"),
        ("de", "plain", "ein kleiner roter Stern über einem großen grünen Quadrat"),
        ("de", "inverted", "ein großes grünes Quadrat unter einem kleinen roten Stern"),
        ("fr", "plain", "une petite étoile rouge au-dessus d'un grand carré vert"),
        ("es", "plain", "una estrella roja pequeña encima de un cuadrado verde grande"),
        ("it", "inverted", "un grande quadrato verde sotto una piccola stella rossa"),
        ("ru", "plain", "маленькая красная звезда над большим зелёным квадратом"),
        ("ru", "inverted", "большой зелёный квадрат под маленькой красной звездой"),
    ],
)
def test_templates_agree_in_gender_and_case(language: str, translator: str, expected: str) -> None:
    scene = shapes.parse_scene("small-red-star_above_large-green-square")
    assert shapes.translated(scene, language, translator) == expected


def test_held_out_reports_are_never_trained_on_and_all_their_words_are(monkeypatch: pytest.MonkeyPatch) -> None:
    held_out, others = set(pages.reports()[: pages.HELD_OUT_REPORTS]), set(pages.reports()[pages.HELD_OUT_REPORTS :])
    assert len(held_out | others) == len(pages.TOWNS) * len(pages.YEARS)
    assert not held_out & others
    assert {town for town, _ in others} == set(pages.TOWNS)
    assert {year for _, year in others} == set(pages.YEARS)
    drawn: list[tuple[str, int]] = []

    report = pages.RenderedReport

    def draw(town: str, year: int, language: str, serial: int) -> pages.RenderedReport:
        drawn.append((town, year))
        return report(town, year, language, serial)

    monkeypatch.setattr("tests.tiny_models.curriculum.pages.RenderedReport", draw)
    batches = asked_pages(random.Random(0))
    for _ in range(3):
        texts, images, _ = next(batches)
        assert len(images) == 3 * len(texts) // 2
    assert drawn
    assert not set(drawn) & held_out


def test_the_answer_of_a_question_stands_in_its_box_and_the_first_page_names_its_topic() -> None:
    for number, language in enumerate(PAGE_LANGUAGES * 3):
        report = pages.RenderedReport("Kelda", 2001, language, number)
        content = pages.content_of(report)
        for question in pages.questions_to(report):
            assert [asked.language for asked in question] == list(PAGE_LANGUAGES)
            printed = next(asked for asked in question if asked.language == language)
            lines = pages.lines_of(report, printed.page)
            first, last = (round(edge * len(lines)) for edge in (printed.box[1], printed.box[3]))
            answer = "\n".join(lines[first:last])
            word = pages.topic_word(language, printed.kind, printed.topic)
            assert word.casefold() in answer.casefold()
            values = content.values[printed.kind][content.topics[printed.kind].index(printed.topic)]
            assert printed.kind == "chart" or all(str(value) in answer for value in values)
            assert word.casefold() in "\n".join(pages.lines_of(report, 1)).casefold()
            assert all(len(line) <= 20 for line in lines)


def test_the_corpus_has_graded_judgements_types_groups_and_pages_of_documents() -> None:
    corpus = pages.read_pages(n_reports=4)
    assert (corpus.images.num_rows, corpus.captions.num_rows) == (16, 48)
    assert Counter(corpus.relevance["grade"].to_pylist()) == {0: 96, 1: 48, 2: 48}
    types = Counter(kind for row in corpus.captions.to_pylist() for kind in row["query_types"])
    assert types == {"text": 16, "table": 16, "chart": 16, "translated": 24}
    assert set(Counter(corpus.captions["query_group"].to_pylist()).values()) == {2}
    assert Counter(corpus.images["page"].to_pylist()) == {1: 4, 2: 4, 3: 4, 4: 4}
    assert len(set(corpus.images["document"].to_pylist())) == 4
    assert corpus.source is not None
    assert decode_image(corpus.source.read(corpus.images["key"][0].as_py())).size[1] == 2 * pages.HEIGHT
