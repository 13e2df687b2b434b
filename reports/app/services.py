"""What the pages need of models and of computations that reports may not import; the command supplies it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from store.layout import Explanation
from store.types import Modality

Method = Literal["pca", "umap"]


class Found(Protocol):
    """The result of one search (``flows.commands.searching.Search``)."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The nearest items, best first: rank, id, score, and text or hash of the picture."""

    @property
    def modality(self) -> Modality:
        """What was searched."""


class Plane(Protocol):
    """Points (``tasks.results.projection.Plane``)."""

    @property
    def points(self) -> NDArray[np.float32]:
        """Shape ``(n, 2)``, in corpus order."""

    @property
    def shares(self) -> tuple[float, float]:
        """Of the variance, of each axis; NaN where none is known."""


class Kept(Protocol):
    """How much of the neighbourhood the points keep (``tasks.results.maps.Kept``)."""

    @property
    def share(self) -> float:
        """Of the nearest items in space, those that are among the nearest in the plane."""

    @property
    def trustworthiness(self) -> float:
        """As scikit-learn defines it."""

    @property
    def nearest(self) -> int:
        """How many neighbours of an item."""

    @property
    def n_sampled(self) -> int:
        """Items that both are means over."""


class Mapped(Protocol):
    """The map of an embedding set (``tasks.results.maps.Map``)."""

    @property
    def plane(self) -> Plane:
        """Its points."""

    @property
    def kept(self) -> Kept:
        """What the points keep."""


class Services(Protocol):
    """Computations outside ``reports``. Every function raises ``RequestError`` for a wrong request."""

    def search(
        self,
        *,
        encoder: str,
        corpus: str,
        text: str | None = None,
        image: bytes | None = None,
        like: tuple[Modality, int] | None = None,
        modality: Modality | None = None,
        k: int = 10,
    ) -> Found:
        """The nearest items, as ``capim search`` finds them; loads the model of the encoder on its first use.

        ``like``: to a stored item, by its position; needs no model.
        """

    def loaded(self, encoder: str) -> bool:
        """Whether the model of an encoder is in memory."""

    def thumbnail(self, image: bytes) -> bytes:
        """A small JPEG of an encoded image."""

    def map(self, *, encoder: str, corpus: str, modality: Modality, method: Method) -> Mapped:
        """The items of a set of single vectors as points of a plane; kept beside the store."""

    def explain(self, *, encoder: str, corpus: str, pairs: Sequence[tuple[int, int]]) -> list[Explanation]:
        """Of every pair (position of a caption and of an image), where they match; late-interaction encoders only."""
