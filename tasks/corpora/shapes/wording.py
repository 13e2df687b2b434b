"""Captions of scenes of the shapes world: eight English wordings, and two wordings in each of six languages.

The English wordings differ in the features that failure analysis slices by: places, colours, counts, actions, negation
and length. The words and the grammar of all languages are in ``languages.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Hashable, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from capim.tasks.corpora.shapes.world import SHAPES, Scene, Thing

LANGUAGES = ("en", "de", "fr", "es", "it", "ru")
TRANSLATORS = ("plain", "inverted")

# {x} {y}: the two things; {u} {v}: the same without article; {s} {t}: without colour; {absent}: a shape not there;
# {of} {on} {rev}: where the first is ("left of", "to the left of"), and where the second is
WORDINGS: tuple[str, ...] = (
    "{x} {of} {y}",
    "there is {y} {rev} {x}",
    "two shapes: {x}, and {rev} it {y}",
    "a picture of {x} and {y}",
    "{s} {on} {t}",
    "we see {y} and {x}, the {u} is {on} the {v}",
    "one {u} stands {on} one {v}",
    "{x} {of} {y} and no {absent}",
)
_ENGLISH_RELATIONS = {
    "left": {"of": "left of", "on": "to the left of", "rev": "right of"},
    "above": {"of": "above", "on": "over", "rev": "below"},
}


def wordings(scene: Scene) -> list[str]:
    """The eight English captions of a scene, in the order of ``WORDINGS``.

    Examples:
        >>> from capim.tasks.corpora.shapes.world import parse_scene
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
        **_ENGLISH_RELATIONS[scene.relation],
    }
    return [wording.format_map(slots) for wording in WORDINGS]


def meanings(scene: Scene) -> list[Hashable]:
    """What each of the eight captions states: it is true of the scenes with an equal meaning, and of no others.

    Two wordings leave something out: "a picture of … and …" the places, "a small circle over …" the colours.

    Examples:
        >>> from capim.tasks.corpora.shapes.world import parse_scene
        >>> scene = parse_scene("small-red-circle_left_large-blue-square")
        >>> [a == b for a, b in zip(meanings(scene), meanings(scene.swap_objects()), strict=True)]
        [False, False, False, True, False, False, False, False]
    """
    stated: list[Hashable] = [scene] * len(WORDINGS)
    stated[WORDINGS.index("a picture of {x} and {y}")] = frozenset({scene.first, scene.second})
    uncoloured = [thing._replace(colour="") for thing in (scene.first, scene.second)]
    stated[WORDINGS.index("{s} {on} {t}")] = Scene(uncoloured[0], scene.relation, uncoloured[1])
    return stated


def translated(scene: Scene, language: str, translator: str) -> str:
    """The caption of a scene in one of ``LANGUAGES``, by the templates of one of ``TRANSLATORS``.

    Examples:
        >>> from capim.tasks.corpora.shapes.world import parse_scene
        >>> scene = parse_scene("small-red-circle_left_large-blue-star")
        >>> translated(scene, "de", "plain")
        'ein kleiner roter Kreis links von einem großen blauen Stern'
        >>> translated(scene, "fr", "inverted")
        "une grande étoile bleue à droite d'un petit cercle rouge"
    """
    templates: Mapping[str, str] = _languages()[language][translator]
    slots = {"x": _NounPhrase(scene.first, language), "y": _NounPhrase(scene.second, language)}
    return templates[scene.relation].format_map(slots)


def five_wordings(scene: Scene, turn: int) -> list[str]:
    """Five of the eight wordings: always the first, then four of the other seven in rotation.

    Examples:
        >>> from capim.tasks.corpora.shapes.world import parse_scene
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
        self._grammar = _languages()[language]

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


@cache
def _languages() -> Mapping[str, Any]:
    text = files("capim.tasks.corpora.shapes").joinpath("languages.toml").read_text(encoding="utf-8")
    return MappingProxyType(tomllib.loads(text))
