"""Ragged arrays: many vectors per item, a different number for each, in one contiguous array."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from capim.store.schema import texts


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


# --- What storing vectors in a coarser type changes, and the unit vectors that stored ones stand for.


_UNIT = 2e-6  # a row normalised in float32 has a squared norm within this of 1, whatever its length


@dataclass(frozen=True, kw_only=True)
class Rounding:
    """How much the storage type changed some vectors.

    Attributes:
        n_values: Components that were stored.
        n_changed: Components whose stored value is not the given one.
        largest: Largest change of a vector, as a fraction of its length.
    """

    n_values: int = 0
    n_changed: int = 0
    largest: float = 0.0

    def __add__(self, other: Rounding) -> Rounding:
        return Rounding(
            n_values=self.n_values + other.n_values,
            n_changed=self.n_changed + other.n_changed,
            largest=max(self.largest, other.largest),
        )

    def text(self, storage: str) -> str:
        """One clause for a message; empty if nothing was changed.

        Examples:
            >>> Rounding(n_values=512, n_changed=500, largest=2.1e-4).text("float16")
            'stored as float16: 500 of 512 values rounded, each vector by at most 0.021 % of its length'
            >>> Rounding(n_values=512).text("float16")
            ''
        """
        if not self.n_changed:
            return ""
        percent = 100 * self.largest
        change = f"at most {percent:.2g} %" if percent >= 0.001 else "less than 0.001 %"
        return (
            f"stored as {storage}: {self.n_changed:,} of {self.n_values:,} values rounded, each vector by {change} of "
            "its length"
        )


def rounding_of(unit: NDArray[np.floating], storage: str) -> Rounding:
    """What storing these unit vectors, shape ``(n, dim)``, as ``storage`` changes.

    Examples:
        >>> rounding_of(np.array([[0.6, 0.8], [1.0, 0.0]]), "float32").n_changed
        2
    """
    n_changed, largest = 0, 0.0
    if unit.dtype != np.dtype(storage) and len(unit):
        change = unit - unit.astype(storage).astype(unit.dtype)
        n_changed = int(np.count_nonzero(change))
        largest = float(np.sqrt(np.einsum("ij,ij->i", change, change).max(initial=0.0)))
    return Rounding(n_values=unit.size, n_changed=n_changed, largest=largest)


def unit_vectors(values: NDArray[np.floating]) -> NDArray[np.float32]:
    """Stored rows, shape ``(n, dim)``, as float32 rows of unit norm.

    Rows of unit norm in float32 stay as they are, to the last bit. A row rounded to float16 has another norm (cosines
    with it would reach 1.0005), and is divided by it. A row's result depends on that row alone: copies stay copies.

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


# --- The map of an embedding set: its items as points of a plane (``tasks.results.maps`` makes it).


Method: TypeAlias = Literal["pca", "umap"]


class Plane(NamedTuple):
    """Points, float32, shape ``(n, 2)``; and the share of the variance that each axis has, NaN where none is known."""

    points: NDArray[np.float32]
    shares: tuple[float, float]


class Kept(NamedTuple):
    """How much of the neighbourhood a plane keeps; NaN of both where there are too few items.

    Attributes:
        share: Of the nearest items of an item in the space of the vectors, the mean share that are among as many
            nearest ones in the plane.
        trustworthiness: Venna and Kaski (2001), as scikit-learn defines it: 1 less a penalty for every item that is
            near in the plane and not in the space, by its rank in the space.
        nearest: How many neighbours of an item.
        n_sampled: Items that the means are over.
    """

    share: float
    trustworthiness: float
    nearest: int
    n_sampled: int


class Map(NamedTuple):
    """The items of an embedding set as points, in corpus order, and what these keep."""

    plane: Plane
    kept: Kept


# --- Checksums of stored rows: Lance has none, and would return a bit that was flipped on disk as a vector or a figure.
#
# Every row of an embedding set has a CRC-32 of its vector bytes, started from a value that depends on the position,
# norm, token count, truncation flag and layout: a change of any of them, or a vector moved to another item, is detected
# when the row is read, which is less work than the digests of all files (``store.tables.digests``). The digest of a set
# is the SHA-256 of these checksums in corpus order.


_MIX = np.uint32(2654435761)  # Knuth's multiplicative constant: spreads small integers over 32 bits


def row_seeds(
    ords: NDArray[np.int32],
    norms: NDArray[np.float32],
    n_tokens: NDArray[np.int32],
    truncated: NDArray[np.bool_],
    layouts: pa.Array | None = None,
) -> NDArray[np.uint32]:
    """The start value of the CRC of every row; all arguments have shape ``(n,)``. Empty layouts change nothing.

    Every step is invertible in its field, so a change of any one field changes the seed.

    Examples:
        >>> ords, norms = np.array([0, 1], np.int32), np.array([1, 1], np.float32)
        >>> seeds = row_seeds(ords, norms, np.zeros(2, np.int32), np.zeros(2, bool))
        >>> bool(seeds[0] != seeds[1])
        True
    """
    seeds = ords.astype(np.uint32) * _MIX
    seeds = (seeds ^ norms.astype(np.float32).view(np.uint32)) * _MIX
    seeds = (seeds ^ n_tokens.astype(np.uint32)) * _MIX
    seeds = (seeds ^ truncated.astype(np.uint32)) * _MIX
    if layouts is None:
        return seeds
    encoded = layouts.dictionary_encode()
    sums = np.array([zlib.crc32(text.encode()) for text in texts(encoded.dictionary)] or [0], dtype=np.uint32)
    with_layouts: NDArray[np.uint32] = seeds ^ sums[encoded.indices.to_numpy()]
    return with_layouts


def row_checksums(
    values: NDArray[np.floating], offsets: NDArray[np.int64], seeds: NDArray[np.uint32]
) -> NDArray[np.uint32]:
    """CRC-32 of every row's stored components.

    Args:
        values: All vectors as stored, C-contiguous, shape ``(sum of counts, dim)``.
        offsets: Row ``i`` owns vectors ``offsets[i]:offsets[i + 1]``; shape ``(n + 1,)``.
        seeds: From :func:`row_seeds`, shape ``(n,)``.

    Returns:
        uint32, shape ``(n,)``.

    Examples:
        >>> row_checksums(np.zeros((1, 4), np.float16), np.array([0, 1]), np.array([0], np.uint32)).tolist()
        [1696784233]
        >>> zlib.crc32(bytes(8))
        1696784233
    """
    data = np.ascontiguousarray(values).data.cast("B")
    width = values.shape[1] * values.itemsize
    bounds = (offsets * width).tolist()
    crc32 = zlib.crc32
    return np.fromiter(
        (crc32(data[start:stop], seed) for start, stop, seed in zip(bounds, bounds[1:], seeds.tolist(), strict=False)),
        dtype=np.uint32,
        count=len(seeds),
    )


def digest(checksums: NDArray[np.uint32]) -> str:
    """SHA-256, hexadecimal, of the checksums in corpus order (as little-endian uint32)."""
    return hashlib.sha256(checksums.astype("<u4").tobytes()).hexdigest()
