"""A real store with hostile texts, and a client of the application over it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from capim.reports.app.application import create_app
from capim.store import EmbeddingStore
from capim.store.types import IndexedImage
from tests.reports.stand_in import SCHEMAS, StandIn

TOKEN = "a-token-for-tests"


class NoServices:
    """Refuses every computation; a test that needs one replaces it."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is not part of this test")


@pytest.fixture(scope="session")
def served_store(hostile_store: StandIn, tmp_path_factory: pytest.TempPathFactory) -> EmbeddingStore:
    """Three models on sixteen images with eighty captions, which try to break a page; without embeddings."""
    store = EmbeddingStore.open(tmp_path_factory.mktemp("served") / "store", create=True)
    for contents in hostile_store.contents.values():
        store.write_corpus(contents)
    for model in hostile_store.specs.values():
        store.write_encoder(model)
    for table, rows in hostile_store.tables.items():
        if rows:
            own = {"pid": 1} if table == "runs" else {}  # which no report shows
            store.write_rows(table, pa.Table.from_pylist([{**own, **row} for row in rows], schema=SCHEMAS[table]))
    for outcomes in hostile_store.arrow.values():
        weights = pa.array([1.0] * len(outcomes))
        store.write_rows("outcomes", outcomes.set_column(outcomes.schema.get_field_index("weight"), "weight", weights))
    store.write_image_index(
        [
            IndexedImage(sha=sha, width=1, height=1, thumbnail=made, reason=None)
            for sha, made in hostile_store.pictures.items()
        ]
    )
    return store


@pytest.fixture(scope="session")
def client(served_store: EmbeddingStore) -> Iterator[TestClient]:
    """A browser that has opened the address with the token."""
    app = create_app(served_store, token=TOKEN, services=NoServices())
    with TestClient(app, base_url="http://127.0.0.1:8000") as made:
        assert made.get(f"/?token={TOKEN}").status_code == 200
        yield made


@pytest.fixture(scope="session")
def asked(tmp_path_factory: pytest.TempPathFactory) -> EmbeddingStore:
    """What searches and maps are asked of."""
    from tests.reports.app.asked import asked_store

    return asked_store(tmp_path_factory.mktemp("asked"))
