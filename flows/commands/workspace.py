"""A workspace: the folder or URI that holds ``store/`` and ``reports/``."""

from __future__ import annotations

from flows.config import run_config
from store import EmbeddingStore


def open_store(workspace: str | None) -> EmbeddingStore:
    """The store of a workspace (None: the default one), for reading.

    Raises:
        RequestError: There is no store; says how to make one.
    """
    return EmbeddingStore.open(run_config({"workspace": workspace}).store_uri)
