"""An empty store for every test; what is written to it comes from ``tests.store.toy``."""

from __future__ import annotations

from pathlib import Path

import pytest

from capim.store import EmbeddingStore


@pytest.fixture
def store(tmp_path: Path) -> EmbeddingStore:
    return EmbeddingStore.open(tmp_path / "store", create=True)
