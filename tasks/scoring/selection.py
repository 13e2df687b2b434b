"""The two passes over a strip of scores that ranking needs: its best items, and counting past a threshold.

On a CPU they are numpy's: its selection, sorting and counting use the wide vector units and were measured at 4 to 30
times the speed of torch's (float32, AVX-512). On other devices they are torch's. Both give the same lists and counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_LAST = np.iinfo(np.int64).min  # a key that sorts behind every item
_LOW = 0x7FFFFFFF
_SCORES_PER_PASS = 1 << 26  # compared at once on a device other than a CPU


class Best(NamedTuple):
    """The best items of every query, best first: float32 scores and int64 places in the gallery, ``(n_queries, k)``."""

    scores: NDArray[np.float32]
    positions: NDArray[np.int64]


class Counts(NamedTuple):
    """Per pair of a query and an item: gallery items strictly above it, and level with it (itself included)."""

    above: NDArray[np.int64]
    level: NDArray[np.int64]


def best_of(scores: Tensor, k: int) -> Best:
    """The ``k`` best items of every query; equal scores are in gallery order, also at the end of the list.

    Selection functions say nothing about the order of equal scores. Only the ``k``-th highest score is taken from
    one; all that reaches it is sorted by score and place together, packed into one integer.

    Args:
        scores: float32, shape ``(n_queries, n_items)``, finite, ``n_items`` below 2**31.
        k: Length of the lists; at most ``n_items`` are given.

    Examples:
        >>> best = best_of(torch.tensor([[0.5, 0.9, 0.5, 0.1]]), 2)
        >>> best.positions.tolist()
        [[1, 0]]
    """
    k = min(k, scores.shape[1])
    if scores.device.type == "cpu":
        table = scores.numpy()
        at = table.shape[1] - k
        least = np.partition(table, at, axis=1)[:, at : at + 1]
        rows, positions = np.divmod(np.flatnonzero(table >= least), table.shape[1])
        found = table[rows, positions]
    else:
        least_ = torch.topk(scores, k, dim=1).values[:, -1:]
        rows_, positions_ = torch.nonzero(scores >= least_, as_tuple=True)
        found = scores[rows_, positions_].cpu().numpy()
        rows, positions = rows_.cpu().numpy(), positions_.cpu().numpy()
    keys = _keys(found, positions)
    if len(keys) == len(scores) * k:
        table_of_keys = keys.reshape(len(scores), k)
    else:  # scores tied with the k-th: some lists are longer and cut after sorting
        counts = np.bincount(rows, minlength=len(scores))
        table_of_keys = np.full((len(scores), counts.max()), _LAST)
        table_of_keys[rows, np.arange(len(keys)) - np.repeat(np.cumsum(counts) - counts, counts)] = keys
    return _unpacked(np.sort(table_of_keys, axis=1)[:, : -k - 1 : -1])


def count(scores: Tensor, rows: NDArray[np.int64], thresholds: NDArray[np.float32]) -> Counts:
    """How many scores of each named query are above and level with a threshold, by a pass over its gallery.

    Args:
        scores: float32, shape ``(n_queries, n_items)``.
        rows: int64, shape ``(n,)``.
        thresholds: float32, shape ``(n,)``.
    """
    above, reached = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    if scores.device.type == "cpu":
        table = scores.numpy()
        hits = np.empty(table.shape[1], dtype=np.bool_)  # stays in the innermost cache, as does the row
        for pair, (row, threshold) in enumerate(zip(rows, thresholds, strict=True)):
            above[pair] = np.count_nonzero(np.greater(table[row], threshold, out=hits))
            reached[pair] = np.count_nonzero(np.greater_equal(table[row], threshold, out=hits))
        return Counts(above, reached - above)
    step = max(1, _SCORES_PER_PASS // scores.shape[1])
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        strips = scores[torch.from_numpy(rows[part]).to(scores.device)]
        least = torch.from_numpy(thresholds[part]).to(scores.device)[:, None]
        above[part] = (strips > least).sum(dim=1).cpu().numpy()
        reached[part] = (strips >= least).sum(dim=1).cpu().numpy()
    return Counts(above, reached - above)


def _keys(scores: NDArray[np.float32], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Keys whose descending order is: higher score first, then lower place. -0.0 and 0.0 are one score."""
    bits = (scores + np.float32(0)).view(np.int32)
    ascending = bits ^ ((bits >> 31) & _LOW)
    keys: NDArray[np.int64] = (ascending.astype(np.int64) << 32) | (_LOW - positions)
    return keys


def _unpacked(keys: NDArray[np.int64]) -> Best:
    ascending = (keys >> 32).astype(np.int32)
    bits = ascending ^ ((ascending >> 31) & _LOW)
    return Best(bits.view(np.float32), _LOW - (keys & _LOW))
