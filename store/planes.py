"""The map of an embedding set: its items as points of a plane (``tasks.results.maps`` makes it)."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
