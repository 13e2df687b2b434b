"""What the pages of `capim serve` ask for, by the same functions as the commands `search`, `explain` and `compare`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from store import EmbeddingStore
from store.errors import RequestError
from store.layout import Explanation


class StoreServices:
    """The services over one store (``reports.app.services.Services``)."""

    def __init__(self, store: EmbeddingStore) -> None:
        self.store = store

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
    ) -> Any:
        """The nearest items, as ``capim search`` finds them."""
        raise RequestError("search is not built yet")

    def project(self, *, encoder: str, corpus: str, modality: str, method: str) -> pa.Table:
        """Two coordinates per item."""
        raise RequestError("the map is not built yet")

    def compare_runs(self, old: str, new: str) -> dict[str, Any]:
        """What changed from one run to another."""
        raise RequestError("the comparison of runs is not built yet")

    def explain(self, *, encoder: str, corpus: str, pairs: Sequence[tuple[int, int]]) -> list[Explanation]:
        """Of every pair (position of a caption and of an image), where they match."""
        from tasks.runtime.explanation import explain_pairs

        return explain_pairs(self.store, encoder=encoder, corpus=corpus, pairs=pairs)
