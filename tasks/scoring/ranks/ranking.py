"""Ranks of relevant items, ties included (``docs/protocols.md`` §4).

Dense products, late interaction, re-ranked and fused lists are all ranked by this code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from capim.tasks.scoring.protocols.builders import RetrievalTask
from capim.tasks.scoring.ranks.tied_places import places_of
from capim.tasks.scoring.ranks.top_k import TopK, count_above_and_tied

_NEAR = 10  # items of a list whose share of unjudged ones is stored


class RelevantScores(NamedTuple):
    """The score of every relevant item and its competitors: one entry per pair of a query and a relevant item."""

    scores: NDArray[np.float32]
    n_above: NDArray[np.int64]  # gallery items with a strictly higher score
    n_tied: NDArray[np.int64]  # gallery items with exactly this score, the item itself included

    def take(self, entries: NDArray[Any]) -> RelevantScores:
        """Some entries, by position or mask."""
        return RelevantScores(self.scores[entries], self.n_above[entries], self.n_tied[entries])


def competitors(
    scores: Tensor,
    rows: NDArray[np.int64],
    own: NDArray[np.float32],
    best: TopK,
    members: NDArray[np.bool_] | None = None,
) -> RelevantScores:
    """Given scores of some queries, with the items above and tied among those of a gallery that ``scores`` hold.

    An item that scores above the end of its query's best list is counted within the list; only the others cost a
    pass over the gallery.

    Args:
        scores: float32, shape ``(n_queries, n_items)``.
        rows: int64, shape ``(n,)``: the query of each score.
        own: float32, shape ``(n,)``.
        best: The best lists of all queries, over the gallery or over all items.
        members: Which items the gallery holds; all by default.
    """
    lists = best.scores[rows]
    listed = True if members is None else members[best.positions[rows]]
    above = np.count_nonzero((lists > own[:, None]) & listed, axis=1)
    tied = np.count_nonzero((lists == own[:, None]) & listed, axis=1)
    if best.scores.shape[1] < (scores.shape[1] if members is None else np.count_nonzero(members)):
        deep = np.flatnonzero(own <= lists[:, -1])
        above[deep], tied[deep] = count_above_and_tied(scores, rows[deep], own[deep], members)
    return RelevantScores(own, above, tied)


def relevant_in_lists(
    lists: NDArray[np.int32], scores: NDArray[np.floating], task: RetrievalTask, *, unlisted: float
) -> tuple[RelevantScores, NDArray[np.bool_]]:
    """Scores of a task's relevant items, with the items of their query's list above and tied, and which are listed.

    Args:
        lists: Items of every query, shape ``(n_queries, length)``.
        scores: Their scores, same shape.
        task: The queries, in the order of the lists, and their relevant items.
        unlisted: Score of a relevant item that its list does not hold.
    """
    query = task.query_of_relevant
    hits = lists[query] == task.relevant[:, None]
    listed = hits.any(axis=1)
    own = np.where(listed, scores[query, hits.argmax(axis=1)], unlisted)
    above = np.count_nonzero(scores[query] > own[:, None], axis=1)
    tied = np.count_nonzero(scores[query] == own[:, None], axis=1)
    return RelevantScores(own.astype(np.float32), above, tied), listed


class Ranks(NamedTuple):
    """The rank columns of :class:`tasks.scoring.outcomes.Outcomes`."""

    best_score: NDArray[np.float32]
    rank_best: NDArray[np.int32]
    rank_worst: NDArray[np.int32]
    n_tied_relevant: NDArray[np.int32]
    relevant_rank_best: NDArray[np.int32]
    relevant_rank_worst: NDArray[np.int32]
    relevant_grades: NDArray[np.int32] | None = None
    relevant_scores: NDArray[np.float32] | None = None


def ranks_of(relevant: RelevantScores, offsets: NDArray[np.int64], grades: NDArray[np.int32] | None = None) -> Ranks:
    """Lowest and highest rank of every relevant item.

    ``c`` relevant items tied with ``b`` irrelevant ones, below ``a`` items, take the ranks ``a + 1 … a + c`` at best
    and ``a + b + 1 … a + b + c`` at worst.

    Args:
        relevant: Of all relevant items, query after query.
        offsets: int64, shape ``(n_queries + 1,)``: where each query starts.
        grades: Of all relevant items, where documents were judged.

    Examples:
        >>> two = RelevantScores(np.float32([0.5, 0.5]), np.array([2, 2]), np.array([5, 5]))
        >>> ranks = ranks_of(two, np.array([0, 2]))
        >>> ranks.relevant_rank_best.tolist(), ranks.relevant_rank_worst.tolist(), ranks.n_tied_relevant.tolist()
        ([3, 4], [6, 7], [2])
    """
    query = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.lexsort((relevant.n_above, query) if grades is None else (-grades, relevant.n_above, query))
    query, above, tied = query[order], relevant.n_above[order], relevant.n_tied[order]
    new = np.ones(len(query), dtype=bool)
    new[1:] = (query[1:] != query[:-1]) | (above[1:] != above[:-1])
    group = np.cumsum(new) - 1
    tied_relevant = np.bincount(group)[group]
    best = above + 1 + np.arange(len(query)) - np.flatnonzero(new)[group]
    worst = best + tied - tied_relevant
    first = offsets[:-1]
    return Ranks(
        best_score=relevant.scores[order][first],
        rank_best=best[first].astype(np.int32),
        rank_worst=worst[first].astype(np.int32),
        n_tied_relevant=tied_relevant[first].astype(np.int32),
        relevant_rank_best=best.astype(np.int32),
        relevant_rank_worst=worst.astype(np.int32),
        relevant_grades=None if grades is None else grades[order],
        relevant_scores=None if grades is None else relevant.scores[order],
    )


def unjudged_share(
    task: RetrievalTask, top_ords: NDArray[np.int32], top_scores: NDArray[np.float32]
) -> NDArray[np.float64] | None:
    """Share of the 10 best items that nobody judged, shape ``(n_queries,)``; None where no documents were judged.

    The lists are those of the outcomes. Equal scores are in random order as far as the list holds them.
    """
    if task.dismissed is None:
        return None
    n_items = int(task.galleries[0].max()) + 1
    judged = np.concatenate(
        [task.query_of_relevant * n_items + task.relevant, task.dismissed[:, 0] * n_items + task.dismissed[:, 1]]
    )
    found = top_ords >= 0
    unknown = found & ~np.isin(np.arange(len(top_ords))[:, None] * n_items + top_ords, judged)
    places = places_of(np.where(found, top_scores, -np.inf).astype(np.float32))
    within = np.clip((_NEAR - places.start) / (places.end - places.start), 0.0, 1.0)
    share: NDArray[np.float64] = (within * unknown).sum(axis=1) / np.minimum(found.sum(axis=1), _NEAR)
    return share
