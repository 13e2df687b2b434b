"""A real store with hostile texts, one with embeddings, and a client of the application over each."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from capim.store import EmbeddingStore
from capim.store.schema import StoredImage
from tests.reports.app.stores import NoServices, asked_store, asking
from tests.reports.stand_in import StandIn, written


@pytest.fixture(scope="session")
def served_store(hostile_store: StandIn, tmp_path_factory: pytest.TempPathFactory) -> EmbeddingStore:
    """Three models on sixteen images with eighty captions, which try to break a page; without embeddings."""
    store = written(hostile_store, tmp_path_factory.mktemp("served") / "store")
    for outcomes in hostile_store.arrow.values():
        weights = pa.array([1.0] * len(outcomes))
        store.write_rows("outcomes", outcomes.set_column(outcomes.schema.get_field_index("weight"), "weight", weights))
    store.write_images(
        [
            StoredImage(item=sha, sha=sha, width=1, height=1, thumbnail=made)
            for sha, made in hostile_store.pictures.items()
        ]
    )
    return store


@pytest.fixture(scope="session")
def client(served_store: EmbeddingStore) -> Iterator[TestClient]:
    """A browser on the hostile store."""
    with asking(served_store, NoServices()) as made:
        yield made


@pytest.fixture(scope="session")
def asked(tmp_path_factory: pytest.TempPathFactory) -> EmbeddingStore:
    """What searches are asked of."""
    return asked_store(tmp_path_factory.mktemp("asked"))
