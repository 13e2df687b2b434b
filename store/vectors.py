"""Vectors in memory: unit norm, rounding, ragged arrays of many per item, and the meaning of each of these.

Each vector of many represents a patch of the image or a token of the caption.

A layout is a JSON string in the column ``layout`` of an embedding set. For a caption it is the list of its tokens, one
per vector; for an image a list of grids, and vectors outside all grids are special tokens. Empty: unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capim.store.types import canonical_json

_UNIT = 2e-6  # a row normalised in float32 has a squared norm within this of 1, whatever its length
UNKNOWN = ""  # a layout


def unit_vectors(values: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return stored rows, shape ``(n, dim)``, as float32 rows of unit norm.

    Rows of unit norm in float32 do not change, to the last bit. A row rounded to float16 has another norm (cosines with
    it would reach 1.0005), and is divided by it. A row's result depends only on that row: copies stay copies.

    Examples:
        >>> unit_vectors(np.float32([[0.6, 0.8], [3.0, 4.0]])).tolist() == np.float32([[0.6, 0.8]] * 2).tolist()
        True
    """
    rows = np.asarray(values, dtype=np.float32)
    squares = np.square(rows).sum(axis=1)  # pairwise, row by row
    off = np.flatnonzero(np.abs(squares - 1) > _UNIT)
    if not len(off):
        return rows
    unit = rows.copy() if rows is values else rows
    unit[off] /= np.sqrt(squares[off])[:, None]
    return unit


def rounding_of(unit: NDArray[np.floating], storage: str) -> float:
    """Return the length of the largest change of a vector by storing unit vectors, shape ``(n, dim)``, as ``storage``.

    Examples:
        >>> rounding_of(np.array([[0.6, 0.8], [1.0, 0.0]]), "float64")
        0.0
    """
    if unit.dtype == np.dtype(storage):
        return 0.0
    change = unit - unit.astype(storage).astype(unit.dtype)
    return float(np.sqrt(np.einsum("ij,ij->i", change, change).max(initial=0.0)))


def rounding_text(rounding: float, storage: str) -> str:
    """Return the largest change by :func:`rounding_of` as a clause; empty if there is none.

    Examples:
        >>> rounding_text(2.1e-4, "float16"), rounding_text(0.0, "float16")
        ('stored as float16: each vector rounded by at most 0.021% of its length', '')
    """
    percent = f"at most {100 * rounding:.2g}" if rounding >= 1e-5 else "less than 0.001"
    return f"stored as {storage}: each vector rounded by {percent}% of its length" if rounding else ""


def offsets_of(counts: ArrayLike) -> NDArray[np.int64]:
    """Return the start of each of several consecutive runs, and the end of the last: int64, shape ``(n_runs + 1,)``.

    Examples:
        >>> offsets_of([2, 3]).tolist()
        [0, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(np.asarray(counts, dtype=np.int64))]).astype(np.int64)


def positions_within(counts: ArrayLike) -> NDArray[np.int64]:
    """Return positions 0, 1, 2 and so on within each of several consecutive runs, shape ``(sum of counts,)``.

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
        """Return items from one array each, shape ``(n_vectors_of_item, dim)``; ``ords`` default to 0, 1, 2 and so on.

        Examples:
            >>> two = Ragged.of([np.float32([[1], [2]]), np.float32([[3]])])
            >>> two.offsets.tolist(), two[0].ravel().tolist()
            ([0, 2, 3], [1.0, 2.0])
        """
        return cls.from_counts(np.concatenate(items), [len(item) for item in items], ords)

    @classmethod
    def from_counts(cls, values: NDArray[np.floating], counts: ArrayLike, ords: ArrayLike | None = None) -> Ragged:
        """Return items with these numbers of vectors, ``counts``, shape ``(n_items,)``.

        Raises:
            ValueError: If the counts do not add up to the rows of ``values``, or if there is not one ord per item.
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
        """Return all items of several parts, in order, each with its ord.

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
        """Number of vectors of each item, shape ``(n_items,)``."""
        return np.diff(self.offsets)

    def take(self, items: ArrayLike) -> Ragged:
        """Return some items, by their positions here, in the given order.

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
        """Return items ``start`` to ``stop`` (exclusive), as a view.

        Examples:
            >>> Ragged.of([np.float32([[0]]), np.float32([[1], [2]])]).slice(1, 2).values.ravel().tolist()
            [1.0, 2.0]
        """
        first, last = self.offsets[start], self.offsets[min(stop, len(self))]
        kept = self.offsets[start : stop + 1] - first
        return Ragged(values=self.values[first:last], offsets=kept, ords=self.ords[start:stop])

    def with_values(self, values: NDArray[np.floating]) -> Ragged:
        """Return the same items with other vectors, and the same number for each item."""
        if len(values) != len(self.values):
            raise ValueError(f"got {len(values)} vectors for items that have {len(self.values)}")
        return replace(self, values=values)


class PatchGrid(NamedTuple):
    """Patches of an image, or of a tile of it, row by row.

    Attributes:
        first: Position of the vector of the upper left patch.
        rows: Number of patches from top to bottom.
        columns: Number of patches from left to right.
        left: Left edge of the grid, as a fraction of the width of the image.
        top: Upper edge, as a fraction of the height.
        width: Width, as a fraction of the width of the image.
        height: Height, as a fraction of the height.
    """

    first: int
    rows: int
    columns: int
    left: float = 0.0
    top: float = 0.0
    width: float = 1.0
    height: float = 1.0

    @property
    def vectors(self) -> slice:
        """Positions of its vectors among those of the image."""
        return slice(self.first, self.first + self.rows * self.columns)

    def boxes(self) -> NDArray[np.float64]:
        """Return left, top, right and lower edge of every patch as fractions of the image, ``(rows × columns, 4)``.

        Examples:
            >>> PatchGrid(0, 1, 2).boxes().tolist()
            [[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]]
        """
        rows, columns = np.divmod(np.arange(self.rows * self.columns), self.columns)
        wide, high = self.width / self.columns, self.height / self.rows
        left, top = self.left + columns * wide, self.top + rows * high
        return np.stack([left, top, left + wide, top + high], axis=1)


def layout_of_grids(grids: Sequence[PatchGrid]) -> str:
    """Return the layout of an image; unknown without grids.

    Examples:
        >>> layout_of_grids([PatchGrid(0, 4, 4)])
        '[[0,4,4,0.0,0.0,1.0,1.0]]'
    """
    return canonical_json([list(grid) for grid in grids]) if grids else UNKNOWN


def layout_of_tokens(tokens: Sequence[str]) -> str:
    """Return the layout of a caption.

    Examples:
        >>> layout_of_tokens(["a", "bus"])
        '["a","bus"]'
    """
    return canonical_json(list(tokens))


def grids_of(layout: str) -> tuple[PatchGrid, ...]:
    """Return the grids of an image's layout; empty if it is unknown."""
    return tuple(PatchGrid(*grid) for grid in json.loads(layout)) if layout else ()


