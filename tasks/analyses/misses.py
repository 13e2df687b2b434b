"""Misses: their kinds, and those that may not be mistakes.

In a miss, the best relevant item is strictly below the first place; a tie is not a miss.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store.schema import (
    AGREEMENT,
    AMBIGUOUS,
    ANNOTATION,
    CAUSES,
    EITHER,
    ERRORS,
    SHARE_OF_MISSES,
    WITHOUT_AMBIGUOUS,
)
from capim.store.types import Corpus
from capim.tasks.analyses.analysis import R1, AnalysisInput, QueryValues, Slice, mean_slices
from capim.tasks.protocols import Direction
from capim.tasks.ranking.layout import layout_of, ords_of
from capim.tasks.ranking.outcomes import Outcomes

WITHOUT = f"{R1.name} {WITHOUT_AMBIGUOUS}"
FEWEST = 3  # encoders that agree; the minimum for a suspicion
MOST = 2 / 3  # of the encoders with result lists
NEAR = 10  # the last rank of a near miss
HUB_LISTS = 10  # first items of each result list that are counted for hubs
N_EXAMPLES = 5


def ambiguous(data: AnalysisInput) -> Iterator[Slice]:
    """Yield R@1 of all queries and without the ambiguous misses, by cause and by either, and their share of the misses.

    Ambiguous misses may not be mistakes of the encoder (``docs/metrics.md``). Nothing is dropped: R@1 does not
    change, and the mean over the other queries is reported next to it.

    ==============  =====================================================================================
    ``annotation``  the item in first place is right by another annotation (:func:`first_is_right`)
    ``agreement``   most encoders have the same wrong item in first place. A suspicion: encoders that were
                    trained alike make the same mistakes
    ==============  =====================================================================================

    The share of ``annotation`` and ``agreement`` has the ids of the queries in its detail, and the sources of each.
    An encoder without result lists has no rows, and fewer than ``FEWEST`` encoders have none of ``agreement``.
    """
    known = with_lists_only(data)
    causes, sources = causes_of(known) if known is not None else ({}, {})
    if known is None or not causes:
        return
    hits = known.values(R1)
    rows = [QueryValues(name, "all queries", hits[at]) for at, name in enumerate(known.encoders)]
    yield from mean_slices(known, AMBIGUOUS, rows, metric=R1.name, share=True)
    kept, shares = [], []
    for cause, marked in {**causes, EITHER: np.any(list(causes.values()), axis=0)}.items():
        for at, (name, outcomes) in enumerate(known.outcomes.items()):
            missed = outcomes.missed
            detail: dict[str, object] = {"ambiguous": int(marked[at].sum()), "misses": int(missed.sum())}
            if cause in CAUSES:
                detail["queries"] = [str(query) for query in outcomes.query_ids[marked[at]]]
            if cause == ANNOTATION:
                says = sources[name].items()
                detail["sources"] = [
                    ", ".join(source for source, right in says if right[query]) for query in np.flatnonzero(marked[at])
                ]
            if not marked[at].all():
                kept.append(QueryValues(name, cause, np.where(marked[at], np.nan, hits[at])))
            if missed.any():
                shares.append(QueryValues(name, cause, np.where(missed, marked[at], np.nan), detail))
    yield from mean_slices(known, AMBIGUOUS, kept, metric=WITHOUT, share=True)
    yield from mean_slices(known, AMBIGUOUS, shares, metric=SHARE_OF_MISSES, share=True)


def without_ambiguous(data: AnalysisInput) -> AnalysisInput | None:
    """Return the same input with R@1 over the queries without ambiguous misses, for analyses by part of the queries.

    None if the metric is another one, or if no cause can be known.
    """
    known = with_lists_only(data)
    if known is None or data.metric != R1 or not (causes := causes_of(known)[0]):
        return None
    marked = np.any(list(causes.values()), axis=0)
    return replace(known, metric=replace(R1, name=WITHOUT), left_out=dict(zip(known.encoders, marked, strict=True)))


def with_lists_only(data: AnalysisInput) -> AnalysisInput | None:
    """Return the input of the encoders with result lists under a retrieval protocol; None without any."""
    outcomes = {name: found for name, found, _ in data.with_lists()}
    return replace(data, outcomes=outcomes) if outcomes and data.protocol.is_retrieval else None


def causes_of(data: AnalysisInput) -> tuple[dict[str, NDArray[np.bool_]], dict[str, dict[str, NDArray[np.bool_]]]]:
    """Return cause -> mask of its misses, shape ``(n_encoders, n_queries)``; encoder -> source -> mask of its queries.

    A cause is absent if it cannot be known: no other annotation, or fewer than ``FEWEST`` encoders.
    """
    missed = np.stack([outcomes.missed for outcomes in data.outcomes.values()])
    sources = {name: first_is_right(outcomes, data.corpus) for name, outcomes in data.outcomes.items()}
    causes = {}
    if all(sources.values()):
        causes[ANNOTATION] = missed & np.stack([np.any(list(by.values()), axis=0) for by in sources.values()])
    if len(missed) >= FEWEST:
        first = np.stack([top_ords[:, 0] for _, _, top_ords in data.with_lists()])
        causes[AGREEMENT] = missed & (agreeing(first) >= max(FEWEST, MOST * len(first)))
    return causes, sources


def agreeing(first: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return how many encoders have the same item in first place, including the encoder; same shape as ``first``.

    ``first`` holds the items, shape ``(n_encoders, n_queries)``.

    Examples:
        >>> agreeing(np.array([[7, 1], [7, 2], [3, 1], [7, 5]])).tolist()
        [[3, 2], [3, 1], [1, 2], [3, 1]]
    """
    return np.stack([(first == row).sum(axis=0) for row in first])


