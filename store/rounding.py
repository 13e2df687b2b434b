"""What storing vectors in a coarser type changes, and the unit vectors that stored ones stand for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
