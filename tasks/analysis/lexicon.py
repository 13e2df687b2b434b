"""What a caption speaks of, told by words: lexicons are data files, this is how they are matched.

English only. A word matches as a word (``one`` is not in ``someone``, ``red`` not in ``covered``), in any case; a
hyphen counts as a space. Precision and recall on 200 captions labelled by hand stand in
``tests/golden/README.md``; a test holds them at 0.95.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

_SPACES = re.compile(r"[\s\-‐‑–—]+")
_E_DROPPED = re.compile(r"[^eo]e$")


@dataclass(frozen=True, kw_only=True)
class Lexicon:
    """Words, phrases and patterns that show one feature of a caption.

    Attributes:
        name: Of the feature and of its file, e.g. ``spatial``.
        title: The feature as the end of "the caption …".
        sources: Where the words come from.
        shows: Matches a normalised text that has the feature.
        ignore: What is blanked first: the same words in another sense ("half past", "pair of scissors").
    """

    name: str
    title: str
    sources: tuple[str, ...]
    shows: re.Pattern[str]
    ignore: re.Pattern[str] | None

    def found(self, text: str) -> list[str]:
        """The words and phrases that show the feature, in the order of the text.

        Examples:
            >>> lexicon("counting").found("Someone with two dogs, one cat and a pair of scissors")
            ['two', 'one cat']
            >>> lexicon("colour").found("An orange bird covered in red berries eats an orange.")
            ['orange', 'red']
        """
        return [match.group().strip() for match in self.shows.finditer(self._clean(text))]

    def in_text(self, text: str) -> bool:
        """Whether the caption has the feature."""
        return self.shows.search(self._clean(text)) is not None

    def _clean(self, text: str) -> str:
        clean = normalised(text)
        return clean if self.ignore is None else self.ignore.sub(" ; ", clean)


def normalised(text: str) -> str:
    """Lower case, straight apostrophes, single spaces, no hyphens, a space on either side.

    Examples:
        >>> normalised("A man’s BLACK-and-white dog")
        " a man's black and white dog "
    """
    return f" {_SPACES.sub(' ', text.lower().replace('’', chr(39))).strip()} "


@cache
def lexicon(name: str) -> Lexicon:
    """The lexicon of one file of ``tasks/analysis/lexicons``."""
    entry = tomllib.loads(files("tasks.analysis").joinpath("lexicons", f"{name}.toml").read_text(encoding="utf-8"))
    words = set(entry.get("words", "").split()) | set(_verb_forms(entry))
    literal = [*words, *entry.get("phrases", ())]
    alternatives = sorted((re.escape(each) for each in literal), key=len, reverse=True)
    patterns = [rf"\b(?:{'|'.join(alternatives)})\b", *entry.get("patterns", ())]
    ignore = entry.get("ignore", ())
    return Lexicon(
        name=name,
        title=entry["title"],
        sources=tuple(entry["sources"]),
        shows=re.compile("|".join(patterns)),
        ignore=re.compile("|".join(ignore)) if ignore else None,
    )


def _verb_forms(entry: Mapping[str, Any]) -> Iterable[str]:
    """All forms of the entry's verbs, less those that captions use as nouns or adjectives."""
    irregular: Mapping[str, str] = entry.get("irregular", {})
    forms: set[str] = set()
    for verb in entry.get("verbs", "").split():
        forms |= set(inflected(verb)) | set(irregular.get(verb, "").split())
    return forms - set(entry.get("not_verbs", {}).get("words", "").split())


def inflected(verb: str) -> list[str]:
    """The regular forms of an English verb: third person, past, ``-ing``.

    Examples:
        >>> inflected("ride"), inflected("catch"), inflected("carry")
        (['rides', 'rided', 'riding'], ['catches', 'catched', 'catching'], ['carries', 'carried', 'carrying'])
    """
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return [f"{verb[:-1]}ies", f"{verb[:-1]}ied", f"{verb}ing"]
    if _E_DROPPED.search(verb):
        return [f"{verb}s", f"{verb}d", f"{verb[:-1]}ing"]
    third = f"{verb}es" if verb.endswith(("s", "x", "z", "ch", "sh")) else f"{verb}s"
    return [third, f"{verb}ed", f"{verb}ing"]
