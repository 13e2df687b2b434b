"""fast-plaid's index over multi-vectors, where that package is installed: PLAID, Santhanam et al. 2022."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.store.query.search import Index
from capim.store.schema import TOP
from capim.store.values import Ragged


@contextmanager
def plaid(items: Ragged, *, seed: int) -> Iterator[Index]:
    """fast-plaid's index with its default settings, on the CPU; it is removed when the block ends.

    A search returns the best ``TOP`` items.

    Raises:
        RequestError: The package is not installed, or not with what it needs.
    """
    try:
        search = importlib.import_module("fast_plaid.search")
    except ImportError as error:
        raise RequestError(f"fast-plaid cannot be imported ({error}); run `pip install fast-plaid`") from error
    with tempfile.TemporaryDirectory(prefix="capim-plaid-") as folder:
        index = search.FastPlaid(index=folder, device="cpu")
        index.create(documents_embeddings=_tensors(items), seed=seed)

        def scores(queries: Ragged) -> NDArray[np.float32]:
            found = np.full((len(queries), len(items)), -np.inf, dtype=np.float32)
            for row, hits in zip(found, index.search(_tensors(queries), top_k=min(TOP, len(items))), strict=True):
                for item, score in hits:
                    row[item] = score
            return found

        n_bytes = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
        yield Index(n_bytes / len(items), scores)


def _tensors(items: Ragged) -> list[torch.Tensor]:
    return [torch.from_numpy(item.astype(np.float32)) for item in items]
