"""Where relevant items stand in a strip of scores, and the ranks that follow, ties included.

Nothing here knows where scores come from: dense products and late interaction are ranked by the same code.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.scoring.ranks.best import Best, count


class Standing(NamedTuple):
    """Where relevant items stand: one entry per pair of a query and a relevant item."""

    scores: NDArray[np.float32]
    above: NDArray[np.int64]  # gallery items with a strictly higher score
    level: NDArray[np.int64]  # gallery items with exactly this score, the item itself included


def standing_of(
    scores: Tensor,
    rows: NDArray[np.int64],
    positions: NDArray[np.int64],
    best: Best,
    members: NDArray[np.bool_] | None = None,
) -> Standing:
    """Items above and level with given items of given queries, counted over the whole gallery.

    An item that scores above the end of its query's best list is counted within the list; only the others cost a
    pass over the gallery.

    Args:
        scores: float32, shape ``(n_queries, n_items)``.
        rows: int64, shape ``(n,)``: which query.
        positions: int64, shape ``(n,)``: which item of the gallery.
        best: The best lists of all queries, over the gallery or over all items.
        members: Which items the gallery holds; all by default.
    """
    pairs = torch.from_numpy(rows).to(scores.device), torch.from_numpy(positions).to(scores.device)
    own = scores[pairs].cpu().numpy()
    lists = best.scores[rows]
    listed = True if members is None else members[best.positions[rows]]
    above = np.count_nonzero((lists > own[:, None]) & listed, axis=1)
    level = np.count_nonzero((lists == own[:, None]) & listed, axis=1)
    if best.scores.shape[1] < (scores.shape[1] if members is None else np.count_nonzero(members)):
        deep = np.flatnonzero(own <= lists[:, -1])
        above[deep], level[deep] = count(scores, rows[deep], own[deep], members)
    return Standing(own, above, level)


class Ranks(NamedTuple):
    """Per query: the columns of an outcome; ``low`` and ``high`` hold every relevant item, ascending per query."""

    best_score: NDArray[np.float32]
    rank_best: NDArray[np.int32]
    rank_worst: NDArray[np.int32]
    n_tied_relevant: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]


def ranks_of(standing: Standing, offsets: NDArray[np.int64]) -> Ranks:
    """Lowest and highest rank of every relevant item (``protocols.md`` §4).

    ``c`` relevant items level with ``b`` irrelevant ones, below ``a`` items, take the ranks ``a + 1 … a + c`` at best
    and ``a + b + 1 … a + b + c`` at worst.

    Args:
        standing: Of all relevant items, query after query.
        offsets: int64, shape ``(n_queries + 1,)``: where each query starts.

    Examples:
        >>> standing = Standing(np.float32([0.5, 0.5]), np.array([2, 2]), np.array([5, 5]))
        >>> ranks = ranks_of(standing, np.array([0, 2]))
        >>> ranks.low.tolist(), ranks.high.tolist(), ranks.n_tied_relevant.tolist()
        ([3, 4], [6, 7], [2])
    """
    query = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.lexsort((standing.above, query))
    query, above, level = query[order], standing.above[order], standing.level[order]
    new = np.ones(len(query), dtype=bool)
    new[1:] = (query[1:] != query[:-1]) | (above[1:] != above[:-1])
    group = np.cumsum(new) - 1
    relevant_level = np.bincount(group)[group]
    within = np.arange(len(query)) - np.flatnonzero(new)[group]
    low = above + 1 + within
    high = low + level - relevant_level
    first = offsets[:-1]
    return Ranks(
        best_score=standing.scores[order][first],
        rank_best=low[first].astype(np.int32),
        rank_worst=high[first].astype(np.int32),
        n_tied_relevant=relevant_level[first].astype(np.int32),
        low=low.astype(np.int32),
        high=high.astype(np.int32),
    )
