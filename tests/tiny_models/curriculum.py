"""Training data and schedule of the tiny models: batches of scenes and of pages, their texts, the learning rate."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import NamedTuple

from PIL import Image

from capim.tasks.corpora.readers import pages
from capim.tasks.corpora.readers.shapes import TRANSLATORS, Scene, held_out_orbits, render, scenes, translated, wordings

TRAINED_LANGUAGES = ("de", "fr", "es")  # besides English; Italian and Russian stay unseen on purpose


class Named(NamedTuple):
    """A word of a text and where it is meant: an image, its first line, and the first line below (from 0, of 8)."""

    text: int
    word: str
    image: int
    first: int
    below: int


class Batch(NamedTuple):
    """Texts, and as many images or more; the first images are those that the texts belong to, in the same order."""

    texts: list[str]
    images: list[Image.Image]
    named: tuple[Named, ...] = ()


@cache
def training_scenes() -> tuple[Scene, ...]:
    """The 5,760 scenes outside the held-out orbits, in a fixed order."""
    held_out = {scene for orbit in held_out_orbits() for scene in orbit}
    return tuple(scene for scene in scenes() if scene not in held_out)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a tiny model is trained.

    Attributes:
        steps: Optimiser steps.
        batch: Scenes per step.
        peak: Learning rate after ``warm_up`` steps, from where it falls on a cosine to 2 % of itself.
        swap_negatives: Whether a scene's two swaps go into the same batch. Without them a model can win its batch
            on the words alone, and becomes the bag of words that Winoground was made to find.
        seed: Of the weights, the batches, the drawings and the choice of captions.
        threads: Of torch; the weights are the same bits only for the same number.
    """

    steps: int = 1200
    batch: int = 192
    peak: float = 1.5e-3
    warm_up: int = 50
    swap_negatives: bool = True
    seed: int = 0
    threads: int = 1

    def learning_rate(self, step: int) -> float:
        """The learning rate of one step, counted from 0.

        Examples:
            >>> recipe = Recipe(steps=100, peak=1.0, warm_up=50)
            >>> [round(recipe.learning_rate(step), 3) for step in (0, 25, 50, 99)]
            [0.0, 0.428, 0.51, 0.02]
        """
        cosine = 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return self.peak * min(1.0, step / self.warm_up) * (0.98 * cosine + 0.02)


def scene_batches(recipe: Recipe, rng: random.Random) -> Iterator[list[Scene]]:
    """Endless batches of distinct training scenes, with or without each scene's swaps beside it."""
    known = set(training_scenes())
    while True:
        order = list(training_scenes())
        rng.shuffle(order)
        batch: dict[Scene, None] = {}  # a set that keeps its order
        for scene in order:
            candidates = (scene, scene.swap_objects(), scene.swap_colours()) if recipe.swap_negatives else (scene,)
            for candidate in candidates:
                if candidate in known and len(batch) < recipe.batch:
                    batch[candidate] = None
            if len(batch) == recipe.batch:
                yield list(batch)
                batch = {}


def captions_to_train_on(scene: Scene) -> tuple[list[str], list[str]]:
    """The eight English captions, and the six in other languages; half of all draws are English."""
    other = [translated(scene, language, by) for language in TRAINED_LANGUAGES for by in TRANSLATORS]
    return wordings(scene), other


def draw_caption(scene: Scene, rng: random.Random) -> str:
    """One caption: English or not with equal chances, then any of those."""
    return rng.choice(rng.choice(captions_to_train_on(scene)))


def captioned_scenes(recipe: Recipe, rng: random.Random) -> Iterator[Batch]:
    """Endless batches of training scenes, each with one caption."""
    for batch in scene_batches(recipe, rng):
        yield Batch([draw_caption(scene, rng) for scene in batch], [render(scene, rng) for scene in batch])


def asked_pages(rng: random.Random) -> Iterator[Batch]:
    """Endless batches: a question to each of several reports, a second one to each, their answers, the first pages.

    Six towns in the same three years, so that neither town nor year alone tells a page; first pages name the topics.
    """
    held_out = set(pages.reports()[: pages.HELD_OUT_REPORTS])
    while True:
        asked: tuple[list[tuple[pages.RenderedReport, pages.Question]], ...] = ([], [])
        for town, year in product(rng.sample(pages.TOWNS, 6), rng.sample(pages.YEARS, 3)):
            if (town, year) in held_out:
                continue
            report = pages.RenderedReport(town, year, rng.choice(pages.LANGUAGES), rng.randrange(10**6))
            by_kind = list(pages.questions_to(report))
            for questions, kind in zip(asked, rng.sample(range(len(pages.KINDS)), len(asked)), strict=True):
                questions.append((report, rng.choice(by_kind[pages.ASKED * kind + rng.randrange(pages.ASKED)])))
        both = [*asked[0], *asked[1]]
        yield Batch(
            [question.text for _, question in both],
            [pages.render(report, question.page) for report, question in both]
            + [pages.render(report, 1) for report, _ in asked[0]],
            tuple(
                named
                for number, (report, question) in enumerate(both)
                for named in _named(report, question, number, len(both) + number % len(asked[0]))
            ),
        )


def _named(report: pages.RenderedReport, question: pages.Question, number: int, first_page: int) -> Iterator[Named]:
    """Town and year in the header and the topic of a question, on the page with its answer and on the first page."""
    content = pages.content_of(report)
    contents = [(kind, topic) for kind in content.order for topic in content.asked[kind]]
    line = 1 + contents.index((question.kind, question.topic))
    begins, ends = (round(pages.ROWS * edge) for edge in question.box[1::2])
    topic = pages.topic_word(question.language, question.kind, question.topic)
    for image, first, below in ((number, begins, ends), (first_page, line, line + 1)):
        yield Named(number, topic, image, first, below)
        for word in (report.town, str(report.year)):
            yield Named(number, word, image, 0, 1)


def vocabulary() -> list[str]:
    """Every caption of scenes that training can draw."""
    return [caption for scene in training_scenes() for group in captions_to_train_on(scene) for caption in group]


def page_vocabulary() -> list[str]:
    """Questions to reports with every word that training can draw, and the years."""
    any_report = pages.RenderedReport(pages.TOWNS[0], pages.YEARS[0], pages.LANGUAGES[0], 0)
    choices = product(pages.LANGUAGES, pages.KINDS, range(10), range(2), range(2))
    return [*(pages.question(any_report, *choice) for choice in choices), *pages.TOWNS, *map(str, pages.YEARS)]
