"""Consistency of a language with the reference language: does the same query retrieve the same items?

The two measures do not show quality. nDCG@20 follows the ``eval.py`` of COCO-SM: the gain of an item is the reference
query's softmax over its gallery at temperature 1/100, the list is the other language's top 20, and the ideal is the
reference's own top 20. The denominator of the softmax cancels out. Scores of late interaction, sums over the tokens of
a caption, are divided by the number of tokens: cosines like those of other encoders.
Rank-biased overlap (Webber, Moffat and Zobel 2010) does not depend on the scale of scores. Equal scores are taken in
random order: in corpus order, a model that gives all captions of a language the same vector would agree with the
reference on the first items of the corpus.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from capim.store.vectors import Ragged
from capim.tasks.encoders.device import full_float32
from capim.tasks.protocols import Protocol, language_id
from capim.tasks.ranking.best_lists import TieSpan, tie_spans_among_all, tie_spans_of
from capim.tasks.ranking.layout import CorpusLayout, IndexSpace
from capim.tasks.ranking.maxsim import scores_of_pairs
from capim.tasks.ranking.maxsim_products import gather
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.resources import one_thread_each
from capim.tasks.ranking.tasks import RetrievalTask, own_items
from capim.tasks.ranking.vectors import Blocks, VectorRows

DEPTH = 20
TEMPERATURE = 100.0
PERSISTENCE = 0.9  # probability of looking one item further in a list
_COMPONENTS_PER_PASS = 1 << 20
_FULL_ROWS_PER_PASS = 1 << 6  # queries for which all scores are computed again

Scores: TypeAlias = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class ScoredDirection:
    """One direction of one language, by one vector per item. :class:`LateDirection` has the same methods.

    ``outcomes``; ``queries`` and ``items``: the float32 vectors of its queries and gallery items. Items are identified
    by their position in the part (captions) or in the corpus (images).
    """

    outcomes: Outcomes
    queries: NDArray[np.float32]
    items: NDArray[np.float32]

    scale: ClassVar = np.ones(1, np.float32)
    rows_per_pass: ClassVar = 1 << 10  # lists of a pass stay in the processor's caches

    def of_pairs(self, queries: NDArray[np.integer], items: NDArray[np.integer]) -> Scores:
        """Return the scores of pairs of a query and an item, shape ``(n_pairs,)``."""
        scores = np.empty(len(items), dtype=np.float64)
        step = max(1, _COMPONENTS_PER_PASS // self.items.shape[1])
        for start in range(0, len(items), step):
            part = slice(start, start + step)
            scores[part] = np.einsum("nd,nd->n", self.queries[queries[part]], self.items[items[part]])
        return scores

    def exact(self, _n: int) -> Callable[[NDArray[np.integer]], Scores]:
        """Return a function that scores some queries with all items, so that equal vectors have equal scores."""
        items = self.items.astype(np.float64)
        return lambda queries: (self.queries[queries].astype(np.float64) @ items.T).astype(np.float32)


@dataclass(frozen=True, eq=False)
class LateDirection:
    """One direction of one language, by late interaction.

    ``scale``: divisors of the scores of each query, the number of tokens of its caption: scores are then the mean
    cosine of a token with its best patch. For image to text, where captions of different length compete, the mean
    number of tokens of these captions, so that the order of a list does not change.
    """

    outcomes: Outcomes
    images: Blocks
    captions: Ragged
    scale: Scores
    device: str

    rows_per_pass: ClassVar = 1 << 30  # the images are read once

    def of_pairs(self, queries: NDArray[np.integer], items: NDArray[np.integer]) -> Scores:
        """Return the scores of pairs of a query and an item, shape ``(n_pairs,)``, as they were ranked."""
        ords = self.outcomes.query_ords[queries]
        pairs = np.stack((ords, items) if self.outcomes.protocol.direction == "t2i" else (items, ords), axis=1)
        return np.asarray(scores_of_pairs(self.images, self.captions, pairs, self.device) / self.scale[queries])

    def exact(self, n: int) -> Callable[[NDArray[np.integer]], Scores]:
        """Return a function that scores some queries with all ``n`` items."""
        return lambda queries: self.of_pairs(np.repeat(queries, n), np.tile(np.arange(n), len(queries))).reshape(-1, n)


Side: TypeAlias = ScoredDirection | LateDirection


def consistency(
    task: RetrievalTask, own: Side, reference: Side, *, query_of: NDArray[np.int64], item_of: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Return both measures of every query, shape ``(2, n_queries)``, expected over random orders of equal scores.

    Args:
        own: One language; lists of at least 20 items, or of the whole gallery.
        reference: The same direction of the reference language.
        query_of: int64, shape ``(n_queries,)``: the query of ``reference`` with the same meaning.
        item_of: int32: the reference item of every item.
    """
    outcomes, theirs = own.outcomes, reference.outcomes
    if outcomes.top_ords is None or outcomes.top_scores is None or theirs.top_ords is None or theirs.top_scores is None:
        raise ValueError(f"protocol {outcomes.protocol.id!r}: no lists to compare with the reference language")
    lists = Lists(outcomes.top_ords, outcomes.top_scores)
    others = Lists(theirs.top_ords, theirs.top_scores / reference.scale[:, None])
    cut_off = np.flatnonzero(_cut_off(outcomes, lists.scores) | _cut_off(theirs, others.scores)[query_of])

    def measures(start: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        part = slice(start, start + own.rows_per_pass)
        some, query = Lists(item_of[lists.items[part]], lists.scores[part]), query_of[part]
        return _measures(some, Lists(others.items[query], others.scores[query]), reference, query)

    def from_all_scores(start: int) -> list[tuple[float, float]]:
        queries = cut_off[start : start + _FULL_ROWS_PER_PASS]
        found, scored = [], zip(queries, of_own(queries), of_reference(query_of[queries]), strict=True)
        for query, own_scores, their_scores in scored:
            scores = np.full(len(their_scores), -np.inf)
            gallery = task.galleries[task.gallery_of[query]]
            scores[item_of[gallery]] = own_scores[gallery]
            found.append(expected_measures(scores, their_scores, lists.scores.shape[1]))
        return found

    with full_float32(), one_thread_each("cpu") as each:
        ndcg, rbo = zip(*each(measures, range(0, len(outcomes), own.rows_per_pass)), strict=True)
        both = np.stack([np.concatenate(ndcg), np.concatenate(rbo)])
        if len(cut_off):
            of_own, of_reference = own.exact(len(item_of)), reference.exact(len(item_of))
            found = each(from_all_scores, range(0, len(cut_off), _FULL_ROWS_PER_PASS))
            both[:, cut_off] = np.concatenate(list(found)).T
    return both


class Lists(NamedTuple):
    """The best items of some queries and their scores, best first, shape ``(n_queries, depth)``."""

    items: NDArray[np.int32]
    scores: Scores


def _cut_off(outcomes: Outcomes, scores: Scores) -> NDArray[np.bool_]:
    """True if a list ends within a tie that may include further items, shape ``(n_queries,)``.

    A tie of only the last item is ignored: it weighs less than 1e-6 at depth 100.
    """
    if scores.shape[1] < 2:
        return np.zeros(len(scores), dtype=np.bool_)
    cut_off: NDArray[np.bool_] = (scores[:, -1] == scores[:, -2]) & (outcomes.n_gallery > scores.shape[1])
    return cut_off


def expected_measures(scores: Scores, of_reference: Scores, depth: int) -> tuple[float, float]:
    """Return both measures of one query from its scores of every reference item, shape ``(n_items,)``, -inf for none.

    Examples:
        All tied in the language: over both orders of two items with gains 2 : 1, half of all 1 and half 0.8597.

        >>> ndcg, rbo = expected_measures(np.float32([0, 0]), np.float32([0.3, 0.3 - np.log(2) / 100]), 2)
        >>> round(ndcg, 4), round(rbo, 4)  # (1 + 0.9) / 2
        (0.9299, 0.95)
    """
    own, own_places = _reaching_top(scores, depth)
    other, other_places = _reaching_top(of_reference, depth)
    best, discounts = float(of_reference.max()), _discounts(depth)
    gains, possible = (np.exp(TEMPERATURE * (of_reference[items].astype(np.float64) - best)) for items in (own, other))
    ideal = float((np.sort(possible)[::-1][:depth] * discounts).sum())
    ndcg = float((gains * _mean_discounts(own_places, discounts)).sum()) / ideal
    _, in_own, in_other = np.intersect1d(own, other, assume_unique=True, return_indices=True)
    places = [*own_places.at(in_own), *other_places.at(in_other)]
    kinds, counts = np.unique(np.stack(places), axis=1, return_counts=True)
    both = TieSpan(*kinds[:2]).in_top(depth) * TieSpan(*kinds[2:]).in_top(depth)
    return ndcg, float(_overlap((counts[:, None] * both).sum(axis=0)[None])[0])


def _reaching_top(scores: Scores, depth: int) -> tuple[NDArray[np.intp], TieSpan]:
    """Return the items of one query that may be among the first ``depth``, ascending, and their places."""
    least = np.partition(scores, len(scores) - depth)[-depth]
    items = np.flatnonzero(scores >= least)
    return items, tie_spans_among_all(scores[items])


def _discounts(depth: int) -> NDArray[np.float64]:
    """Return the discount of each place of a list, 0 beyond the first 20; shape ``(depth,)``."""
    return np.where(np.arange(depth) < DEPTH, 1 / np.log2(np.arange(2, depth + 2)), 0.0)


def _mean_discounts(places: TieSpan, discounts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the expected discount of each item, 0 beyond the list."""
    summed = np.concatenate([[0.0], np.cumsum(discounts)])
    start, end = (np.minimum(side, len(discounts)) for side in places)
    means: NDArray[np.float64] = (summed[end] - summed[start]) / (places.end - places.start)
    return means


def _measures(
    lists: Lists, other: Lists, reference: Side, query_of: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return softmax nDCG and rank-biased overlap of some lists with the reference's lists of the same items."""
    own_places, other_places = tie_spans_of(lists.scores), tie_spans_of(other.scores)
    shared = shared_items(lists.items, other.items)
    counted = _mean_discounts(own_places, _discounts(lists.items.shape[1]))
    counted = counted[:, : max(1, int((counted > 0).any(axis=0).sum()))]
    of_list = np.full(counted.shape, np.nan)
    near = shared.place < counted.shape[1]
    of_list[shared.row[near], shared.place[near]] = other.scores[shared.row[near], shared.other_place[near]]
    row, place = np.nonzero(np.isnan(of_list) & (counted > 0))
    of_list[row, place] = reference.of_pairs(query_of[row], lists.items[row, place])
    depth = min(DEPTH, lists.items.shape[1])
    ndcg = softmax_ndcg(of_list, other.scores[:, :depth].astype(np.float64), counted)
    own, others = own_places.at((shared.row, shared.place)), other_places.at((shared.row, shared.other_place))
    return ndcg, rank_biased_overlap(shared.row, own, others, *lists.items.shape)


class Shared(NamedTuple):
    """Items in both lists of a row: the row, and the item's place in either list, from 0."""

    row: NDArray[np.int64]
    place: NDArray[np.int64]
    other_place: NDArray[np.int64]


def shared_items(one: NDArray[np.int32], other: NDArray[np.int32]) -> Shared:
    """Return the items in both lists of a row; lists have shape ``(n_rows, depth)`` and no item twice in a row."""
    depth = one.shape[1]
    # item, place and list as one number: sorted, an item of both lists is next to itself, list 0 first
    wide = np.int64 if max(int(one.max()), int(other.max())) >= (1 << 30) // depth else np.int32
    place = np.arange(depth, dtype=wide)
    keys = np.empty((len(one), 2 * depth), dtype=wide)
    for which, items in enumerate((one, other)):
        keys[:, which * depth : (which + 1) * depth] = (items.astype(wide) * 2 + which) * depth + place
    keys.sort(axis=1)
    items = keys // (2 * depth)
    row, at = np.nonzero(items[:, 1:] == items[:, :-1])
    return Shared(row, (keys[row, at] % depth).astype(np.int64), (keys[row, at + 1] % depth).astype(np.int64))


def softmax_ndcg(
    of_list: NDArray[np.float64], ideal: NDArray[np.float64], discounts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the discounted gains ``softmax(100 * s)`` of a list over those of the ideal list (nDCG), one per query.

    Args:
        of_list: Reference scores of the items in the order of the list, shape ``(n_queries, depth)``.
        ideal: Reference scores of the reference's own list, descending, at most the first 20.
        discounts: Expected discount of every item of the list, same shape as ``of_list``; the score of an item with 0
            is ignored.

    Examples:
        The list has the two items in the wrong order; the reference scores differ by ln(2)/100, so the gains are 2 : 1.

        >>> ideal, discounts = np.array([[0.3, 0.3 - np.log(2) / 100]]), 1 / np.log2([[2, 3]])
        >>> round(float(softmax_ndcg(ideal[:, ::-1], ideal, discounts)[0]), 4)  # (1 + 2 * 0.6309) / (2 + 1 * 0.6309)
        0.8597
    """
    best = ideal[:, :1]
    gained = np.where(discounts > 0, np.exp(TEMPERATURE * (of_list - best)) * discounts, 0.0).sum(axis=1)
    possible = (np.exp(TEMPERATURE * (ideal - best)) * _discounts(ideal.shape[1])).sum(axis=1)
    values: NDArray[np.float64] = gained / possible
    return values


def rank_biased_overlap(
    row: NDArray[np.int64], own: TieSpan, other: TieSpan, n_rows: int, depth: int
) -> NDArray[np.float64]:
    """Return the extrapolated rank-biased overlap of two lists per row, 0..1 (RBO_ext, Webber et al. 2010, eq. 32).

    Expected over independent random orders of the ties of both lists (RBO^a of Corsi and Urbano, SIGIR 2024).

    Args:
        row: The row of every item that is in both lists of a row.
        own: The places of these items in the first list.
        other: Their places in the second list.
        n_rows: Number of pairs of lists.
        depth: Length of the lists.

    Examples:
        The lists (7, 8) and (8, 7) agree on nothing at depth 1 and on everything at depth 2:
        ``1 * p^2 + (1 - p) / p * (0 * p + 1 * p^2)``.

        >>> first, second = TieSpan(np.array([0, 1]), np.array([1, 2])), TieSpan(np.array([1, 0]), np.array([2, 1]))
        >>> round(float(rank_biased_overlap(np.array([0, 0]), first, second, 1, 2)[0]), 4)
        0.9
    """
    tied = (own.end - own.start > 1) | (other.end - other.start > 1)
    seen = np.maximum(own.start, other.start)[~tied]
    shared = np.bincount(row[~tied] * depth + seen, minlength=n_rows * depth).reshape(n_rows, depth).cumsum(axis=1)
    expected = shared.astype(np.float64)
    in_own, in_other = (TieSpan(*(side[tied] for side in places)).in_top(depth) for places in (own, other))
    np.add.at(expected, row[tied], in_own * in_other)
    return _overlap(expected)


def _overlap(shared: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rank-biased overlap from the expected number of shared items at each depth, shape ``(n_rows, depth)``."""
    depth = shared.shape[1]
    agreement = shared / np.arange(1, depth + 1)
    weights = PERSISTENCE ** np.arange(1, depth + 1)
    tail = agreement[:, -1] * PERSISTENCE**depth
    values: NDArray[np.float64] = tail + (1 - PERSISTENCE) / PERSISTENCE * (agreement @ weights)
    return np.minimum(values, 1.0)  # equal lists sum to 1 and a rounding error


# --- Corpora in several languages: the captions of one part (language and translator) are in memory at a time.


Part: TypeAlias = tuple[str, str]

log = logging.getLogger(__name__)


class ScoredPart(NamedTuple):
    """The captions of a part, and the outcomes of its tasks by protocol id."""

    captions: VectorRows | Blocks
    outcomes: Mapping[str, Outcomes]


def part_of(layout: CorpusLayout, task: RetrievalTask) -> Part | None:
    """Return the part of a task's captions, if the corpus has several."""
    return next((part for part, space in layout.part_spaces.items() if space in task.spaces), None)


def reference_part(layout: CorpusLayout, part: Part) -> Part | None:
    """Return the reference part to compare with: by the same translator, else written by people, else None."""
    language = layout.corpus.languages_reference
    return next((p for p in ((language, part[1]), (language, "human")) if p in layout.parts), None)


def with_references(layout: CorpusLayout, tasks: Sequence[RetrievalTask]) -> list[RetrievalTask]:
    """Return the tasks, after both directions of every part that they are compared with."""
    own = {task.protocol.id: task for task in tasks}
    parts = dict.fromkeys(part for task in tasks if (part := part_of(layout, task)) is not None)
    references: dict[str, RetrievalTask] = {}
    for part in dict.fromkeys(reference_part(layout, part) for part in parts):
        if part is None:
            log.warning("no consistency scores: the corpus has no %s captions", layout.corpus.languages_reference)
            continue
        for direction in ("t2i", "i2t"):
            id_ = language_id(direction, *part)
            references[id_] = own.get(id_) or own_items(layout, Protocol.of(id_))
    return [*(references | own).values()]


def compared(
    layout: CorpusLayout,
    task: RetrievalTask,
    scored: ScoredPart,
    references: Mapping[Part, ScoredPart],
    images: VectorRows | Blocks,
    device: str,
) -> Outcomes:
    """Return a task's outcomes for one part, with the consistency with the reference language.

    The reference of a part is the reference language by the same translator, else written by people. If the corpus has
    neither, or a caption has no counterpart, the two measures stay empty and a warning reports it.
    """
    outcomes, part = scored.outcomes[task.protocol.id], part_of(layout, task)
    theirs = None if part is None else reference_part(layout, part)
    if part is None or theirs is None:
        return outcomes
    if part == theirs:  # agrees with itself by definition, whatever its ties
        return replace(outcomes, reference_ndcg=np.ones(len(outcomes)), reference_rbo=np.ones(len(outcomes)))
    keys, their_keys = _keys(layout, part), _keys(layout, theirs)
    order = np.argsort(their_keys, kind="stable")
    place = np.searchsorted(their_keys[order], keys).clip(max=len(order) - 1)
    counterpart = order[place]
    if len(keys) != len(order) or (their_keys[counterpart] != keys).any():
        log.warning("no consistency scores for %s: its captions are not those of the reference", outcomes.protocol.id)
        return outcomes
    to_images = task.protocol.direction == "t2i"

    def side(of: Outcomes, part: Part, captions: VectorRows | Blocks) -> Side:
        space = layout.part_spaces[part]
        of = _in_rows(of, space)
        if callable(images) and callable(captions):
            counts = (tokens := gather(captions())).counts
            scale = counts[of.query_ords].astype(np.float64) if to_images else np.full(len(of), counts.mean())
            return LateDirection(of, images, tokens, scale, device)
        sides: tuple[Any, Any] = (captions, images) if to_images else (images, captions)
        return ScoredDirection(of, sides[0][of.query_ords], sides[1])

    reference = references[theirs]
    of_reference = reference.outcomes[language_id(task.protocol.direction, *theirs)]
    own, other = side(outcomes, part, scored.captions), side(of_reference, theirs, reference.captions)
    query_of = np.searchsorted(other.outcomes.query_ords, counterpart[task.queries] if to_images else task.queries)
    item_of = (np.arange(layout.n_images) if to_images else counterpart).astype(np.int32)
    ndcg, rbo = consistency(task, own, other, query_of=query_of, item_of=item_of)
    return replace(outcomes, reference_ndcg=ndcg, reference_rbo=rbo)


def _in_rows(outcomes: Outcomes, captions: IndexSpace) -> Outcomes:
    """Return outcomes with captions numbered by their rows in an index space."""
    if outcomes.protocol.direction == "t2i":
        return replace(outcomes, query_ords=captions.rows_of(outcomes.query_ords))
    return replace(outcomes, top_ords=None if outcomes.top_ords is None else captions.rows_of(outcomes.top_ords))


def _keys(layout: CorpusLayout, part: Part) -> NDArray[np.int64]:
    """Return the image and ordinal of every caption of a part as one number: equal for translations of one caption."""
    ords = layout.parts[part]
    return layout.caption_images[ords].astype(np.int64) * (int(layout.ordinals.max()) + 1) + layout.ordinals[ords]
