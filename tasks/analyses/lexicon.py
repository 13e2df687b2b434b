"""Lexicons: the words and rules that show what a caption is about, how they are read and matched. English only.

A word matches as a whole word (``one`` is not in ``someone``), in any case; a hyphen counts as a space, a punctuation
mark as a word. Precision and recall on hand-labelled captions are in ``tests/golden/README.md``; a test requires 0.95.

In the files a *phrase* is words joined by ``_``, with ``{left,right}`` for alternatives. A *rule* accepts a word by
its neighbours: ``after`` and ``not_after`` look at the word before it, ``before`` and ``not_before`` at the next one
(``before`` at the next ``reach`` words). There ``*ed`` stands for any word with that ending, ``#`` for any whole number
below 100, ``.`` for the end of the text or any punctuation mark, ``^`` for the start of the text.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from itertools import product
from typing import Any, TypeAlias

_TOKEN = re.compile(r"[a-z0-9][a-z0-9']*|[^\sa-z0-9]")
_HYPHENS = re.compile(r"[-‐‑–—]+")
_ALTERNATIVES = re.compile(r"\{([^}]*)\}")
_E_DROPPED = re.compile(r"[^eo]e$")
_START = "^"


def tokens_of(text: str) -> list[str]:
    """Words and punctuation marks, in lower case.

    Examples:
        >>> tokens_of("A man’s BLACK-and-white dog, asleep.")
        ['a', "man's", 'black', 'and', 'white', 'dog', ',', 'asleep', '.']
    """
    return _TOKEN.findall(_HYPHENS.sub(" ", text.lower().replace("’", "'")))


def words_of(text: str) -> list[str]:
    """The words alone.

    Examples:
        >>> words_of("A cat, and 2 dogs!")
        ['a', 'cat', 'and', '2', 'dogs']
    """
    return [token for token in tokens_of(text) if token[0].isalnum()]


def phrases(text: str) -> Iterator[str]:
    """The phrases of a space-separated list, alternatives written out.

    Examples:
        >>> list(phrases("next_to on_the_{left,right}"))
        ['next to', 'on the left', 'on the right']
    """
    for phrase in text.split():
        parts = [part.split(",") if at % 2 else [part] for at, part in enumerate(_ALTERNATIVES.split(phrase))]
        for chosen in product(*parts):
            yield "".join(chosen).replace("_", " ")


Phrases: TypeAlias = Mapping[str, Sequence[Sequence[str]]]
"""First word -> the phrases that begin with it, word by word, the longest first."""


def by_first_word(words: Iterable[str]) -> Phrases:
    """Words and phrases as :func:`found_in` looks for them."""
    found: dict[str, list[list[str]]] = {}
    for phrase in sorted((each.split() for each in set(words)), key=len, reverse=True):
        found.setdefault(phrase[0], []).append(phrase)
    return found


def found_in(tokens: Sequence[str], wanted: Phrases) -> Iterator[slice]:
    """Where phrases stand, from left to right; of those that begin at one token, the longest.

    Examples:
        >>> list(found_in(["a", "hot", "dog"], by_first_word(["hot", "dog", "hot dog"])))
        [slice(1, 3, None)]
    """
    free = 0
    for at, token in enumerate(tokens):
        if token in wanted and at >= free:
            length = next((len(phrase) for phrase in wanted[token] if tokens[at : at + len(phrase)] == phrase), 0)
            if length:
                free = at + length
                yield slice(at, free)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A word that shows the feature only next to certain words; the module's docstring gives the notation."""

    word: str
    after: str = ""
    not_after: str = ""
    before: str = ""
    not_before: str = ""
    reach: int = 1

    def accepts(self, tokens: Sequence[str], at: int) -> bool:
        """Whether the token at position ``at`` is the rule's word with neighbours that the rule accepts."""
        if not _is_any(tokens[at], self.word):
            return False
        previous = tokens[at - 1] if at else _START
        following = [*tokens[at + 1 : at + 1 + self.reach], "."][: self.reach]
        return (
            (not self.after or _is_any(previous, self.after))
            and not _is_any(previous, self.not_after)
            and (not self.before or any(_is_any(token, self.before) for token in following))
            and not _is_any(following[0], self.not_before)
        )


@dataclass(frozen=True, kw_only=True)
class Lexicon:
    """Words, phrases and rules that show one feature of a caption.

    Attributes:
        literal: Words and phrases that always show it.
        rules: Words that show it next to certain words.
        ignore: Phrases that are removed first: the same words in another sense ("half past", "pair of scissors").
    """

    literal: Phrases
    rules: tuple[Rule, ...]
    ignore: Phrases

    def matches(self, tokens: Sequence[str]) -> list[str]:
        """The words and phrases that show the feature: the literal ones in the order of the text, then by rule.

        Examples:
            >>> lexicon("counting").matches(tokens_of("Someone with two dogs, one cat and a pair of scissors"))
            ['two', 'one']
            >>> lexicon("colour").matches(tokens_of("An orange bird covered in red berries eats an orange."))
            ['red', 'orange']
        """
        kept = [*tokens]
        for ignored in reversed([*found_in(tokens, self.ignore)]):
            kept[ignored] = [";"]
        by_rule = [token for at, token in enumerate(kept) if any(r.accepts(kept, at) for r in self._rules_of(token))]
        return [" ".join(kept[phrase]) for phrase in found_in(kept, self.literal)] + by_rule

    @cached_property
    def _rules_of(self) -> Callable[[str], tuple[Rule, ...]]:
        """The rules whose word a token is."""
        return cache(lambda token: tuple(rule for rule in self.rules if _is_any(token, rule.word)))


@cache
def lexicon(name: str) -> Lexicon:
    """The lexicon of a feature: ``lexicons/NAME.toml``."""
    entry = read_lexicon_file(name)
    return Lexicon(
        literal=by_first_word([*phrases(entry["words"]), *_verb_forms(entry)]),
        rules=tuple(Rule(**rule) for rule in entry.get("rules", ())),
        ignore=by_first_word(phrases(entry.get("ignore", ""))),
    )


def read_lexicon_file(name: str) -> Mapping[str, Any]:
    """The content of ``lexicons/NAME.toml``."""
    return tomllib.loads(files("capim.tasks.analyses").joinpath("lexicons", f"{name}.toml").read_text(encoding="utf-8"))


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


def _verb_forms(entry: Mapping[str, Any]) -> set[str]:
    """All forms of the entry's verbs, except those that captions use as nouns or adjectives."""
    irregular: Mapping[str, str] = entry.get("irregular", {})
    forms: set[str] = set()
    for verb in entry.get("verbs", "").split():
        forms |= set(inflected(verb)) | set(irregular.get(verb, "").split())
    return forms - set(entry.get("not_verbs", "").split())


@cache
def _is_any(token: str, words: str) -> bool:
    """Whether a token is one of some space-separated words or signs."""
    for word in words.split():
        if word == token or (word.startswith("*") and token.endswith(word[1:]) and token != word[1:]):
            return True
        if word == "#" and token.isdecimal() and 0 < int(token) < 100:
            return True
        if word == "." and token != _START and not token[0].isalnum():
            return True
    return False
