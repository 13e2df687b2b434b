"""Three corpora of the shapes world, of scenes that the tiny models were not trained on.

No files are read: an image is rendered from its key when it is read, with the same bytes every time.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Iterator
from typing import Annotated

from PIL import Image
from pydantic import Field

from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.build import CaptionRow, ImageRow, QuadrupleRow, RelevanceRow, build_corpus
from capim.tasks.corpora.images.rendered import RenderedImages
from capim.tasks.corpora.shapes.world import (
    HELD_OUT_ORBITS,
    LANGUAGES,
    TRANSLATORS,
    Scene,
    five_wordings,
    held_out_scenes,
    meanings,
    parse_scene,
    render,
    translated,
    wordings,
)

SCENE = "scene"  # name of the extra ground truth


def draw_scene(key: str, rng: random.Random) -> Image.Image:
    """The scene of a key, ``…_…_….<serial>``."""
    return render(parse_scene(key.partition(".")[0]), rng)


def read_shapes(*, n_scenes: Annotated[int, Field(ge=1)] = 300, seed: int = 0) -> Corpus:
    """Scenes with five English captions each, of eight wordings, and the shapes in them as objects.

    The captions differ in what they mention (places, colours, counts, an action, an absent shape) and in length. Among
    the first 300 scenes none is a swap of another; from 1,201 on, captions repeat. A caption that leaves something out
    can be true of several scenes: the extra ground truth ``scene`` holds all of them.
    """
    scenes = _scenes(n_scenes, seed)
    captions = [
        CaptionRow(f"{image.id}-{ordinal}", image.id, text, ordinal)
        for turn, (image, scene) in enumerate(scenes)
        for ordinal, text in enumerate(five_wordings(scene, turn))
    ]
    relevance = _true_of(captions, scenes)
    return _corpus("shapes", [image for image, _ in scenes], captions, seed, relevance=relevance)


def read_shapes_winoground(
    *, n_quadruples: Annotated[int, Field(ge=1, le=HELD_OUT_ORBITS)] = 300, seed: int = 0
) -> Corpus:
    """Winoground-form quadruples, in which the two objects or, in turn, the two colours are exchanged.

    The tags are ``object`` and ``attribute``. Both captions of a quadruple have the same words; no image is in two
    quadruples, so that they are independent.
    """
    images, captions, quadruples = [], [], []
    for number, scene in enumerate(held_out_scenes(n_quadruples, seed)):
        tag, swapped = ("object", scene.swap_objects()) if number % 2 == 0 else ("attribute", scene.swap_colours())
        name = f"quadruple-{number:04d}"
        for side, member in enumerate((scene, swapped)):
            images.append(_image_row(f"{name}-{side}", member, number))
            captions.append(CaptionRow(f"{name}-{side}-0", f"{name}-{side}", wordings(member)[0]))
        quadruples.append(QuadrupleRow(name, f"{name}-0", f"{name}-1", f"{name}-0-0", f"{name}-1-0", (tag,)))
    return _corpus("shapes-winoground", images, captions, seed, quadruples)


def read_shapes_multilingual(*, n_scenes: Annotated[int, Field(ge=1)] = 200, seed: int = 0) -> Corpus:
    """Scenes with one caption in each of six languages, English included, by each of two template "translators".

    Captions of one image by one translator are translations of each other. The tiny models were trained on English,
    German, French and Spanish, but not on Italian and Russian.
    """
    scenes = _scenes(n_scenes, seed)
    captions = (
        CaptionRow(f"{image.id}-{language}-{by}", image.id, translated(scene, language, by), 0, language, by)
        for language in LANGUAGES
        for by in TRANSLATORS
        for image, scene in scenes
    )
    return _corpus("shapes-multilingual", [image for image, _ in scenes], captions, seed)


def _corpus(
    name: str,
    images: Iterable[ImageRow],
    captions: Iterable[CaptionRow],
    seed: int,
    quadruples: Iterable[QuadrupleRow] = (),
    relevance: Iterable[RelevanceRow] = (),
) -> Corpus:
    return build_corpus(
        name,
        images,
        captions,
        source=RenderedImages(draw_scene, seed),
        quadruples=quadruples,
        relevance=relevance,
        licence=CORPORA[name].licence,
        origin="tasks/corpora/shapes/world.py: rendered scenes, held out from the training of the tiny models",
    )


def _true_of(captions: Iterable[CaptionRow], scenes: Iterable[tuple[ImageRow, Scene]]) -> Iterator[RelevanceRow]:
    """The ground truth ``scene``: every caption with each of the scenes that it is true of, in both directions."""
    meaning_of: dict[tuple[str | None, str | None], Hashable] = {}
    images_of: dict[Hashable, list[str]] = {}
    for image, scene in scenes:
        for text, meaning in zip(wordings(scene), meanings(scene), strict=True):
            meaning_of[image.id, text] = meaning
        for meaning in dict.fromkeys(meanings(scene)):
            images_of.setdefault(meaning, []).append(image.id)
    for caption in captions:
        for image_id in images_of[meaning_of[caption.image_id, caption.text]]:
            yield RelevanceRow(SCENE, "t2i", caption.id, image_id)
            yield RelevanceRow(SCENE, "i2t", image_id, caption.id)


def _scenes(n_scenes: int, seed: int) -> list[tuple[ImageRow, Scene]]:
    scenes = enumerate(held_out_scenes(n_scenes, seed))
    return [(_image_row(f"scene-{number:05d}", scene, number), scene) for number, scene in scenes]


def _image_row(name: str, scene: Scene, serial: int) -> ImageRow:
    return ImageRow(name, f"{scene.key}.{serial}.png", objects=(scene.first.shape, scene.second.shape))
