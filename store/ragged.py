"""Ragged arrays: many vectors per item, a different number for each, in one contiguous array."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray


def offsets_of(counts: ArrayLike) -> NDArray[np.int64]:
    """Where each of several consecutive runs starts, and where the last one ends: int64, shape ``(n_runs + 1,)``.

    Examples:
        >>> offsets_of([2, 3]).tolist()
        [0, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(np.asarray(counts, dtype=np.int64))]).astype(np.int64)


def positions_within(counts: ArrayLike) -> NDArray[np.int64]:
    """Positions 0, 1, 2 and so on within each of several consecutive runs, shape ``(sum of counts,)``.

    Examples:
        >>> positions_within([2, 3]).tolist()
        [0, 1, 0, 1, 2]
    """
    lengths, offsets = np.asarray(counts, dtype=np.int64), offsets_of(counts)
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ragged:
    """The multi-vectors of several items.

    Attributes:
        values: All vectors of all items, one item after the other, shape ``(n_vectors, dim)``.
        offsets: int64, shape ``(n_items + 1,)``: item ``i`` owns ``values[offsets[i]:offsets[i + 1]]``.
        ords: int32, shape ``(n_items,)``: the position of each item in the corpus.
    """

    values: NDArray[np.floating]
    offsets: NDArray[np.int64]
    ords: NDArray[np.int32]

    @classmethod
    def of(cls, items: Sequence[NDArray[np.floating]], ords: ArrayLike | None = None) -> Ragged:
        """The items given as one array each, shape ``(n_vectors_of_item, dim)``; ``ords`` default to 0, 1, 2 and so on.

        Examples:
            >>> two = Ragged.of([np.float32([[1], [2]]), np.float32([[3]])])
            >>> two.offsets.tolist(), two[0].ravel().tolist()
            ([0, 2, 3], [1.0, 2.0])
        """
        return cls.from_counts(np.concatenate(items), [len(item) for item in items], ords)

    @classmethod
    def from_counts(cls, values: NDArray[np.floating], counts: ArrayLike, ords: ArrayLike | None = None) -> Ragged:
        """The items whose numbers of vectors are ``counts``, shape ``(n_items,)``.

        Raises:
            ValueError: The counts do not add up to the rows of ``values``, or there is not one ord per item.
        """
        offsets = offsets_of(counts)
        positions = np.arange(len(offsets) - 1, dtype=np.int32) if ords is None else np.asarray(ords, dtype=np.int32)
        if offsets[-1] != len(values):
            raise ValueError(f"the counts add up to {offsets[-1]} vectors, got {len(values)}")
        if len(positions) != len(offsets) - 1:
            raise ValueError(f"got {len(positions)} ords for {len(offsets) - 1} items")
        return cls(values=values, offsets=offsets, ords=positions)

    @classmethod
    def concatenate(cls, parts: Iterable[Ragged]) -> Ragged:
        """All items of several parts, in order, each with the ord that it had.

        Examples:
            >>> part = Ragged.of([np.float32([[1], [2]]), np.float32([[3]])], ords=[4, 5])
            >>> Ragged.concatenate([part, part]).ords.tolist()
            [4, 5, 4, 5]
        """
        every = list(parts)
        return cls.from_counts(
            np.concatenate([part.values for part in every]),
            np.concatenate([part.counts for part in every]),
            np.concatenate([part.ords for part in every]),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, item: int) -> NDArray[np.floating]:
        return self.values[self.offsets[item] : self.offsets[item + 1]]

    def __iter__(self) -> Iterator[NDArray[np.floating]]:
        return (self[item] for item in range(len(self)))

    @property
    def counts(self) -> NDArray[np.int64]:
        """Vectors per item, shape ``(n_items,)``."""
        return np.diff(self.offsets)

    def take(self, items: ArrayLike) -> Ragged:
        """Some items, by their positions here, in the order given.

        Examples:
            >>> three = Ragged.of([np.float32([[0]]), np.float32([[1], [2]]), np.float32([[3]])])
            >>> two = three.take([2, 1])
            >>> two.values.ravel().tolist(), two.offsets.tolist(), two.ords.tolist()
            ([3.0, 1.0, 2.0], [0, 1, 3], [2, 1])
        """
        wanted = np.asarray(items, dtype=np.int64)
        counts = self.counts[wanted]
        rows = positions_within(counts) + np.repeat(self.offsets[wanted], counts)
        return Ragged.from_counts(self.values[rows], counts, self.ords[wanted])

    def slice(self, start: int, stop: int) -> Ragged:
        """Items ``start`` to ``stop`` (exclusive), as a view.

        Examples:
            >>> Ragged.of([np.float32([[0]]), np.float32([[1], [2]])]).slice(1, 2).values.ravel().tolist()
            [1.0, 2.0]
        """
        first, last = self.offsets[start], self.offsets[min(stop, len(self))]
        kept = self.offsets[start : stop + 1] - first
        return Ragged(values=self.values[first:last], offsets=kept, ords=self.ords[start:stop])

    def with_values(self, values: NDArray[np.floating]) -> Ragged:
        """The same items with other vectors, as many of each as before."""
        if len(values) != len(self.values):
            raise ValueError(f"got {len(values)} vectors for items that have {len(self.values)}")
        return replace(self, values=values)
