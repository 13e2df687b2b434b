"""What a caption asks for: places, colours, counts, negation, actions; its length; its position among the captions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.types import Corpus
from capim.tasks.analyses.analysis_input import AnalysisInput
from capim.tasks.analyses.content.lexicon import (
    any_of,
    inflected,
    lexicon,
    phrases,
    read_lexicon_file,
    tokens_of,
    words_of,
)
from capim.tasks.analyses.slice_means import QueryValues, contrast_slices, mean_slices, part_slices
from capim.tasks.analyses.slices import Slice
from capim.tasks.corpora.readers.coco_captions import CATEGORIES_OF, SUPERCATEGORY_OF
from capim.tasks.metrics.table import headline_of
from capim.tasks.protocols import Direction
from capim.tasks.ranking.layout import layout_of, ords_of
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.statistics.intervals import Interval

FEATURES = ("spatial", "colour", "counting", "negation", "action")
LENGTHS = {"1-8": (1, 8), "9-10": (9, 10), "11-12": (11, 12), "13-15": (13, 15), "16+": (16, np.inf)}  # words


def complexity(data: AnalysisInput) -> Iterator[Slice]:
    """The metric with and without each feature, inside and outside each range of lengths, and by position.

    For English captions as queries: the lexicons are English.
    """
    ords = data.queries.query_ords
    english = english_captions(data.corpus)[ords]
    texts = [text or "" for text in data.corpus.captions["text"].take(ords).to_pylist()]
    has = caption_features([text if known else "" for text, known in zip(texts, english, strict=True)])
    yield from contrast_slices(data, "complexity", has, among=english)
    n_words = np.array([len(words_of(text)) for text in texts])
    lengths = {f"{name} words": (n_words >= low) & (n_words <= high) for name, (low, high) in LENGTHS.items()}
    yield from contrast_slices(data, "length", lengths, among=english)
    ordinals = data.corpus.captions["ordinal"].take(ords).to_numpy()
    positions = {f"caption {ordinal}": ordinals == ordinal for ordinal in np.unique(ordinals).tolist()}
    yield from contrast_slices(data, "ordinal", positions, among=english)


def caption_features(texts: Sequence[str]) -> dict[str, NDArray[np.bool_]]:
    """Feature -> which captions have it, shape ``(n_captions,)``.

    Examples:
        >>> features = caption_features(["a red bus next to a tree", "two men", "nothing here"])
        >>> {name: has.tolist() for name, has in features.items()}["spatial"]
        [True, False, False]
    """
    return {name: np.array([bool(lexicon(name).matches(text)) for text in texts], dtype=bool) for name in FEATURES}


def english_captions(corpus: Corpus) -> NDArray[np.bool_]:
    """Which captions are English and have a text, shape ``(n_captions,)``."""
    language, text = corpus.captions["language"], corpus.captions["text"]
    return np.asarray(pc.and_(pc.starts_with(pc.utf8_lower(language), "en"), pc.is_valid(text)))


# --- Whether an item that is no relevant one is right all the same, by what else the corpus says of it.
#
# =================  ==================================================================================
# ``cxc``, ``eccv``  an extra ground truth of the corpus names the pair; its name is the source
# ``same words``     the image has a caption of its own with the words of this caption
# ``same picture``   the image has the same bytes as the image that the caption belongs to
# =================  ==================================================================================


def first_is_right(outcomes: Outcomes, corpus: Corpus) -> dict[str, NDArray[np.bool_]]:
    """Source -> for which queries it says that the first item is right, shape ``(n_queries,)``.

    A relevant item is right by some sources too. Only sources that the corpus has; none without result lists.
    """
    if outcomes.top_ords is None:
        return {}
    direction = outcomes.protocol.direction
    queries, items = outcomes.query_ords.astype(np.int64), outcomes.top_ords[:, 0].astype(np.int64)
    captions, images = (queries, items) if direction == "t2i" else (items, queries)
    n_images, sources = len(corpus.images), {}
    pairs = captions * n_images + images
    for truth, links in _judged(corpus, direction).items():
        sources[truth] = np.isin(pairs, links)
    own = layout_of(corpus).caption_images.astype(np.int64)  # -1: of no image
    words = _codes([None if text is None else _words(text) for text in corpus.captions["text"].to_pylist()])
    written = np.unique((words * n_images + own)[(words >= 0) & (own >= 0)])
    if written.size > np.unique(written // n_images).size:  # some words describe two images
        sources["same words"] = (words[captions] >= 0) & np.isin(words[captions] * n_images + images, written)
    pictures = _codes(corpus.images["sha"].to_pylist())
    if np.bincount(pictures[pictures >= 0]).max(initial=0) > 1:
        described = np.where(own >= 0, pictures[own], -1)[captions]
        sources["same picture"] = (described >= 0) & (described == pictures[images])
    return sources


def _judged(corpus: Corpus, direction: Direction) -> dict[str, NDArray[np.int64]]:
    """Extra ground truth -> its pairs of this direction, as ``caption ord * n_images + image ord``."""
    rows = corpus.relevance.filter((pc.field("direction") == direction) & (pc.field("grade") > 0))
    caption, image = ("query_id", "item_id") if direction == "t2i" else ("item_id", "query_id")
    truths = np.asarray(rows["ground_truth"].to_pylist(), dtype=object)
    links = ords_of(rows[caption], corpus.captions).astype(np.int64) * len(corpus.images)
    links += ords_of(rows[image], corpus.images)
    return {str(truth): links[truths == truth] for truth in sorted(set(truths))}


def _words(text: str) -> str:
    """A text without what two people write differently: capitals, spaces, the full stop.

    Examples:
        >>> _words("A red  bus .") == _words("a red bus")
        True
    """
    return " ".join(text.casefold().split()).rstrip(" .")


def _codes(values: list[str | None]) -> NDArray[np.int64]:
    """The number of each value, equal for equal values; -1 for None and for an empty text."""
    number_of: dict[str, int] = {}
    return np.array([number_of.setdefault(v, len(number_of)) if v else -1 for v in values], dtype=np.int64)


# --- Slices of judged corpora: by language, kind of query, number of relevant documents, and where in a document.


_COUNTS = {"1": (1, 1), "2-3": (2, 3), "4-9": (4, 9), "10 or more": (10, None)}
_PAGES = {"page 1": (0, 1), "pages 2-5": (2, 5), "pages 6-20": (6, 20), "from page 21": (21, None)}


def judged_queries(data: AnalysisInput) -> Iterator[Slice]:
    """The corpus' main metric over parts of the queries; none that holds all of them.

    Where in a document is the first of the pages with the highest grade, of corpora that number their pages.
    """
    [figure] = headline_of([data.protocol])
    captions = data.corpus.captions.take(data.queries.query_ords)
    parts: dict[tuple[str, str], NDArray[np.bool_]] = {}
    languages = np.asarray(captions["language"].to_pylist(), dtype=object)
    parts |= {("language", name): languages == name for name in sorted(set(languages.tolist()))}
    types: list[list[str]] = [kinds or [] for kinds in captions["query_types"].to_pylist()]
    for name in sorted({kind for kinds in types for kind in kinds}):
        parts["kind of query", name] = np.array([name in kinds for kinds in types])
    parts |= _ranges("relevant documents", data.queries.n_relevant.astype(np.float64), _COUNTS)
    parts |= _ranges("where in the document", _best_page(data), _PAGES)
    yield from part_slices(
        data, "judged", {name: inside for name, inside in parts.items() if not inside.all()}, metric=figure.metric
    )


def _ranges(
    feature: str, numbers: NDArray[np.float64], ranges: dict[str, tuple[int, int | None]]
) -> dict[tuple[str, str], NDArray[np.bool_]]:
    """The queries whose number is in each range, ends included; a number that is not known is in none."""
    return {
        (feature, name): (numbers >= low) & (numbers <= (np.inf if high is None else high))
        for name, (low, high) in ranges.items()
    }


def _best_page(data: AnalysisInput) -> NDArray[np.float64]:
    """The lowest page number among each query's documents with the highest grade; NaN where it is not known."""
    numbers = np.array([np.nan if page is None else page for page in data.corpus.images["page"].to_pylist()], float)
    task, grades = data.task, data.task.grades
    if grades is None:
        return np.full(len(task.queries), np.nan)
    starts = task.offsets[:-1]
    best = grades == np.repeat(np.maximum.reduceat(grades, starts), task.n_relevant)
    pages = np.where(best, numbers[task.relevant], np.inf)
    first = np.fmin.reduceat(pages, starts)
    return np.where(np.isfinite(first), first, np.nan)


