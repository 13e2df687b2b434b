"""The shapes world, and the four corpora of its scenes that the tiny models were not trained on.

A scene is two things (a size, a colour, a shape each) and a relation: the first is left of, or above, the second.
The four scenes that differ only by an exchange of places or colours form an *orbit*. Orbits are held out as a unit: a
model trained on all other scenes has seen neither a held-out scene nor any of its swaps. CLEVR (Johnson et al. 2017) is
a similar but richer world. No files are read: an image is rendered from its key when it is read, with the same bytes
every time.

A scene has eight English captions, which differ in the features that failure analysis slices by (places, colours,
counts, actions, negation and length), and two in each of six languages; all words, and the grammar of these, are in
``shapes.toml``.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cache
from itertools import product
from math import cos, pi, sin
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from PIL import Image, ImageDraw
from pydantic import Field

from capim.store.schema import LABEL
from capim.store.types import Corpus
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.build import CaptionRow, ImageRow, QuadrupleRow, RelevanceRow, build_corpus
from capim.tasks.corpora.images.source import RenderedImages
from capim.tasks.corpora.readers.labels import prompts_of

_WORLD: Mapping[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
COLOURS: Mapping[str, list[int]] = _WORLD["colours"]
SHAPES = ("circle", "square", "triangle", "star", "cross")
SIZES = ("small", "large")
RELATIONS = ("left", "above")
SIDE = 64  # pixels
HELD_OUT_ORBITS = 300

_SPLIT_SEED = 20_260  # draws the held-out orbits: with another seed, the committed checkpoints were trained on some
_CENTRES = {"left": ((17, 32), (47, 32)), "above": ((32, 17), (32, 47))}
_RADII = {"small": (7.0, 8.0), "large": (12.0, 13.0)}
SCENE = "scene"  # name of the extra ground truth
LANGUAGES = ("en", "de", "fr", "es", "it", "ru")
TRANSLATORS = ("plain", "inverted")


def read_shapes(*, n_scenes: Annotated[int, Field(ge=1)] = 300, seed: int = 0) -> Corpus:
    """Return scenes with five English captions each, of eight wordings, and the shapes in them as objects.

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
    """Return Winoground-form quadruples, in which the two objects or, in turn, the two colours are exchanged.

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
    return _corpus("shapes-winoground", images, captions, seed, quadruples=quadruples)


def read_shapes_multilingual(*, n_scenes: Annotated[int, Field(ge=1)] = 200, seed: int = 0) -> Corpus:
    """Return scenes with one caption in each of six languages, English included, by each of two template "translators".

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


