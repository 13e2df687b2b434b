"""Where items stand in a list when equal scores come in random order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Places(NamedTuple):
    """The places, from 0, that items may have with equal scores in random order: ``start`` to before ``end``."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]

    def at(self, chosen: NDArray[np.intp] | tuple[NDArray[np.int64], NDArray[np.int64]]) -> Places:
        """The places of some items, by their index or by row and place."""
        return Places(self.start[chosen], self.end[chosen])

    def in_top(self, depth: int) -> NDArray[np.float64]:
        """Probability of each item to be among the first 1, 2 … ``depth``, shape ``(n_items, depth)``."""
        size = (self.end - self.start)[:, None]
        return np.clip((np.arange(1, depth + 1) - self.start[:, None]) / size, 0.0, 1.0)


def places_of(scores: NDArray[np.float32]) -> Places:
    """The places of the items of lists with these scores, descending, shape ``(n_queries, depth)``.

    Examples:
        >>> places = places_of(np.float32([[0.9, 0.5, 0.5, 0.1]]))
        >>> places.start.tolist(), places.end.tolist()
        ([[0, 1, 1, 3]], [[1, 3, 3, 4]])
    """
    place = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    first = np.ones(scores.shape, dtype=np.bool_)
    first[:, 1:] = scores[:, 1:] != scores[:, :-1]
    last = np.concatenate([first[:, 1:], np.ones((len(scores), 1), dtype=np.bool_)], axis=1)
    start = np.maximum.accumulate(np.where(first, place, 0), axis=1)
    end = np.minimum.accumulate(np.where(last, place + 1, scores.shape[1])[:, ::-1], axis=1)[:, ::-1]
    return Places(start, end)


def places_among_all(scores: NDArray[np.float32]) -> Places:
    """The places of all items of one query, whatever their order; shape ``(n_items,)``.

    Examples:
        >>> places = places_among_all(np.float32([0.5, 0.9, 0.5]))
        >>> places.start.tolist(), places.end.tolist()
        ([1, 0, 1], [3, 1, 3])
    """
    ascending, n = np.sort(scores), len(scores)
    above, reaching = (n - np.searchsorted(ascending, scores, side=side) for side in ("right", "left"))
    return Places(above, reaching)
