"""Results for parts of the queries, by their content: from captions, lexicons and annotations.

The features of captions, the objects in the image, tags, properties of judged queries, and labels of images.

Lexicons are the words and rules that show the topic of a caption. English only. A word matches as a whole word
(``one`` is not in ``someone``), in any case; a hyphen counts as a space, a punctuation mark as a word. Precision and
recall on hand-labelled captions are in ``tests/golden/README.md``; a test requires 0.95.

In the files a *phrase* is words joined by ``_``, with ``{left,right}`` for alternatives. A *rule* accepts a word by
its neighbours: ``after`` and ``not_after`` refer to the word before it, ``before`` and ``not_before`` to the next one
(``before`` to the next ``reach`` words). There ``*ed`` means any word with that ending, ``#`` any whole number below
100, ``.`` the end of the text or any punctuation mark, ``^`` the start of the text.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.schema import LABEL
from capim.store.types import Corpus
from capim.tasks.analyses.analysis import AnalysisInput, QueryValues, Slice, contrast_slices, mean_slices, part_slices
from capim.tasks.corpora.readers.coco_captions import SUPERCATEGORY_OF
from capim.tasks.metrics import METRICS
from capim.tasks.metrics.compositional import WINOGROUND
from capim.tasks.metrics.table import headline_of
from capim.tasks.ranking.layout import layout_of

FEATURES = ("spatial", "colour", "counting", "negation", "action")
CONFUSIONS = 10  # classes that an encoder mistakes for others, those with most images
LENGTHS = {"1-8": (1, 8), "9-10": (9, 10), "11-12": (11, 12), "13-15": (13, 15), "16+": (16, np.inf)}  # words

N_RELEVANT = {"1": (1, 1), "2-3": (2, 3), "4-9": (4, 9), "10 or more": (10, np.inf)}
PAGES = {"page 1": (0, 1), "pages 2-5": (2, 5), "pages 6-20": (6, 20), "from page 21": (21, np.inf)}


def complexity(data: AnalysisInput) -> Iterator[Slice]:
    """Yield the metric with and without each feature, inside and outside each range of lengths, and by position.

    For English captions as queries: the lexicons are English.
    """
    ords = data.queries.query_ords
    english = english_captions(data.corpus)[ords]
    every: list[Any] = data.corpus.captions["text"].take(ords).to_pylist()
    texts = [text if known else "" for text, known in zip(every, english, strict=True)]
    yield from contrast_slices(data, "complexity", caption_features(texts), among=english)
    n_words = np.array([content_of(text).n_words for text in texts])
    lengths = {f"{name} words": (n_words >= low) & (n_words <= high) for name, (low, high) in LENGTHS.items()}
    yield from contrast_slices(data, "length", lengths, among=english)
    ordinals = data.corpus.captions["ordinal"].take(ords).to_numpy()
    positions = {f"caption {ordinal}": ordinals == ordinal for ordinal in np.unique(ordinals).tolist()}
    yield from contrast_slices(data, "ordinal", positions, among=english)


def caption_features(texts: Sequence[str]) -> dict[str, NDArray[np.bool_]]:
    """Return feature -> mask of the captions that have it, shape ``(n_captions,)``.

    Examples:
        >>> features = caption_features(["a red bus next to a tree", "two men", "nothing here"])
        >>> {name: has.tolist() for name, has in features.items()}["spatial"]
        [True, False, False]
    """
    has = np.array([content_of(text).features for text in texts], dtype=bool).reshape(-1, len(FEATURES))
    return dict(zip(FEATURES, has.T, strict=True))


class Content(NamedTuple):
    """Features (:data:`FEATURES`) of an English caption, the COCO categories that it names, and its number of words."""

    features: tuple[bool, ...]
    objects: frozenset[str]
    n_words: int


@lru_cache(maxsize=1 << 18)
def content_of(text: str) -> Content:
    """Return the findings of the lexicons in an English caption; cached for all analyses, protocols and encoders.

    Examples:
        >>> sorted(content_of("Two men eat hot dogs beside a parked motor bike").objects)
        ['hot dog', 'motorcycle', 'person']
        >>> content_of("Waiting at the bus stop in an orange coat").objects
        frozenset()
    """
    tokens = tokens_of(text)
    plain = [token.removesuffix("'s") for token in tokens]
    wanted, category_of = _vocabulary()
    named = (category_of[" ".join(plain[phrase])] for phrase in found_in(plain, wanted))
    features = tuple(bool(lexicon(name).matches(tokens)) for name in FEATURES)
    return Content(features, frozenset(filter(None, named)), sum(token[0].isalnum() for token in tokens))


def english_captions(corpus: Corpus) -> NDArray[np.bool_]:
    """Return a mask of the captions that are English and not empty, shape ``(n_captions,)``."""
    language, text = corpus.captions["language"], corpus.captions["text"]
    return np.asarray(pc.and_(pc.starts_with(pc.utf8_lower(language), "en"), pc.is_valid(text)))


def categories(data: AnalysisInput) -> Iterator[Slice]:
    """Yield the metric by COCO's 80 categories and 12 supercategories of the query's image.

    The categories are annotated if the corpus has annotations; otherwise they are inferred from the words of the
    captions, in a separate table (``category-inferred``).
    """
    corpus, image_of_query = data.corpus, data.queries.clusters
    if corpus.images["objects"].null_count < len(corpus.images):
        annotated = pc.is_valid(corpus.images["objects"]).to_numpy()[image_of_query]
        fine, coarse = _by_name(annotated_objects(corpus))
        parts = {(name, ""): has[image_of_query] & annotated for name, has in fine.items()}
        yield from part_slices(data, "category", parts, metric=data.metric)
        contrasts = {name: has[image_of_query] for name, has in coarse.items()}
        yield from contrast_slices(data, "supercategory", contrasts, among=annotated)
        return
    inferred, known = inferred_objects(corpus)
    contrasts = {name: has[image_of_query] for name, has in _by_name(inferred)[1].items()}
    yield from contrast_slices(data, "category-inferred", contrasts, among=known[image_of_query])


def annotated_objects(corpus: Corpus) -> list[frozenset[str]]:
    """Return the annotated categories of every image; empty for images without annotations."""
    return [frozenset(objects or ()) for objects in corpus.images["objects"].to_pylist()]


def inferred_objects(corpus: Corpus) -> tuple[list[set[str]], NDArray[np.bool_]]:
    """Return the categories named in English captions of every image, and a mask of the images with such a caption."""
    named: list[set[str]] = [set() for _ in range(len(corpus.images))]
    known = np.zeros(len(named), dtype=bool)
    image_of = layout_of(corpus).caption_images
    texts: list[Any] = corpus.captions["text"].to_pylist()
    for caption in np.flatnonzero(english_captions(corpus) & (image_of >= 0)).tolist():
        known[image_of[caption]] = True
        named[image_of[caption]] |= content_of(texts[caption]).objects
    return named, known


def _by_name(objects: Sequence[Iterable[str]]) -> tuple[dict[str, NDArray[np.bool_]], dict[str, NDArray[np.bool_]]]:
    """Return category -> mask of the images that have it, and the same for supercategories; both in COCO's order."""
    order = {category: at for at, category in enumerate(SUPERCATEGORY_OF)}
    names = sorted({name for each in objects for name in each}, key=lambda name: (order.get(name, len(order)), name))
    fine = {name: np.array([name in each for each in objects]) for name in names}
    coarse: dict[str, NDArray[np.bool_]] = {}
    for name, has in fine.items():
        if name in SUPERCATEGORY_OF:
            group = SUPERCATEGORY_OF[name]
            coarse[group] = coarse.get(group, np.zeros(len(objects), dtype=bool)) | has
    return fine, coarse


