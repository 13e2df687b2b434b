"""The two passes over a block of scores that ranking needs: its best items, and counts past a threshold.

On a CPU they use numpy: its selection, sorting and counting use wide vector units and were measured at 4 to 30 times
the speed of torch's (float32, AVX-512). On other devices they use torch. Both give the same lists and counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capim.store.vectors import positions_within

_LAST = np.iinfo(np.int64).min  # a key that sorts behind every item
_GROUPS = 5  # groups of items per place of the list; only the best of each group is inspected
_LOW = 0x7FFFFFFF
_SCORES_PER_PASS = 1 << 26  # compared at once on a device other than a CPU


class TopK(NamedTuple):
    """The best items of every query, best first: float32 scores and int64 columns, each of shape ``(n_queries, k)``."""

    scores: NDArray[np.float32]
    positions: NDArray[np.int64]

    def of(self, queries: NDArray[np.int64], k: int | None = None) -> TopK:
        """Return the lists of some queries: their first ``k`` items, or all."""
        return TopK(self.scores[queries, :k], self.positions[queries, :k])

    def among(self, members: NDArray[np.bool_], k: int) -> tuple[TopK, NDArray[np.bool_]]:
        """Return the first ``k`` items that are members (at least ``k`` columns), and which lists hold that many.

        Examples:
            >>> best = TopK(np.float32([[0.9, 0.8, 0.7], [0.9, 0.8, 0.7]]), np.array([[2, 0, 1], [0, 2, 3]]))
            >>> some, enough = best.among(np.array([True, True, False, False]), 2)
            >>> some.positions[enough].tolist(), enough.tolist()
            ([[0, 1]], [True, False])
        """
        rows, at = np.nonzero(members[self.positions])
        counts = np.bincount(rows, minlength=len(self.scores))
        place = positions_within(counts)
        kept = place < k
        rows, at, place = rows[kept], at[kept], place[kept]
        some = TopK(np.empty((len(counts), k), np.float32), np.empty((len(counts), k), np.int64))
        some.scores[rows, place] = self.scores[rows, at]
        some.positions[rows, place] = self.positions[rows, at]
        return some, counts >= k


def top_k(scores: Tensor, k: int) -> TopK:
    """Return the ``k`` best items of every query; equal scores are in gallery order, also at the end of the list.

    Selection functions do not define the order of equal scores. They only give a score that at least ``k`` items reach;
    all items that reach it are sorted by score and column together, packed into one integer.

    Args:
        scores: float32, shape ``(n_queries, n_items)``, finite, ``n_items`` below 2**31.
        k: Length of the lists; at most ``n_items`` are returned.

    Examples:
        >>> best = top_k(torch.tensor([[0.5, 0.9, 0.5, 0.1]]), 2)
        >>> best.positions.tolist()
        [[1, 0]]
    """
    k = min(k, scores.shape[1])
    if scores.device.type == "cpu":
        table = scores.numpy()
        flat = np.flatnonzero(table >= kth_score_bound(table, k))
        rows = flat // table.shape[1]
        positions = flat - rows * table.shape[1]
        found = table[rows, positions]
    else:
        rows_, positions_ = torch.nonzero(scores >= _kth_score_bound_on_device(scores, k), as_tuple=True)
        found = scores[rows_, positions_].cpu().numpy()
        rows, positions = rows_.cpu().numpy(), positions_.cpu().numpy()
    keys = _keys(found, positions)
    if len(keys) == len(scores) * k:
        table_of_keys = keys.reshape(len(scores), k)
    else:  # more than k items reach the score: some lists are longer and cut after sorting
        counts = np.bincount(rows, minlength=len(scores))
        table_of_keys = np.full((len(scores), counts.max()), _LAST)
        table_of_keys[rows, positions_within(counts)] = keys
    return _unpacked(np.sort(table_of_keys, axis=1)[:, : -k - 1 : -1])


def merged(lists: Sequence[TopK], k: int) -> TopK:
    """Return the ``k`` best items of several disjoint lists of the same queries; equal scores by position.

    A position below 0 is beyond the end of a list, in the input and in the output.

    Examples:
        >>> one, other = TopK(np.float32([[0.9, 0.5]]), np.array([[7, 8]])), TopK(np.float32([[0.5]]), np.array([[2]]))
        >>> merged([one, other], 2).positions.tolist()
        [[7, 2]]
    """
    keys = [np.where(each.positions < 0, _LAST, _keys(each.scores, each.positions)) for each in lists]
    best = np.sort(np.concatenate(keys, axis=1), axis=1)[:, : -k - 1 : -1]
    beyond, found = best == _LAST, _unpacked(best)
    return TopK(np.where(beyond, np.float32(np.nan), found.scores), np.where(beyond, -1, found.positions))


def kth_score_bound(table: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """Return a score per row that at least ``k`` items reach, and few more; shape ``(n_queries, 1)``.

    It is the ``k``-th highest of the best items of groups, so ``k`` groups have an item that reaches it. Finding the
    best of groups takes one pass over the scores; a selection, which moves them about, then handles a fraction of them.
    """
    size = table.shape[1] // (_GROUPS * k)
    if size > 1:
        n_groups = table.shape[1] // size
        groups = table[:, : n_groups * size].reshape(len(table), size, n_groups)
        table = groups.max(axis=1)
    at = table.shape[1] - k
    return np.partition(table, at, axis=1)[:, at : at + 1]


def _kth_score_bound_on_device(scores: Tensor, k: int) -> Tensor:
    """Compute :func:`kth_score_bound` with torch, for a device that numpy cannot read.

    Examples:
        >>> _kth_score_bound_on_device(torch.arange(23.0)[None], 2).tolist()
        [[20.0]]
    """
    size = scores.shape[1] // (_GROUPS * k)
    if size > 1:
        n_groups = scores.shape[1] // size
        scores = scores[:, : n_groups * size].reshape(-1, size, n_groups).amax(dim=1)
    return torch.topk(scores, k, dim=1).values[:, -1:]


def count_above_and_tied(
    scores: Tensor, rows: NDArray[np.int64], thresholds: NDArray[np.float32], members: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many scores of a query are above a threshold, and how many equal it, in one pass over its scores.

    ``scores`` have shape ``(n_queries, n_items)``; ``rows`` are the queries of the thresholds, ``members`` the items
    that count (all by default).
    """
    above, reached = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    if scores.device.type == "cpu":
        table = scores.numpy()
        hits = np.empty(table.shape[1], dtype=np.bool_)  # stays in the innermost cache, as does the row
        for pair, (row, threshold) in enumerate(zip(rows, thresholds, strict=True)):
            for compare, counts in ((np.greater, above), (np.greater_equal, reached)):
                compare(table[row], threshold, out=hits)
                if members is not None:
                    np.logical_and(hits, members, out=hits)
                counts[pair] = np.count_nonzero(hits)
        return above, reached - above
    step = max(1, _SCORES_PER_PASS // scores.shape[1])
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        part_scores = scores[torch.from_numpy(rows[part]).to(scores.device)]
        if members is not None:
            part_scores = part_scores[:, torch.from_numpy(members).to(scores.device)]
        least = torch.from_numpy(thresholds[part]).to(scores.device)[:, None]
        above[part] = (part_scores > least).sum(dim=1).cpu().numpy()
        reached[part] = (part_scores >= least).sum(dim=1).cpu().numpy()
    return above, reached - above


def _keys(scores: NDArray[np.float32], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return keys that, sorted descending, order scores descending, then columns ascending; -0.0 equals 0.0."""
    bits = (scores + np.float32(0)).view(np.int32)
    ascending = bits ^ ((bits >> 31) & _LOW)
    return (ascending.astype(np.int64) << 32) | (_LOW - positions)


def _unpacked(keys: NDArray[np.int64]) -> TopK:
    ascending = (keys >> 32).astype(np.int32)
    bits = ascending ^ ((ascending >> 31) & _LOW)
    return TopK(bits.view(np.float32), _LOW - (keys & _LOW))


class TieSpan(NamedTuple):
    """The places, from 0, that items may have with equal scores in random order: ``start`` to before ``end``."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]

    def at(self, chosen: NDArray[np.intp] | tuple[NDArray[np.int64], NDArray[np.int64]]) -> TieSpan:
        """Return the places of some items, by their index or by row and place."""
        return TieSpan(self.start[chosen], self.end[chosen])

    def in_top(self, depth: int) -> NDArray[np.float64]:
        """Return each item's probability to be among the first 1, 2 … ``depth``, shape ``(n_items, depth)``."""
        size = (self.end - self.start)[:, None]
        return np.clip((np.arange(1, depth + 1) - self.start[:, None]) / size, 0.0, 1.0)


def tie_spans_of(scores: NDArray[np.float32]) -> TieSpan:
    """Return the places of the items of lists with these descending scores, shape ``(n_queries, depth)``.

    Examples:
        >>> places = tie_spans_of(np.float32([[0.9, 0.5, 0.5, 0.1]]))
        >>> places.start.tolist(), places.end.tolist()
        ([[0, 1, 1, 3]], [[1, 3, 3, 4]])
    """
    place = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    first = np.ones(scores.shape, dtype=np.bool_)
    first[:, 1:] = scores[:, 1:] != scores[:, :-1]
    last = np.concatenate([first[:, 1:], np.ones((len(scores), 1), dtype=np.bool_)], axis=1)
    start = np.maximum.accumulate(np.where(first, place, 0), axis=1)
    end = np.minimum.accumulate(np.where(last, place + 1, scores.shape[1])[:, ::-1], axis=1)[:, ::-1]
    return TieSpan(start, end)


def tie_spans_among_all(scores: NDArray[np.float32]) -> TieSpan:
    """Return the places of all items of one query, in any order; shape ``(n_items,)``.

    Examples:
        >>> places = tie_spans_among_all(np.float32([0.5, 0.9, 0.5]))
        >>> places.start.tolist(), places.end.tolist()
        ([1, 0, 1], [3, 1, 3])
    """
    ascending, n = np.sort(scores), len(scores)
    above, reaching = (n - np.searchsorted(ascending, scores, side=side) for side in ("right", "left"))
    return TieSpan(above, reaching)
