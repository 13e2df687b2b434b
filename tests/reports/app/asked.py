"""A store that search and maps are asked of: two tiny models and random multi-vectors, evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starlette.testclient import TestClient

from capim.flows.searching import StoreServices
from capim.reports.app.application import create_app
from capim.store import EmbeddingStore
from capim.tasks.corpora.readers.shapes import read_shapes
from tests.random_store import SPECS, random_store
from tests.reports.app.conftest import TOKEN
from tests.reports.app.encoded import encoded_store
from tests.reports.app.evaluated import evaluate

A, B = "tiny-clip", "tiny-clip-plain"
MANY = SPECS[1]  # several vectors per item, and a checkpoint that nobody has


def asked_store(folder: Path) -> EmbeddingStore:
    """Twelve rendered scenes."""
    corpus = read_shapes(n_scenes=12)
    store, specs = encoded_store(folder / "store", corpus, (A, B))
    random_store(folder / "store", corpus, [MANY])
    evaluate(store, corpus, [*specs, MANY], run="first")
    return store


@contextmanager
def asking(store: EmbeddingStore) -> Iterator[TestClient]:
    """A browser with the services of the command."""
    services = StoreServices(store, maps=Path(store.uri).parent / "maps", device="cpu")
    with TestClient(create_app(store, token=TOKEN, services=services), base_url="http://127.0.0.1:8000") as client:
        client.get(f"/?token={TOKEN}")
        yield client