@cache
def _vocabulary() -> tuple[Phrases, dict[str, str | None]]:
    """Return all words, and the category of each word (None: no category)."""
    entry = read_lexicon_file("coco_objects")
    category_of: dict[str, str | None] = {
        form: category
        for category, words in entry["words"].items()
        for word in phrases(words)
        for form in (word, inflected(word)[0])  # the regular plural is formed like the third person of verbs
    }
    category_of |= dict.fromkeys(phrases(entry["other"]))
    return by_first_word(category_of), category_of


def tags(data: AnalysisInput) -> Iterator[Slice]:
    """Yield text, image and group score per tag, and the share of examples with a tie; or a custom metric per tag.

    The tags are those of the corpus: ``Object``, ``Relation``, ``Both`` of Winoground (Thrush et al. 2022), and those
    of "Why is Winoground Hard?" (Diwan et al. 2022) if its reader adds them.
    """
    tags_of: list[Any] = data.corpus.quadruples["tags"].take(data.queries.query_ords).to_pylist()
    names = sorted({tag for tags in tags_of for tag in tags})
    parts = {(tag, ""): np.array([tag in tags for tags in tags_of]) for tag in names}
    parts["no tag", ""] = np.array([not tags for tags in tags_of])
    for metric in (data.metric,) if data.metric.of_user else WINOGROUND:
        yield from part_slices(data, "tags", parts, metric=metric)
    if data.metric.of_user:
        return
    scored = {name: outcomes for name, outcomes in data.outcomes.items() if outcomes.scores is not None}
    ties = [QueryValues(name, "ties", outcomes.tied) for name, outcomes in scored.items()]
    yield from mean_slices(data, "tags", ties, metric="share of examples with a tie")


