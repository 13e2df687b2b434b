"""An encoder's stored vectors of one corpus, as the analyses see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Side:
    """One modality's vectors, one per item.

    Attributes:
        matrix: float32, unit norm, shape ``(n, dim)``, in corpus order.
        norms: float32, shape ``(n,)``: norms before normalisation.
    """

    matrix: NDArray[np.float32]
    norms: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Ragged:
    """One modality's vectors, many per item.

    Attributes:
        values: float32, unit norm, shape ``(sum of counts, dim)``: all vectors of all items, in corpus order.
        offsets: int64, shape ``(n + 1,)``: item ``i`` owns ``values[offsets[i]:offsets[i + 1]]``.
    """

    values: NDArray[np.float32]
    offsets: NDArray[np.int64]

    @property
    def ords(self) -> NDArray[np.int32]:
        """Positions in the corpus, shape ``(n,)``."""
        return np.arange(len(self.offsets) - 1, dtype=np.int32)

    def with_values(self, values: NDArray[np.float32]) -> Ragged:
        """The same items with other vectors."""
        return Ragged(values=values, offsets=self.offsets)

    def take(self, ords: NDArray[np.int32]) -> Ragged:
        """Some items, in the order of ``ords``.

        Examples:
            >>> three = Ragged(values=np.float32([[0], [1], [2], [3]]), offsets=np.array([0, 1, 3, 4]))
            >>> two = three.take(np.int32([2, 1]))
            >>> two.values.ravel().tolist(), two.offsets.tolist()
            ([3.0, 1.0, 2.0], [0, 1, 3])
        """
        pieces = [self.values[self.offsets[i] : self.offsets[i + 1]] for i in ords]
        counts = [len(piece) for piece in pieces]
        return Ragged(values=np.concatenate(pieces), offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    def blocks(self) -> tuple[Ragged]:
        """All items as the one block that a scorer reads."""
        return (self,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Single:
    """A single-vector encoder's images and captions."""

    images: Side
    captions: Side


@dataclass(frozen=True, kw_only=True, eq=False)
class Multi:
    """A late-interaction encoder's images and captions.

    Attributes:
        images: Of all images, or of a part of them where all would be too large.
        captions: Of all captions.
        image_ords: int32: which images ``images`` holds, ascending.
    """

    images: Ragged
    captions: Ragged
    image_ords: NDArray[np.int32]


Embedded: TypeAlias = Single | Multi
