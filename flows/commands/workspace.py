"""A workspace: the folder or URI that holds ``store/`` and ``reports/``."""

from __future__ import annotations

from flows.config import RunConfig
from store import EmbeddingStore


def open_store(workspace: str) -> EmbeddingStore:
    """The store of a workspace, for reading.

    Raises:
        RequestError: There is no store; says how to make one.
    """
    return EmbeddingStore.open(RunConfig(workspace=workspace).store_uri)