def judged_queries(data: AnalysisInput) -> Iterator[Slice]:
    """Yield the corpus' main metric over parts of the queries, except parts with all of them.

    "Where in the document" is the first of the pages with the highest grade, for corpora that number their pages.
    """
    [figure] = headline_of([data.protocol])
    captions = data.corpus.captions.take(data.queries.query_ords)
    parts: dict[tuple[str, str], NDArray[np.bool_]] = {}
    languages = np.asarray(captions["language"].to_pylist(), dtype=object)
    parts |= {("language", name): languages == name for name in sorted(set(languages.tolist()))}
    types: list[list[str]] = [kinds or [] for kinds in captions["query_types"].to_pylist()]
    for name in sorted({kind for kinds in types for kind in kinds}):
        parts["kind of query", name] = np.array([name in kinds for kinds in types])
    for feature, numbers, ranges in (
        ("relevant documents", data.queries.n_relevant, N_RELEVANT),
        ("where in the document", _best_page(data), PAGES),  # NaN is in none
    ):
        parts |= {(feature, name): (numbers >= low) & (numbers <= high) for name, (low, high) in ranges.items()}
    parts = {name: inside for name, inside in parts.items() if not inside.all()}
    yield from part_slices(data, "judged", parts, metric=METRICS[figure.metric])


def _best_page(data: AnalysisInput) -> NDArray[np.float64]:
    """Return the lowest page number among each query's documents with the highest grade; NaN if unknown."""
    numbers = np.array([np.nan if page is None else page for page in data.corpus.images["page"].to_pylist()], float)
    task, grades = data.task, data.task.grades
    if grades is None:
        return np.full(len(task.queries), np.nan)
    starts = task.offsets[:-1]
    best = grades == np.repeat(np.maximum.reduceat(grades, starts), task.n_relevant)
    pages = np.where(best, numbers[task.relevant_ords], np.inf)
    first = np.fmin.reduceat(pages, starts)
    return np.where(np.isfinite(first), first, np.nan)


def classes(data: AnalysisInput) -> Iterator[Slice]:
    """Yield the metric per class of the image, and each encoder's most frequent confusions between classes."""
    labels = _labels_of(data)
    names = sorted({label for of_query in labels for label in of_query})
    parts = {(name, ""): np.array([name in of_query for of_query in labels]) for name in names}
    yield from part_slices(data, "class", parts, metric=data.metric)
    groups = data.corpus.captions["query_group"].to_pylist()
    rows = []
    for encoder, outcomes, top_ords in data.with_lists():
        if outcomes.protocol.sides[1] != "caption":
            continue
        given = [groups[first] for first in top_ords[:, 0].tolist()]
        pairs = [
            (of_query[0], answer) if missed else None
            for of_query, answer, missed in zip(labels, given, outcomes.missed, strict=True)
        ]
        for pair, _ in Counter(filter(None, pairs)).most_common(CONFUSIONS):
            rows.append(QueryValues(encoder, pair[0], np.array([each == pair for each in pairs]), level_name=pair[1]))
    yield from mean_slices(data, "confusion", rows, metric="share of images", share=True)