# --- Captions that are longer than a model reads: its figures where it read the whole caption, and where it did not.


def truncated_captions(data: AnalysisInput) -> Iterator[Slice]:
    """The share of queries with a truncated caption, ``R@1`` of these, of the others, and the difference.

    Every encoder truncates other captions, so every encoder is compared with itself only. A query image is among them
    if one of its captions is truncated. Encoders that truncate no caption have no slices.
    """
    image_of = layout_of(data.corpus).caption_images
    for encoder, outcomes in data.outcomes.items():
        cut = data.truncated.get(encoder, np.zeros(len(image_of), dtype=bool))
        if data.protocol.direction == "i2t":
            cut = np.isin(np.arange(len(data.corpus.images)), image_of[cut])
        of_query = cut[data.queries.query_ords]
        if not of_query.any():
            continue
        alone = replace(data, outcomes={encoder: outcomes})
        share = QueryValues(encoder, "truncated", of_query, level_name="share")
        yield from mean_slices(alone, "truncated-captions", [share], metric="share of queries")
        every = np.ones(len(of_query), dtype=bool)
        yield from contrast_slices(alone, "truncated-captions", {"truncated": of_query}, among=every)


# --- What the image shows: COCO's 80 categories and 12 supercategories, from annotations or from the captions' words.
#
# Annotations are used where a corpus has them. Where it has none, categories are inferred from the captions, under an
# analysis of another name (``category-inferred``). Where it has both, their agreement shows how good the inference is.


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
