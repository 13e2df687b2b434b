"""Three corpora of the shapes world: retrieval, Winoground form, six languages. All from scenes no model has seen.

Nothing is read from disk: an image is drawn from its key when it is asked for, the same bytes every time.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from dataclasses import dataclass

from store.errors import RequestError
from store.types import Corpus
from tasks.corpora.build import CaptionRow, ImageRow, QuadrupleRow, build_corpus
from tasks.corpora.shapes.wording import LANGUAGES, TRANSLATORS, five_wordings, translated, wordings
from tasks.corpora.shapes.world import HELD_OUT_ORBITS, Scene, held_out_scenes, parse_scene, render

_LICENCE = "Apache-2.0"
_ORIGIN = "tasks/corpora/shapes/world.py: synthetic scenes, drawn on the fly; held out from the tiny models' training"


@dataclass(frozen=True)
class Rendered:
    """Draws the scene that a key names, ``…_…_….<serial>.png``; what may vary is drawn from seed and key."""

    seed: int

    def read(self, key: str) -> bytes:
        """The PNG of one scene.

        Raises:
            FileNotFoundError: The key names no scene.
        """
        scene, _, _serial = key.removesuffix(".png").partition(".")
        try:
            image = render(parse_scene(scene), random.Random(f"{self.seed}/{key}"))
        except ValueError as error:
            raise FileNotFoundError(str(error)) from error
        buffer = io.BytesIO()
        image.save(buffer, format="PNG")
        return buffer.getvalue()


def read_shapes(*, n_scenes: int = 300, seed: int = 0) -> Corpus:
    """Scenes with five English captions each, of eight wordings, and the shapes in them as objects.

    The captions differ in what they say (places, colours, counts, an action, what is absent) and in length. Up to
    300 scenes no two are swaps of one another; from 1,201 on, captions repeat.

    Raises:
        RequestError: Fewer than one scene.
    """
    scenes = _numbered_scenes(n_scenes, seed)
    captions = (
        CaptionRow(f"{image.id}-{ordinal}", image.id, text, ordinal)
        for turn, (image, scene) in enumerate(scenes)
        for ordinal, text in enumerate(five_wordings(scene, turn))
    )
    images = [image for image, _ in scenes]
    return build_corpus("shapes", images, captions, source=Rendered(seed), licence=_LICENCE, origin=_ORIGIN)


def read_shapes_winoground(*, n_quadruples: int = 300, seed: int = 0) -> Corpus:
    """Winoground-form quadruples: in turn the two objects or the two colours change places.

    The tags are ``object`` and ``attribute``. Both captions of a quadruple have the same words; no image is in two
    quadruples, so that they are independent.

    Raises:
        RequestError: Fewer than 1 or more than 300 quadruples.
    """
    if not 1 <= n_quadruples <= HELD_OUT_ORBITS:
        raise RequestError(
            f"corpus 'shapes-winoground': n_quadruples must be 1 to {HELD_OUT_ORBITS}, got {n_quadruples}"
        )
    images, captions, quadruples = [], [], []
    for number, scene in enumerate(held_out_scenes(n_quadruples, seed)):
        tag, swapped = ("object", scene.swap_objects()) if number % 2 == 0 else ("attribute", scene.swap_colours())
        name = f"quadruple-{number:04d}"
        for place, member in enumerate((scene, swapped)):
            images.append(_image_row(f"{name}-{place}", member, serial=number))
            captions.append(CaptionRow(f"{name}-{place}-0", f"{name}-{place}", wordings(member)[0]))
        quadruples.append(QuadrupleRow(name, f"{name}-0", f"{name}-1", f"{name}-0-0", f"{name}-1-0", (tag,)))
    return build_corpus(
        "shapes-winoground",
        images,
        captions,
        source=Rendered(seed),
        quadruples=quadruples,
        licence=_LICENCE,
        origin=_ORIGIN,
    )


def read_shapes_multilingual(*, n_scenes: int = 200, seed: int = 0) -> Corpus:
    """Scenes with one caption in each of six languages by each of two template "translators", English among them.

    The caption of an image in one language corresponds to the one with the same image, ordinal and translator in
    English. The tiny models know English, German, French and Spanish, and have never met Italian or Russian.

    Raises:
        RequestError: Fewer than one scene.
    """
    scenes = _numbered_scenes(n_scenes, seed)
    captions = (
        CaptionRow(f"{image.id}-{language}-{by}", image.id, translated(scene, language, by), 0, language, by)
        for language in LANGUAGES
        for by in TRANSLATORS
        for image, scene in scenes
    )
    images = [image for image, _ in scenes]
    return build_corpus(
        "shapes-multilingual", images, captions, source=Rendered(seed), licence=_LICENCE, origin=_ORIGIN
    )


def _numbered_scenes(n_scenes: int, seed: int) -> list[tuple[ImageRow, Scene]]:
    if n_scenes < 1:
        raise RequestError(f"a shapes corpus needs at least one scene, got n_scenes={n_scenes}")
    return list(_rows(held_out_scenes(n_scenes, seed)))


def _rows(scenes: list[Scene]) -> Iterator[tuple[ImageRow, Scene]]:
    for number, scene in enumerate(scenes):
        yield _image_row(f"scene-{number:05d}", scene, serial=number), scene


def _image_row(name: str, scene: Scene, *, serial: int) -> ImageRow:
    return ImageRow(name, f"{scene.key}.{serial}.png", objects=(scene.first.shape, scene.second.shape))