def _labels_of(data: AnalysisInput) -> list[list[str]]:
    """Return the labels of the image of every query."""
    groups = dict(zip(*(data.corpus.captions[name].to_pylist() for name in ("id", "query_group")), strict=True))
    found: dict[str, list[str]] = {}
    for row in data.corpus.relevance.to_pylist():
        if row["ground_truth"] == LABEL:
            found.setdefault(row["query_id"], []).append(groups[row["item_id"]])
    return [found[query] for query in data.queries.query_ids]


# --- Lexicons: how they are read and matched.

_TOKEN = re.compile(r"[a-z0-9][a-z0-9']*|[^\sa-z0-9]")
_HYPHENS = re.compile(r"[-‐‑–—]+")
_ALTERNATIVES = re.compile(r"\{([^}]*)\}")
_E_DROPPED = re.compile(r"[^eo]e$")
_START = "^"


def tokens_of(text: str) -> list[str]:
    """Return words and punctuation marks, in lower case.

    Examples:
        >>> tokens_of("A man’s BLACK-and-white dog, asleep.")
        ['a', "man's", 'black', 'and', 'white', 'dog', ',', 'asleep', '.']
    """
    return _TOKEN.findall(_HYPHENS.sub(" ", text.lower().replace("’", "'")))


def phrases(text: str) -> Iterator[str]:
    """Yield the phrases of a space-separated list, with alternatives written out.

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
    """Return words and phrases in the form that :func:`found_in` searches for."""
    found: dict[str, list[list[str]]] = {}
    for phrase in sorted((each.split() for each in set(words)), key=len, reverse=True):
        found.setdefault(phrase[0], []).append(phrase)
    return found


def found_in(tokens: Sequence[str], wanted: Phrases) -> Iterator[slice]:
    """Yield the positions of phrases, from left to right; among those that begin at one token, the longest.

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
    """A word that shows the feature only next to certain words; the docstring of this file gives the notation."""

    word: str
    after: str = ""
    not_after: str = ""
    before: str = ""
    not_before: str = ""
    reach: int = 1

    def accepts(self, tokens: Sequence[str], at: int) -> bool:
        """True if the token at position ``at`` is the rule's word with neighbours that the rule accepts."""
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
        """Return the words and phrases that show the feature: the literal ones in the order of the text, then by rule.

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
        """Return a function from a token to the rules for this word."""
        return cache(lambda token: tuple(rule for rule in self.rules if _is_any(token, rule.word)))


@cache
def lexicon(name: str) -> Lexicon:
    """Return the lexicon of a feature: ``lexicons/NAME.toml``."""
    entry = read_lexicon_file(name)
    return Lexicon(
        literal=by_first_word([*phrases(entry["words"]), *_verb_forms(entry)]),
        rules=tuple(Rule(**rule) for rule in entry.get("rules", ())),
        ignore=by_first_word(phrases(entry.get("ignore", ""))),
    )


def read_lexicon_file(name: str) -> Mapping[str, Any]:
    """Return the content of ``lexicons/NAME.toml``."""
    return tomllib.loads(files("capim.tasks.analyses").joinpath("lexicons", f"{name}.toml").read_text(encoding="utf-8"))


def inflected(verb: str) -> list[str]:
    """Return the regular forms of an English verb: third person, past, ``-ing``.

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
    """Return all forms of the entry's verbs, except those that captions use as nouns or adjectives."""
    irregular: Mapping[str, str] = entry.get("irregular", {})
    forms: set[str] = set()
    for verb in entry.get("verbs", "").split():
        forms |= set(inflected(verb)) | set(irregular.get(verb, "").split())
    return forms - set(entry.get("not_verbs", "").split())


@cache
def _is_any(token: str, words: str) -> bool:
    """True if a token is one of some space-separated words or signs."""
    for word in words.split():
        if word == token or (word.startswith("*") and token.endswith(word[1:]) and token != word[1:]):
            return True
        if word == "#" and token.isdecimal() and 0 < int(token) < 100:
            return True
        if word == "." and token != _START and not token[0].isalnum():
            return True
    return False
