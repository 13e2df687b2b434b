"""The nearest items of every item, exactly, in bounded memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from capim.tasks.scoring.dense import score_blocks
from capim.tasks.scoring.ranks.top_k import TopK, top_k


def nearest_neighbours(vectors: NDArray[np.float32], k: int) -> TopK:
    """The ``k`` items with the highest cosine to each item, itself left out; equal scores by position.

    Args:
        vectors: Unit vectors, shape ``(n, dim)``.
        k: Neighbours of an item; ``n - 1`` where there are fewer.

    Returns:
        Scores and positions, each of shape ``(n, k)``.

    Examples:
        >>> found = nearest_neighbours(np.float32([[1, 0], [0.6, 0.8], [0, 1], [1, 0]]), 2)
        >>> found.positions.tolist()
        [[3, 1], [2, 0], [1, 0], [0, 1]]
    """
    k = min(k, len(vectors) - 1)
    found = TopK(np.empty((len(vectors), k), np.float32), np.empty((len(vectors), k), np.int64))
    for block in score_blocks(vectors, vectors):
        best = top_k(block.scores, k + 1)
        rows = np.arange(block.start, block.start + len(best.positions))
        own = best.positions == rows[:, None]
        own[:, -1] |= ~own.any(axis=1)  # so many equal items that itself is not among the first
        found.scores[rows] = best.scores[~own].reshape(-1, k)
        found.positions[rows] = best.positions[~own].reshape(-1, k)
    return found