def tokens_of(layout: str) -> tuple[str, ...]:
    """Return the tokens of a caption's layout; empty if it is unknown."""
    return tuple(json.loads(layout)) if layout else ()


def layout_fault(layout: str, n_vectors: int) -> str | None:
    """Return the error in the layout of an item with so many vectors; None if it is valid.

    Examples:
        >>> layout_fault('["a","bus"]', 3)
        '2 tokens for 3 vectors'
        >>> layout_fault('[[0,4,4,0.0,0.0,1.0,1.0]]', 16)
    """
    parts = json.loads(layout) if layout else []
    if parts and isinstance(parts[0], str):
        return None if len(parts) == n_vectors else f"{len(parts)} tokens for {n_vectors} vectors"
    for grid in starmap(PatchGrid, parts):
        if grid.first < 0 or grid.vectors.stop > n_vectors:
            return f"a grid of vectors {grid.first} to {grid.vectors.stop} for {n_vectors} vectors"
    return None


@dataclass(frozen=True, kw_only=True, eq=False)
class Explanation:
    """The score of one caption with one image by one encoder.

    Attributes:
        encoder: Name of the encoder.
        corpus: Name of the corpus.
        caption_id: Id of the caption.
        image_id: Id of the image.
        text: The caption; empty if only its id is stored.
        sha: Hash of the image's bytes, the key of its thumbnail; empty if unknown.
        tokens: Tokens of the caption, one per vector.
        shares: float32, shape ``(n_tokens,)``: cosine with the best vector of the image; they add up to the score.
        similarities: float32, shape ``(n_tokens, n_vectors)``: cosine with every vector of the image.
        grids: Positions of the vectors that are patches; the others are special tokens.
    """

    encoder: str
    corpus: str
    caption_id: str
    image_id: str
    text: str
    sha: str
    tokens: tuple[str, ...]
    shares: NDArray[np.float32]
    similarities: NDArray[np.float32]
    grids: tuple[PatchGrid, ...]

    @property
    def score(self) -> float:
        """The score of the pair."""
        return float(np.add.reduceat(self.shares, [0])[0])

    def best_boxes(self) -> NDArray[np.float64]:
        """Return the best match of every token, shape ``(n_tokens, 4)``: left, top, right, lower edge as fractions.

        Fractions are of the image. Among equally close patches, the first one; NaN if a special token is closest.
        """
        boxes = np.full((self.similarities.shape[1], 4), np.nan)
        for grid in self.grids:
            boxes[grid.vectors] = grid.boxes()
        found: NDArray[np.float64] = boxes[self.similarities.argmax(axis=1)]
        return found
