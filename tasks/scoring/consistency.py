"""How far a language retrieves what the reference language retrieves for the same query.

The two measures are of consistency, not of quality. nDCG@20 follows the ``eval.py`` of COCO-SM: the gain of an item is
the reference query's softmax over its gallery at temperature 1/100, the list is the other language's top 20, and the
ideal is the reference's own top 20. The softmax's denominator is the same above and below the line and falls out.
Rank-biased overlap (Webber, Moffat and Zobel 2010) does not depend on the scale of scores.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.scoring.outcomes import Outcomes

DEPTH = 20
TEMPERATURE = 100.0
PERSISTENCE = 0.9
_COMPONENTS_PER_PASS = 1 << 24


class Side(NamedTuple):
    """One direction of the reference language.

    ``outcomes``: of the reference; ``queries`` and ``items``: the float32 vectors of its queries and gallery items, by
    position in the part (captions) or in the corpus (images).
    """

    outcomes: Outcomes
    queries: NDArray[np.float32]
    items: NDArray[np.float32]


def compared(
    outcomes: Outcomes, reference: Side, *, query_of: NDArray[np.int64], item_of: NDArray[np.int64] | None
) -> Outcomes:
    """The outcomes with both measures filled in.

    Args:
        outcomes: Of one language; lists of at least 20 items, or of the whole gallery.
        reference: The same direction of the reference language.
        query_of: int64, shape ``(n_queries,)``: row of ``reference`` that asks the same.
        item_of: Reference item for every item that the lists can name; None where the gallery is the same.
    """
    if outcomes.top_ords is None or reference.outcomes.top_ords is None or reference.outcomes.top_scores is None:
        raise ValueError(f"protocol {outcomes.protocol.id!r}: lists are needed to compare with the reference language")
    lists = outcomes.top_ords.astype(np.int64) if item_of is None else item_of[outcomes.top_ords]
    depth = min(DEPTH, lists.shape[1])
    of_list = _scores(reference, query_of, lists[:, :depth])
    ideal = reference.outcomes.top_scores[query_of, :depth].astype(np.float64)
    return replace(
        outcomes,
        reference_ndcg=softmax_ndcg(of_list, ideal),
        reference_rbo=rank_biased_overlap(lists, reference.outcomes.top_ords[query_of].astype(np.int64)),
    )


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
    found = (np.exp(TEMPERATURE * (of_list - best)) * discounts).sum(axis=1)
    possible = (np.exp(TEMPERATURE * (ideal - best)) * discounts).sum(axis=1)
    values: NDArray[np.float64] = found / possible
    return values


def rank_biased_overlap(
    one: NDArray[np.int64], other: NDArray[np.int64], *, persistence: float = PERSISTENCE
) -> NDArray[np.float64]:
    """Extrapolated rank-biased overlap of two lists per row, 0..1 (RBO_ext of Webber et al. 2010, equation 32).

    Args:
        one: Items, shape ``(n_queries, depth)``, no item twice in a row.
        other: Same shape; symmetric.
        persistence: Probability of looking one item further.

    Examples:
        Depth 1 agrees on nothing, depth 2 on everything: ``1 * p^2 + (1 - p) / p * (0 * p + 1 * p^2)``.

        >>> round(float(rank_biased_overlap(np.array([[7, 8]]), np.array([[8, 7]]))[0]), 4)
        0.9
    """
    n, depth = one.shape
    place = np.arange(depth, dtype=np.int64)
    # both lists as (item, place) keys in one row, sorted: an item that both name stands twice in a row
    keys = np.concatenate([(items << 32) | place for items in (one, other)], axis=1)
    keys.sort(axis=1)
    items, places = keys >> 32, keys & 0xFFFFFFFF
    rows, at = np.nonzero(items[:, 1:] == items[:, :-1])
    both_seen = np.maximum(places[rows, at], places[rows, at + 1])
    new = np.bincount(rows * depth + both_seen, minlength=n * depth).reshape(n, depth)
    agreement = np.cumsum(new, axis=1) / (place + 1)
    weights = persistence ** (place + 1)
    tail = agreement[:, -1] * persistence**depth
    values: NDArray[np.float64] = tail + (1 - persistence) / persistence * (agreement * weights).sum(axis=1)
    return values


def _scores(reference: Side, query_of: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.float64]:
    """Reference scores of listed items; the lists reach beyond what the reference's outcomes keep."""
    found = np.empty(items.shape, dtype=np.float64)
    step = max(1, _COMPONENTS_PER_PASS // (items.shape[1] * reference.items.shape[1]))
    for start in range(0, len(items), step):
        part = slice(start, start + step)
        queries = reference.queries[query_of[part]]
        found[part] = np.matmul(reference.items[items[part]], queries[:, :, None])[:, :, 0]
    return found