def first_is_right(outcomes: Outcomes, corpus: Corpus) -> dict[str, NDArray[np.bool_]]:
    """Return source -> mask of the queries with a first item that is right by this source, shape ``(n_queries,)``.

    A relevant item is right by some sources too. Only sources that the corpus has; none without result lists, or for
    items that search their own kind.

    =================  ==================================================================================
    ``cxc``, ``eccv``  an extra ground truth of the corpus names the pair; its name is the source
    ``same words``     the image has a caption of its own with the words of this caption
    ``same picture``   the image has the same bytes as the image of the caption
    =================  ==================================================================================
    """
    direction = outcomes.protocol.direction
    if outcomes.top_ords is None or direction not in ("t2i", "i2t"):
        return {}
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
    """Return extra ground truth -> its pairs of this direction, as ``caption ord * n_images + image ord``."""
    rows = corpus.relevance.filter((pc.field("direction") == direction) & (pc.field("grade") > 0))
    caption, image = ("query_id", "item_id") if direction == "t2i" else ("item_id", "query_id")
    truths = np.asarray(rows["ground_truth"].to_pylist(), dtype=object)
    links = ords_of(rows[caption], corpus.captions).astype(np.int64) * len(corpus.images)
    links += ords_of(rows[image], corpus.images)
    return {str(truth): links[truths == truth] for truth in sorted(set(truths))}


@lru_cache(maxsize=1 << 18)  # called for every encoder
def _words(text: str) -> str:
    """Return a text without accidental differences between writers: capitals, spaces, the full stop.

    Examples:
        >>> _words("A red  bus .") == _words("a red bus")
        True
    """
    return " ".join(text.casefold().split()).rstrip(" .")


def _codes(values: list[str | None]) -> NDArray[np.int64]:
    """Return the number of each value, equal for equal values; -1 for None and for an empty text."""
    number_of: dict[str, int] = {}
    return np.array([number_of.setdefault(v, len(number_of)) if v else -1 for v in values], dtype=np.int64)


def error_kinds(data: AnalysisInput) -> Iterator[Slice]:
    """Yield the share of all queries per kind; the detail holds its share of the errors, and the clearest examples.

    Each query has exactly one kind, the first that applies; hits are a kind too.

    ======================  ===============================================================================
    ``hit``                 only the best relevant item is first
    ``tie``                 nothing scores above the best relevant item, but an irrelevant item scores the same
    ``false negative``      the first item is right by another annotation (:func:`first_is_right`)
    ``near miss``           the best relevant item is at rank 2 to 10
    ``hub``                 the first item is a hub (:func:`is_hub`)
    ``rest``                none of these
    ======================  ===============================================================================
    """
    rows = []
    for encoder, outcomes in data.outcomes.items():
        sources = first_is_right(outcomes, data.corpus)
        kinds = kinds_of(outcomes, data.corpus, np.any(list(sources.values()), axis=0) if sources else None)
        rows.append(QueryValues(encoder, "hit", kinds.pop("hit")))
        n_errors = sum(int(kind.sum()) for kind in kinds.values())
        for name, kind in kinds.items():
            share = int(kind.sum()) / n_errors if n_errors else 0.0
            examples = clearest(outcomes, kind, outcomes.rank_best)
            rows.append(QueryValues(encoder, name, kind, {"share_of_misses": share, "examples": examples}))
    yield from mean_slices(data, ERRORS, rows, metric="share of queries")


def kinds_of(outcomes: Outcomes, corpus: Corpus, first_right: NDArray[np.bool_] | None) -> dict[str, NDArray[np.bool_]]:
    """Return kind -> mask of its queries, shape ``(n_queries,)``; every query has exactly one kind.

    ``first_right``: mask of the queries with a first item that is right by another annotation; None if the corpus has
    no other, and ``false negative`` is then absent. ``hub`` is absent without result lists.
    """
    n_items = len(corpus.items(outcomes.protocol.sides[1]))
    tests = {"hit": outcomes.found, "tie": ~outcomes.missed}
    if first_right is not None:
        tests["false negative"] = first_right
    tests["near miss"] = outcomes.rank_best <= NEAR
    if outcomes.top_ords is not None:
        listed = outcomes.top_ords[:, :HUB_LISTS]
        tests["hub"] = is_hub(np.bincount(listed[listed >= 0], minlength=n_items))[outcomes.top_ords[:, 0]]
    tests["rest"] = left = np.ones(len(outcomes), dtype=bool)
    kinds = {}
    for name, applies in tests.items():
        kinds[name] = applies & left
        left = left & ~applies
    return kinds


def is_hub(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the hubs among items: in far more result lists than others (Radovanović et al., JMLR 11, 2010).

    ``counts`` is the number of lists with the item; a hub's is more than two standard deviations above the mean.

    Examples:
        >>> is_hub(np.array([1, 1, 1, 1, 1, 1, 1, 20])).tolist().index(True)
        7
    """
    hub: NDArray[np.bool_] = counts > counts.mean() + 2 * counts.std()
    return hub


def clearest(outcomes: Outcomes, chosen: NDArray[np.bool_], rank: NDArray[np.integer]) -> list[str]:
    """Return ids of at most ``N_EXAMPLES`` chosen queries, highest ``rank`` (best rank of a relevant item) first."""
    places = np.flatnonzero(chosen)
    order = np.argsort(-rank[places].astype(np.int64), kind="stable")[:N_EXAMPLES]
    return [str(outcomes.query_ids[place]) for place in places[order]]
