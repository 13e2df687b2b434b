"""What the picture shows: COCO's 80 categories and 12 supercategories, from annotations or from captions' words.

Annotations decide where a corpus has them. Where it has none, categories are inferred from captions and the rows say
so (``category-inferred``); where it has both, the agreement of the two is a row of its own, so that anyone can see
what inference is worth.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from store.types import Corpus
from tasks.corpora.readers.coco_categories import CATEGORIES_OF, SUPERCATEGORY_OF
from tasks.diagnosis.contrasts import contrast_slices, part_slices
from tasks.diagnosis.subject import Slice, Subject
from tasks.diagnosis.wording.complexity import english_captions
from tasks.diagnosis.wording.lexicon import any_of, phrases, read_lexicon_file, tokens_of
from tasks.statistics.bootstrap import Interval

METRIC = "R@1"


def categories(subject: Subject) -> Iterator[Slice]:
    """``R@1`` by category and supercategory of the query's image; inferred where nothing is annotated."""
    if subject.protocol.direction not in ("t2i", "i2t"):
        return
    corpus = subject.corpus
    image_of_query = subject.queries.clusters
    if corpus.images["objects"].null_count < len(corpus.images):
        annotated = pc.is_valid(corpus.images["objects"]).to_numpy()[image_of_query]
        fine, coarse = _by_name(annotated_objects(corpus))
        parts = {(name, ""): has[image_of_query] & annotated for name, has in fine.items()}
        yield from part_slices(subject, "category", parts, metric=METRIC)
        contrasts = {name: has[image_of_query] for name, has in coarse.items()}
        yield from contrast_slices(subject, "supercategory", contrasts, metric=METRIC, among=annotated)
        if subject.protocol.direction == "t2i":
            yield from agreement(subject)
        return
    inferred, known = inferred_objects(corpus)
    if known.any():
        _, coarse = _by_name(inferred)
        contrasts = {name: has[image_of_query] for name, has in coarse.items()}
        yield from contrast_slices(subject, "category-inferred", contrasts, metric=METRIC, among=known[image_of_query])


def agreement(subject: Subject) -> Iterator[Slice]:
    """How well inference finds the annotated supercategories: F1 over images, precision and recall beside it.

    The same for every encoder and direction; it stands under the first encoder, text to image. No interval: it is a
    fact of the corpus, not a sample.
    """
    scores = agreement_of(subject.corpus)
    for name, (precision, recall, f1, n_annotated) in scores.items():
        yield Slice(
            encoder=subject.encoders[0],
            analysis="agreement",
            feature=name,
            level_name="inferred against annotated",
            metric="F1",
            interval=Interval(value=f1, reason="a fact of the corpus: nothing was sampled"),
            n_queries=n_annotated,
            n_clusters=n_annotated,
            detail={"precision": precision, "recall": recall},
        )


def agreement_of(corpus: Corpus) -> dict[str, tuple[float, float, float, int]]:
    """Supercategory -> precision, recall, F1 of the categories inferred from an image's captions, and images with it.

    Over the images that are annotated and have an English caption. Empty where there are none, or no COCO category.
    """
    inferred, known = inferred_objects(corpus)
    both = known & pc.is_valid(corpus.images["objects"]).to_numpy()
    _, truth = _by_name(annotated_objects(corpus))
    _, guess = _by_name(inferred)
    nowhere = np.zeros(len(both), dtype=bool)
    found = {}
    for name in CATEGORIES_OF:
        true, guessed = truth.get(name, nowhere) & both, guess.get(name, nowhere) & both
        hits = int((true & guessed).sum())
        if true.any():
            precision = hits / max(1, int(guessed.sum()))
            recall = hits / int(true.sum())
            f1 = 2 * hits / int(true.sum() + guessed.sum())
            found[name] = (precision, recall, f1, int(true.sum()))
    return found


def annotated_objects(corpus: Corpus) -> list[frozenset[str]]:
    """The annotated categories of every image; empty where it is not annotated."""
    return [frozenset(objects or ()) for objects in corpus.images["objects"].to_pylist()]


def inferred_objects(corpus: Corpus) -> tuple[list[frozenset[str]], NDArray[np.bool_]]:
    """The categories named in any English caption of every image, and which images have an English caption."""
    place = {name: ord_ for ord_, name in enumerate(corpus.images["id"].to_pylist())}
    named: list[set[str]] = [set() for _ in place]
    known = np.zeros(len(place), dtype=bool)
    english = english_captions(corpus)
    owners, texts = corpus.captions["image_id"].to_pylist(), corpus.captions["text"].to_pylist()
    for at in np.flatnonzero(english).tolist():
        if owners[at] is not None:
            image = place[owners[at]]
            known[image] = True
            named[image] |= objects_named(texts[at])
    return [frozenset(names) for names in named], known


def objects_named(text: str) -> set[str]:
    """The COCO categories that a caption names.

    Examples:
        >>> sorted(objects_named("Two men eat hot dogs beside a parked motor bike"))
        ['hot dog', 'motorcycle', 'person']
        >>> objects_named("Waiting at the bus stop in an orange coat")
        set()
    """
    pattern, category_of = _vocabulary()
    joined = " ".join(token.removesuffix("'s") for token in tokens_of(text))
    return {category for match in pattern.finditer(joined) if (category := category_of[match.group()])}


def _by_name(
    objects: Sequence[Iterable[str]],
) -> tuple[dict[str, NDArray[np.bool_]], dict[str, NDArray[np.bool_]]]:
    """Category -> which images have it, and supercategory -> which have one of its; both in COCO's order."""
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
def _vocabulary() -> tuple[re.Pattern[str], dict[str, str | None]]:
    """One pattern over all words, the longest first, and the category of each (None: no category)."""
    entry = read_lexicon_file("coco_objects")
    category_of: dict[str, str | None] = {
        form: category
        for category, words in entry["words"].items()
        for word in phrases(words)
        for form in _numbers(word)
    }
    category_of |= dict.fromkeys(phrases(entry["other"]))
    return any_of(category_of), category_of


def _numbers(word: str) -> tuple[str, str]:
    """A word and its regular plural.

    Examples:
        >>> _numbers("wine glass"), _numbers("puppy"), _numbers("dog")
        (('wine glass', 'wine glasses'), ('puppy', 'puppies'), ('dog', 'dogs'))
    """
    if word.endswith(("s", "x", "ch", "sh")):
        return word, f"{word}es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word, f"{word[:-1]}ies"
    return word, f"{word}s"
