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


@dataclass(frozen=True, kw_only=True, eq=False)
class Single:
    """A single-vector encoder's images and captions."""

    images: Side
    captions: Side


@dataclass(frozen=True, kw_only=True, eq=False)
class Multi:
    """A late-interaction encoder's images and captions."""

    images: Ragged
    captions: Ragged


Embedded: TypeAlias = Single | Multi
