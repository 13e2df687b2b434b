"""What the image shows: COCO's 80 categories and 12 supercategories, from annotations or from the captions' words.

Annotations are used where a corpus has them. Where it has none, categories are inferred from the captions, under an
analysis of another name (``category-inferred``). Where it has both, their agreement shows how good the inference is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.types import Corpus
from capim.tasks.corpora.readers.coco_categories import CATEGORIES_OF, SUPERCATEGORY_OF
from capim.tasks.diagnosis.analysis_input import AnalysisInput
from capim.tasks.diagnosis.content.caption_features import english_captions
from capim.tasks.diagnosis.content.lexicon import any_of, inflected, phrases, read_lexicon_file, tokens_of
from capim.tasks.diagnosis.slice_means import contrast_slices, part_slices
from capim.tasks.diagnosis.slices import Slice
from capim.tasks.scoring.protocols.layout import layout_of
from capim.tasks.statistics.bootstrap import Interval


def categories(data: AnalysisInput) -> Iterator[Slice]:
    """The metric by category and supercategory of the query's image; inferred where nothing is annotated."""
    corpus, image_of_query = data.corpus, data.queries.clusters
    if corpus.images["objects"].null_count < len(corpus.images):
        annotated = pc.is_valid(corpus.images["objects"]).to_numpy()[image_of_query]
        fine, coarse = _by_name(annotated_objects(corpus))
        parts = {(name, ""): has[image_of_query] & annotated for name, has in fine.items()}
        yield from part_slices(data, "category", parts, metric=data.metric)
        contrasts = {name: has[image_of_query] for name, has in coarse.items()}
        yield from contrast_slices(data, "supercategory", contrasts, among=annotated)
        if data.protocol.direction == "t2i" and data.given is None:
            yield from agreement(data)
        return
    inferred, known = inferred_objects(corpus)
    contrasts = {name: has[image_of_query] for name, has in _by_name(inferred)[1].items()}
    yield from contrast_slices(data, "category-inferred", contrasts, among=known[image_of_query])


def agreement(data: AnalysisInput) -> Iterator[Slice]:
    """F1 over images of the inferred against the annotated supercategories, with precision and recall in the detail.

    Over the images that are annotated and have an English caption; only supercategories that are annotated among these.
    Stored once, under the first encoder and text to image: it is the same for all.
    """
    corpus = data.corpus
    inferred, known = inferred_objects(corpus)
    both = known & pc.is_valid(corpus.images["objects"]).to_numpy()
    truth, guess = _by_name(annotated_objects(corpus))[1], _by_name(inferred)[1]
    for name in CATEGORIES_OF:
        true, guessed = (table.get(name, np.zeros(len(both), dtype=bool)) & both for table in (truth, guess))
        hits, n_true, n_guessed = int((true & guessed).sum()), int(true.sum()), int(guessed.sum())
        if n_true:
            f1 = 2 * hits / (n_true + n_guessed)
            yield data.slice(
                data.encoders[0],
                "agreement",
                name,
                "F1",
                Interval(value=f1, reason="no interval: computed from the whole corpus, nothing was sampled"),
                level_name="inferred against annotated",
                counts=(n_true, n_true),
                detail={"precision": hits / max(1, n_guessed), "recall": hits / n_true},
            )


def annotated_objects(corpus: Corpus) -> list[frozenset[str]]:
    """The annotated categories of every image; empty where it is not annotated."""
    return [frozenset(objects or ()) for objects in corpus.images["objects"].to_pylist()]


def inferred_objects(corpus: Corpus) -> tuple[list[frozenset[str]], NDArray[np.bool_]]:
    """The categories named in any English caption of every image, and which images have an English caption."""
    named: list[set[str]] = [set() for _ in range(len(corpus.images))]
    known = np.zeros(len(named), dtype=bool)
    image_of = layout_of(corpus).caption_images
    texts: list[Any] = corpus.captions["text"].to_pylist()
    for caption in np.flatnonzero(english_captions(corpus) & (image_of >= 0)).tolist():
        known[image_of[caption]] = True
        named[image_of[caption]] |= objects_named(texts[caption])
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
    """Category -> which images have it, and the same for supercategories; both in COCO's order."""
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
    """A pattern of all words, the longest first, and the category of each word (None: no category)."""
    entry = read_lexicon_file("coco_objects")
    category_of: dict[str, str | None] = {
        form: category
        for category, words in entry["words"].items()
        for word in phrases(words)
        for form in (word, inflected(word)[0])  # the regular plural is formed like the third person of verbs
    }
    category_of |= dict.fromkeys(phrases(entry["other"]))
    return any_of(category_of), category_of
