"""An empty store for every test; what is written to it comes from ``tests.store.toy``."""

from __future__ import annotations

from pathlib import Path

import pytest

from capim.store import EmbeddingStore


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What differs from the ledger is read again as often, but no other process is about to write it."""
    monkeypatch.setattr("capim.store.rows._PAUSES", (0.0, 0.0))


@pytest.fixture
def store(tmp_path: Path) -> EmbeddingStore:
    return EmbeddingStore.open(tmp_path / "store", create=True)
