"""Stores that pages are asked of: real tiny models with random multi-vectors, and encoders that draw their vectors."""

from __future__ import annotations

import csv
import io
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvicorn
from PIL import Image
from starlette.applications import Starlette
from starlette.testclient import TestClient

from capim.flows.searching import StoreServices
from capim.reports.app.application import create_app
from capim.store import EmbeddingStore
from capim.store.types import Corpus, EncoderSpec
from capim.tasks.corpora.readers.labels import read_labels
from capim.tasks.corpora.readers.shapes import read_shapes
from capim.tasks.corpora.subset import index_images
from capim.tasks.embed import EncodeSettings, SetEncoder
from capim.tasks.encoders import resolve, spec_of
from capim.tasks.references import EvaluationRef
from capim.tasks.statistics.draws import Resampling
from tests.random_store import OTHER, SPECS, random_store, rows_of, scored

TOKEN = "a-token-for-tests"
A, B = "tiny-clip", "tiny-clip-plain"
MANY = SPECS[1]  # several vectors per item, and a checkpoint that nobody has
TILES = {"a/1.png": 1, "a/<img src=x onerror=alert(1)>.png": 20, "b/3.png": 30, "b/4.png": 1}  # file to colour
SHORT = Resampling(replicates=20)
LATER = replace(OTHER, name="one", revision="b2", dim=9)  # other draws


class NoServices:
    """Refuses every computation; a test that needs one replaces it."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is not part of this test")


def services_of(store: EmbeddingStore) -> StoreServices:
    """The services of the command."""
    return StoreServices(store, device="cpu")


@contextmanager
def asking(store: EmbeddingStore, services: Any = None, **options: Any) -> Iterator[TestClient]:
    """A browser that has opened the address with the token."""
    app = create_app(store, token=TOKEN, services=services or services_of(store), **options)
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        assert client.get(f"/style.css?token={TOKEN}").status_code == 200  # the first page needs results
        yield client


@contextmanager
def serving(app: Starlette) -> Iterator[str]:
    """The address of a server of an application."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def csv_of(client: TestClient, address: str) -> list[dict[str, str]]:
    """The rows of the view of an address."""
    return list(csv.DictReader(io.StringIO(client.get(f"{address}{'&' if '?' in address else '?'}as=csv").text)))


def asked_store(folder: Path) -> EmbeddingStore:
    """Twelve rendered scenes by two tiny models, and by one that draws several vectors for each item; evaluated."""
    corpus = read_shapes(n_scenes=12)
    store = random_store(folder / "store", corpus, [MANY])
    index_images(corpus, known={}, sink=store.write_images)
    specs = [resolve(spec_of(name)) for name in (A, B)]
    for spec in specs:
        store.write_encoder(spec)
        encoder = SetEncoder(spec, store, EncodeSettings(device="cpu"), "embed")
        encoder.encode(corpus, "image")
        encoder.encode(corpus, "caption")
    evaluate(store, corpus, *specs, MANY, run="first")
    return store


def labelled_store(folder: Path) -> EmbeddingStore:
    """Tiles of one colour, whose folders are their labels; two have the same bytes."""
    for file, colour in TILES.items():
        (folder / "train" / file).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (80, 60), (colour, 255 - colour, 9)).save(folder / "train" / file)
    corpus = read_labels(folder / "train")
    store = random_store(folder / "store", corpus, SPECS[:1])
    index_images(corpus, known={}, sink=store.write_images)
    return store


def two_runs(folder: Path, corpus: Corpus) -> EmbeddingStore:
    """Runs ``first`` with both encoders of ``SPECS``, and ``second`` with another revision of ``one``."""
    store = random_store(folder, corpus)
    evaluate(store, corpus, *SPECS, run="first")
    random_store(folder, corpus, [LATER])
    evaluate(store, corpus, LATER, run="second")
    return store


def evaluate(
    store: EmbeddingStore, corpus: Corpus, *specs: EncoderSpec, run: str, resampling: Resampling = SHORT
) -> tuple[EvaluationRef, ...]:
    """Scores the encoders, as one run."""
    started = datetime.now(UTC)
    evaluations = scored(store, corpus, specs, protocols=(), resampling=resampling, run=run)
    told = {"run": run, "config": "{}", "command": "capim run", "versions": "{}", "state": "completed"}
    store.write_rows("runs", rows_of("runs", told | {"started": started, "finished": datetime.now(UTC)}))
    return evaluations


def missed_and_found(store: EmbeddingStore, a: str, b: str, where: str) -> set[tuple[str, ...]]:
    """Corpus, protocol and id of the queries that one encoder misses and another finds, by a self-join."""
    joined = store.sql(
        f"""SELECT corpus, protocol, query_id FROM outcomes a JOIN outcomes b USING (corpus, protocol, query_id)
        WHERE a.encoder = '{a}' AND b.encoder = '{b}' AND a.rank_best > 1 AND b.rank_worst = 1 AND {where}"""
    )
    return {tuple(row.values()) for row in joined.to_pylist()}
