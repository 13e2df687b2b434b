"""Consistency of a language with the reference language: does the same query retrieve the same items?

The two measures do not show quality. nDCG@20 follows the ``eval.py`` of COCO-SM: the gain of an item is
the reference query's softmax over its gallery at temperature 1/100, the list is the other language's top 20, and the
ideal is the reference's own top 20. The denominator of the softmax cancels out.
Rank-biased overlap (Webber, Moffat and Zobel 2010) does not depend on the scale of scores.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.scoring.outcomes import Outcomes
from tasks.scoring.threads import one_thread_each

DEPTH = 20
TEMPERATURE = 100.0
PERSISTENCE = 0.9
_COMPONENTS_PER_PASS = 1 << 20
_ROWS_PER_PASS = 1 << 10  # lists of a pass stay in the processor's caches


class ReferenceDirection(NamedTuple):
    """One direction of the reference language.

    ``outcomes``: of the reference; ``queries`` and ``items``: the float32 vectors of its queries and gallery items, by
    position in the part (captions) or in the corpus (images).
    """

    outcomes: Outcomes
    queries: NDArray[np.float32]
    items: NDArray[np.float32]


def with_consistency(
    outcomes: Outcomes,
    reference: ReferenceDirection,
    *,
    query_of: NDArray[np.int64],
    item_of: NDArray[np.int32] | None,
) -> Outcomes:
    """The outcomes with both measures filled in.

    Args:
        outcomes: Of one language; lists of at least 20 items, or of the whole gallery.
        reference: The same direction of the reference language.
        query_of: int64, shape ``(n_queries,)``: the query of ``reference`` with the same meaning.
        item_of: int32: the reference item of every item; None where the gallery is the same.
    """
    if outcomes.top_ords is None or reference.outcomes.top_ords is None or reference.outcomes.top_scores is None:
        raise ValueError(f"protocol {outcomes.protocol.id!r}: no lists to compare with the reference language")
    top_ords, reference_ords, scores = outcomes.top_ords, reference.outcomes.top_ords, reference.outcomes.top_scores

    def measures(start: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        part = slice(start, start + _ROWS_PER_PASS)
        lists = top_ords[part] if item_of is None else item_of[top_ords[part]]
        return _measures(lists, reference_ords[query_of[part]], scores[query_of[part]], reference, query_of[part])

    with one_thread_each("cpu") as each:
        ndcg, rbo = zip(*each(measures, range(0, len(outcomes), _ROWS_PER_PASS)), strict=True)
    return replace(outcomes, reference_ndcg=np.concatenate(ndcg), reference_rbo=np.concatenate(rbo))


def _measures(
    lists: NDArray[np.int32],
    other: NDArray[np.int32],
    other_scores: NDArray[np.float32],
    reference: ReferenceDirection,
    query_of: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Softmax nDCG and rank-biased overlap of some lists with the reference's lists and scores of the same items."""
    depth = min(DEPTH, lists.shape[1])
    shared = shared_items(lists, other)
    of_list = np.full((len(lists), depth), np.nan)
    near = shared.place < depth
    of_list[shared.row[near], shared.place[near]] = other_scores[shared.row[near], shared.other_place[near]]
    row, place = np.nonzero(np.isnan(of_list))
    of_list[row, place] = _scores(reference, query_of[row], lists[row, place])
    ndcg = softmax_ndcg(of_list, other_scores[:, :depth].astype(np.float64))
    return ndcg, rank_biased_overlap(shared, len(lists), lists.shape[1])


class Shared(NamedTuple):
    """Items in both lists of a row: the row, and the item's place in either list, from 0."""

    row: NDArray[np.int64]
    place: NDArray[np.int64]
    other_place: NDArray[np.int64]


