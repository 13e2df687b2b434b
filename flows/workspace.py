"""A workspace: the folder or URI that holds ``store/`` and ``reports/``."""

from __future__ import annotations

from store import EmbeddingStore


def store_uri(workspace: str) -> str:
    """Where a workspace keeps its store."""
    return f"{workspace.rstrip('/')}/store"


def open_store(workspace: str) -> EmbeddingStore:
    """The store of a workspace, for reading.

    Raises:
        RequestError: There is no store; says how to make one.
    """
    return EmbeddingStore.open(store_uri(workspace))
