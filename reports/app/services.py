"""What the pages need of models and of computations that reports may not import; the command supplies it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from capim.reports.search import Search
from capim.store.multivectors import Explanation
from capim.store.types import Map, Method, Modality


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
    ) -> Search:
        """The nearest items, as ``capim search`` finds them; loads the model of the encoder on its first use.

        ``like``: to a stored item, by its position; needs no model.
        """

    def loaded(self, encoder: str) -> bool:
        """Whether the model of an encoder is in memory."""

    def thumbnail(self, image: bytes) -> bytes:
        """A small JPEG of an encoded image."""

    def map(self, *, encoder: str, corpus: str, modality: Modality, method: Method) -> Map:
        """The items of a set of single vectors as points of a plane; kept beside the store."""

    def explain(self, *, encoder: str, corpus: str, pairs: Sequence[tuple[int, int]]) -> list[Explanation]:
        """Of every pair (position of a caption and of an image), where they match; late-interaction encoders only."""