def shared_items(one: NDArray[np.int32], other: NDArray[np.int32]) -> Shared:
    """The items that are in both lists of a row; lists have shape ``(n_rows, depth)``, no item twice in a row."""
    depth = one.shape[1]
    # item, place and list as one number: sorted, an item of both lists stands beside itself, list 0 first
    wide = np.int64 if max(int(one.max()), int(other.max())) >= (1 << 30) // depth else np.int32
    place = np.arange(depth, dtype=wide)
    keys = np.empty((len(one), 2 * depth), dtype=wide)
    for which, items in enumerate((one, other)):
        keys[:, which * depth : (which + 1) * depth] = (items.astype(wide) * 2 + which) * depth + place
    keys.sort(axis=1)
    items = keys // (2 * depth)
    row, at = np.nonzero(items[:, 1:] == items[:, :-1])
    return Shared(row, (keys[row, at] % depth).astype(np.int64), (keys[row, at + 1] % depth).astype(np.int64))


def softmax_ndcg(of_list: NDArray[np.float64], ideal: NDArray[np.float64]) -> NDArray[np.float64]:
    """Discounted gains ``softmax(100 * s)`` of a list over those of the ideal list (nDCG), one value per query.

    Args:
        of_list: Reference scores of the items in the order of the list, shape ``(n_queries, depth)``.
        ideal: Reference scores of the reference's own list, descending, same shape.

    Examples:
        The list has the two items in the wrong order; the reference scores differ by ln(2)/100, so the gains are 2 : 1.

        >>> ideal = np.array([[0.3, 0.3 - np.log(2) / 100]])
        >>> round(float(softmax_ndcg(ideal[:, ::-1], ideal)[0]), 4)  # (1 + 2 * 0.6309) / (2 + 1 * 0.6309)
        0.8597
    """
    discounts = 1 / np.log2(np.arange(2, ideal.shape[1] + 2))
    best = ideal[:, :1]
    gained = (np.exp(TEMPERATURE * (of_list - best)) * discounts).sum(axis=1)
    possible = (np.exp(TEMPERATURE * (ideal - best)) * discounts).sum(axis=1)
    values: NDArray[np.float64] = gained / possible
    return values


def rank_biased_overlap(
    shared: Shared, n_rows: int, depth: int, *, persistence: float = PERSISTENCE
) -> NDArray[np.float64]:
    """Extrapolated rank-biased overlap of two lists per row, 0..1 (RBO_ext of Webber et al. 2010, equation 32).

    ``n_rows`` pairs of lists of length ``depth``; ``persistence`` is the probability of looking one item further.

    Examples:
        The lists (7, 8) and (8, 7) agree on nothing at depth 1 and on everything at depth 2:
        ``1 * p^2 + (1 - p) / p * (0 * p + 1 * p^2)``.

        >>> shared = shared_items(np.int32([[7, 8]]), np.int32([[8, 7]]))
        >>> round(float(rank_biased_overlap(shared, 1, 2)[0]), 4)
        0.9
    """
    both_seen = np.maximum(shared.place, shared.other_place)
    new = np.bincount(shared.row * depth + both_seen, minlength=n_rows * depth).reshape(n_rows, depth)
    agreement = np.cumsum(new, axis=1) / np.arange(1, depth + 1)
    weights = persistence ** np.arange(1, depth + 1)
    tail = agreement[:, -1] * persistence**depth
    values: NDArray[np.float64] = tail + (1 - persistence) / persistence * (agreement @ weights)
    return np.minimum(values, 1.0)  # equal lists sum to 1 and a rounding error


def _scores(reference: ReferenceDirection, queries: NDArray[np.int64], items: NDArray[np.int32]) -> NDArray[np.float64]:
    """Reference scores of pairs that are not in its lists, shape ``(n_pairs,)``."""
    scores = np.empty(len(items), dtype=np.float64)
    step = max(1, _COMPONENTS_PER_PASS // reference.items.shape[1])
    for start in range(0, len(items), step):
        part = slice(start, start + step)
        scores[part] = np.einsum("nd,nd->n", reference.queries[queries[part]], reference.items[items[part]])
    return scores
