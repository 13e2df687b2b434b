"""What the pages need of models and of computations that reports may not import; the command supplies it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store.layout import Explanation


class Found(Protocol):
    """The result of one search (``flows.commands.searching.Search``)."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The nearest items, best first: rank, id, score, and text or hash of the picture."""


class Services(Protocol):
    """Computations outside ``reports``. Every function raises ``RequestError`` for a wrong request."""

    def search(
        self,
        *,
        encoder: str,
        corpus: str,
        text: str | None = None,
        image: bytes | None = None,
        vector: NDArray[np.float32] | None = None,
        modality: str | None = None,
        k: int = 10,
    ) -> Found:
        """The nearest items, as ``capim search`` finds them; loads the model of the encoder on its first use."""

    def project(self, *, encoder: str, corpus: str, modality: str, method: str) -> pa.Table:
        """Two coordinates per item, as ``capim export embedding-atlas`` computes them; kept in the store."""

    def compare_runs(self, old: str, new: str) -> dict[str, Any]:
        """What changed from one run to another: figures with their tests, and settings."""

    def explain(self, *, encoder: str, corpus: str, pairs: Sequence[tuple[int, int]]) -> list[Explanation]:
        """Of every pair (position of a caption and of an image), where they match; late-interaction encoders only."""
