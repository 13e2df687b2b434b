"""The worlds of shapes and of pages: what is held out stays held out, and their corpora say what they claim."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import pytest
from PIL import Image

from capim.store.types import digest16
from capim.tasks.corpora.description import open_corpus
from capim.tasks.corpora.images.source import RenderedImages
from capim.tasks.corpora.readers import pages, shapes
from capim.tasks.corpora.readers.pages import LANGUAGES as PAGE_LANGUAGES
from tests.tiny_models.curriculum import asked_pages, training_scenes


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


@pytest.mark.parametrize(
    ("world", "digest"),
    [
        ({"reader": "shapes"}, "d3b58e9670720adc"),
        ({"reader": "shapes", "seed": 1}, "991ed590ea3a3fc3"),
        ({"reader": "shapes-winoground"}, "0a272572101b3344"),
        ({"reader": "shapes-multilingual"}, "05a6cc604cc31eaa"),
        ({"reader": "shapes-labels"}, "cb2e8bae72b65cee"),
        ({"reader": "pages"}, "f49e81afb0c1b0d6"),
    ],
)
def test_the_worlds_are_the_same_in_every_release(world: dict[str, Any], digest: str) -> None:
    """Values in README and docs are of these corpora; the bytes of images, which Pillow compresses, are left out."""
    corpus = open_corpus(world)
    tables = (corpus.images.drop_columns("sha"), corpus.captions, corpus.quadruples, corpus.relevance)
    assert digest16([table.to_pylist() for table in tables]) == digest


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