def read_shapes_labels(*, n_scenes: Annotated[int, Field(ge=20, le=900)] = 300, seed: int = 0) -> Corpus:
    """Return swaps of the scenes of ``shapes``, labelled by their two colours: 15 classes of three prompts.

    One in twenty scenes occurs three times: with the same bytes, and drawn again (``-copy``, ``-again``); and
    one further image is an image of ``shapes``.
    """
    drawn = _scenes(HELD_OUT_ORBITS + n_scenes, seed)
    labelled = drawn[HELD_OUT_ORBITS:] + drawn[: n_scenes // 20]
    for image, scene in labelled[:n_scenes:20]:
        again = _image_row(f"{image.id}-again", scene, len(drawn) + len(labelled))
        labelled += [(image._replace(id=f"{image.id}-copy"), scene), (again, scene)]
    labels = {image.id: "_and_a_".join(sorted((of.first.colour, of.second.colour))) for image, of in labelled}
    prompts = prompts_of(sorted({*labels.values()}), _WORLD["prompts"], {}, "en")
    relevance = [RelevanceRow(LABEL, "i2t", image, f"{label}#0") for image, label in labels.items()]
    return _corpus("shapes-labels", [image for image, _ in labelled], prompts, seed, relevance=relevance)


def _corpus(name: str, images: Iterable[ImageRow], captions: Iterable[CaptionRow], seed: int, **more: Any) -> Corpus:
    return build_corpus(
        name,
        images,
        captions,
        source=RenderedImages(draw_scene, seed),
        licence=CORPORA[name].licence,
        origin="tasks/corpora/readers/shapes.py: rendered scenes, held out from the training of the tiny models",
        **more,
    )


def _true_of(captions: Iterable[CaptionRow], scenes: Iterable[tuple[ImageRow, Scene]]) -> Iterator[RelevanceRow]:
    """Yield the ground truth ``scene``: every caption with each scene that it is true of, in both directions."""
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


class Thing(NamedTuple):
    """One shape of a scene."""

    size: str
    colour: str
    shape: str


class Scene(NamedTuple):
    """Two things; ``relation`` is the place of the first as seen from the second: ``left`` or ``above``."""

    first: Thing
    relation: str
    second: Thing

    def swap_objects(self) -> Scene:
        """Return the scene with the places of the two things exchanged."""
        return Scene(self.second, self.relation, self.first)

    def swap_colours(self) -> Scene:
        """Return the scene with the two colours exchanged."""
        return Scene(
            self.first._replace(colour=self.second.colour),
            self.relation,
            self.second._replace(colour=self.first.colour),
        )

    def orbit(self) -> tuple[Scene, Scene, Scene, Scene]:
        """Return the scene, its object swap, its colour swap, and both swaps together."""
        return self, self.swap_objects(), self.swap_colours(), self.swap_objects().swap_colours()

    @property
    def key(self) -> str:
        """The scene as one word, e.g. ``small-red-circle_left_large-blue-square``; :func:`parse_scene` reads it."""
        return "_".join(("-".join(self.first), self.relation, "-".join(self.second)))


def parse_scene(key: str) -> Scene:
    """Return the scene of a :attr:`Scene.key`.

    Raises:
        ValueError: The key names no scene of this world.

    Examples:
        >>> parse_scene("small-red-circle_left_large-blue-square").second
        Thing(size='large', colour='blue', shape='square')
    """
    match key.split("_"):
        case [first, relation, second] if relation in RELATIONS:
            things = [Thing(*parts) for part in (first, second) if len(parts := part.split("-")) == 3]
            if len(things) == 2 and all(t.size in SIZES and t.colour in COLOURS and t.shape in SHAPES for t in things):
                return Scene(things[0], relation, things[1])
    raise ValueError(f"{key!r} names no scene; expected size-colour-shape_relation_size-colour-shape")


@cache
def scenes() -> tuple[Scene, ...]:
    """Return all 6,960 scenes of two things that differ in colour or shape, in a fixed order."""
    things = [Thing(*parts) for parts in product(SIZES, COLOURS, SHAPES)]
    return tuple(Scene(a, relation, b) for a in things for b in things if a[1:] != b[1:] for relation in RELATIONS)


@cache
def held_out_orbits() -> tuple[tuple[Scene, Scene, Scene, Scene], ...]:
    """Return the 300 orbits that no tiny model was trained on, out of 1,200 with different colours and shapes."""
    orbits = [
        orbit
        for scene in scenes()
        if scene.first.colour != scene.second.colour
        and scene.first.shape != scene.second.shape
        and scene == min(orbit := scene.orbit())
    ]
    random.Random(_SPLIT_SEED).shuffle(orbits)
    return tuple(orbits[:HELD_OUT_ORBITS])


def held_out_scenes(n: int, seed: int) -> list[Scene]:
    """Return ``n`` held-out scenes in an order drawn from ``seed``.

    The first 300 come from 300 different orbits, so that no scene is a swap of another; the next 900 are their
    swaps; after 1,200 the scenes come again, as other drawings with the same captions.
    """
    rng = random.Random(seed)
    orbits = [rng.sample(orbit, len(orbit)) for orbit in held_out_orbits()]
    rng.shuffle(orbits)
    return [orbits[i % HELD_OUT_ORBITS][i // HELD_OUT_ORBITS % 4] for i in range(n)]


def render(scene: Scene, rng: random.Random) -> Image.Image:
    """Return the scene as an RGB image; places, sizes, colours and background vary a little with ``rng``."""
    grey = rng.randint(225, 255)
    image = Image.new("RGB", (SIDE, SIDE), (grey, grey, grey))
    draw = ImageDraw.Draw(image)
    for thing, (x, y) in zip((scene.first, scene.second), _CENTRES[scene.relation], strict=True):
        centre = (x + rng.uniform(-3, 3), y + rng.uniform(-3, 3))
        radius = rng.uniform(*_RADII[thing.size])
        red, green, blue = (max(0, min(255, part + rng.randint(-15, 15))) for part in COLOURS[thing.colour])
        _draw_shape(draw, thing.shape, centre, radius, (red, green, blue))
    return image


def _draw_shape(
    draw: ImageDraw.ImageDraw, shape: str, centre: tuple[float, float], radius: float, colour: tuple[int, int, int]
) -> None:
    x, y = centre
    if shape == "circle":
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)
    elif shape == "square":
        half = 0.85 * radius
        draw.rectangle((x - half, y - half, x + half, y + half), fill=colour)
    elif shape == "triangle":
        draw.polygon([(x, y - radius), (x - radius, y + 0.8 * radius), (x + radius, y + 0.8 * radius)], fill=colour)
    elif shape == "star":
        reach = [radius if corner % 2 == 0 else 0.42 * radius for corner in range(10)]
        draw.polygon(
            [(x + r * sin(corner * pi / 5), y - r * cos(corner * pi / 5)) for corner, r in enumerate(reach)],
            fill=colour,
        )
    else:
        arm = 0.36 * radius
        draw.rectangle((x - radius, y - arm, x + radius, y + arm), fill=colour)
        draw.rectangle((x - arm, y - radius, x + arm, y + radius), fill=colour)


def wordings(scene: Scene) -> list[str]:
    """Return the eight English captions of a scene, in the order of ``shapes.toml``.

    Examples:
        >>> for caption in wordings(parse_scene("small-red-circle_left_large-blue-square")):
        ...     print(caption)
        a small red circle left of a large blue square
        there is a large blue square right of a small red circle
        two shapes: a small red circle, and right of it a large blue square
        a picture of a small red circle and a large blue square
        a small circle to the left of a large square
        we see a large blue square and a small red circle, the small red circle is to the left of the large blue square
        one small red circle stands to the left of one large blue square
        a small red circle left of a large blue square and no triangle
    """
    first, second = scene.first, scene.second
    present = {first.shape, second.shape}
    slots = {
        "x": f"a {' '.join(first)}",
        "y": f"a {' '.join(second)}",
        "u": " ".join(first),
        "v": " ".join(second),
        "s": f"a {first.size} {first.shape}",
        "t": f"a {second.size} {second.shape}",
        "absent": next(shape for shape in SHAPES if shape not in present),
        **_WORLD["relations"][scene.relation],
    }
    return [wording.format_map(slots) for wording in _WORLD["wordings"].values()]


def meanings(scene: Scene) -> list[Hashable]:
    """Return what each of the eight captions states: it is true of the scenes with an equal meaning, and of no others.

    Two wordings leave something out: "a picture of … and …" the places, "a small circle over …" the colours.

    Examples:
        >>> scene = parse_scene("small-red-circle_left_large-blue-square")
        >>> [a == b for a, b in zip(meanings(scene), meanings(scene.swap_objects()), strict=True)]
        [False, False, False, True, False, False, False, False]
    """
    first, second = (thing._replace(colour="") for thing in (scene.first, scene.second))
    stated: dict[str, Hashable] = dict.fromkeys(_WORLD["wordings"], scene)
    stated["unplaced"] = frozenset({scene.first, scene.second})
    stated["uncoloured"] = Scene(first, scene.relation, second)
    return list(stated.values())


def translated(scene: Scene, language: str, translator: str) -> str:
    """Return the caption of a scene in one of ``LANGUAGES``, by the templates of one of ``TRANSLATORS``.

    Examples:
        >>> scene = parse_scene("small-red-circle_left_large-blue-star")
        >>> translated(scene, "de", "plain")
        'ein kleiner roter Kreis links von einem großen blauen Stern'
        >>> translated(scene, "fr", "inverted")
        "une grande étoile bleue à droite d'un petit cercle rouge"
    """
    templates: Mapping[str, str] = _WORLD[language][translator]
    slots = {"x": _NounPhrase(scene.first, language), "y": _NounPhrase(scene.second, language)}
    return templates[scene.relation].format_map(slots)


def five_wordings(scene: Scene, turn: int) -> list[str]:
    """Return five of the eight wordings: always the first, then four of the other seven in rotation.

    Examples:
        >>> scene = parse_scene("small-red-circle_left_large-blue-square")
        >>> [wordings(scene).index(caption) for caption in five_wordings(scene, 5)]
        [0, 6, 7, 1, 2]
    """
    all_wordings = wordings(scene)
    return [all_wordings[0], *(all_wordings[1 + (turn + step) % 7] for step in range(4))]


class _NounPhrase:
    """A thing in one language; formatting it with a case, as in ``{y:dative}``, inflects it."""

    def __init__(self, thing: Thing, language: str) -> None:
        self._thing = thing
        self._grammar = _WORLD[language]

    def __format__(self, case: str) -> str:
        cases = self._grammar["cases"].split()
        column = cases.index(case) if case else 0
        gender, *nouns = self._grammar["shapes"][self._thing.shape].split()
        row = self._grammar["genders"].split().index(gender)
        kinds = {"size": self._thing.size, "colour": self._thing.colour, "article": "article"}
        return " ".join(
            nouns[column] if kind == "shape" else self._grammar["words"][kinds[kind]].split(" / ")[column].split()[row]
            for kind in self._grammar["order"].split()
        )


def draw_scene(key: str, rng: random.Random) -> Image.Image:
    """Return the scene of a key, ``…_…_….<serial>``."""
    return render(parse_scene(key.partition(".")[0]), rng)
