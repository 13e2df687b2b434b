"""Stores that pages are asked of: real tiny models with random multi-vectors, and encoders that draw their vectors."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from starlette.testclient import TestClient

from capim.flows.searching import StoreServices
from capim.reports.app.application import create_app
from capim.store import Block, EmbeddingStore
from capim.store.schema import RUNS, texts
from capim.store.types import Corpus, Embeddings, EncoderSpec, Modality
from capim.tasks.corpora.images.decode import decode_image
from capim.tasks.corpora.readers.shapes import read_shapes
from capim.tasks.corpora.subset import index_images
from capim.tasks.encoders import encode_captions, encode_images, load_encoder, spec_of
from capim.tasks.evaluate import score
from capim.tasks.runtime.references import SetsRef
from capim.tasks.statistics.draws import Resampling
from tests.random_store import OTHER, SPECS, random_store

TOKEN = "a-token-for-tests"
A, B = "tiny-clip", "tiny-clip-plain"
MANY = SPECS[1]  # several vectors per item, and a checkpoint that nobody has
LATER = replace(OTHER, name="one", revision="b2", dim=9)  # other draws


class NoServices:
    """Refuses every computation; a test that needs one replaces it."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is not part of this test")


def services_of(store: EmbeddingStore) -> StoreServices:
    """The services of the command."""
    return StoreServices(store, maps=Path(store.uri).parent / "maps", device="cpu")


@contextmanager
def asking(store: EmbeddingStore, services: Any = None, **options: Any) -> Iterator[TestClient]:
    """A browser that has opened the address with the token."""
    app = create_app(store, token=TOKEN, services=services or services_of(store), **options)
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        assert client.get(f"/?token={TOKEN}").status_code == 200
        yield client


def csv_of(client: TestClient, address: str) -> list[dict[str, str]]:
    """The rows of the view of an address."""
    return list(csv.DictReader(io.StringIO(client.get(f"{address}{'&' if '?' in address else '?'}as=csv").text)))


def asked_store(folder: Path) -> EmbeddingStore:
    """Twelve rendered scenes by two tiny models, and by one that draws several vectors for each item; evaluated."""
    corpus = read_shapes(n_scenes=12)
    store, specs = EmbeddingStore.open(folder / "store", create=True), list[EncoderSpec]()
    store.write_corpus(corpus)
    index_images(corpus, known={}, sink=store.write_image_index)
    assert corpus.source is not None
    pictures = [decode_image(corpus.source.read(key)) for key in texts(corpus.images["key"])]
    for encoder in (load_encoder(spec_of(name)) for name in (A, B)):
        store.write_encoder(encoder.spec)
        specs.append(encoder.spec)
        vectors: dict[Modality, Embeddings] = {
            "image": encode_images(encoder, pictures),
            "caption": encode_captions(encoder, texts(corpus.captions["text"])),
        }
        for modality, made in vectors.items():
            ids = texts((corpus.images if modality == "image" else corpus.captions)["id"])
            ords = np.arange(len(ids), dtype=np.int32)
            key = store.key(encoder=encoder.spec.fingerprint, corpus=corpus.fingerprint, modality=modality)
            block = Block(ords=ords, ids=ids, embeddings=made, input_shas=[""] * len(ids), batch_id="b")
            store.put(key, encoder.spec, block)
            store.seal(key, n_items=len(ids))
    random_store(folder / "store", corpus, [MANY])
    evaluate(store, corpus, *specs, MANY, run="first")
    return store


def two_runs(folder: Path, corpus: Corpus) -> EmbeddingStore:
    """Runs ``first`` with both encoders of ``SPECS``, and ``second`` with another revision of ``one``."""
    store = random_store(folder, corpus)
    evaluate(store, corpus, *SPECS, run="first")
    random_store(folder, corpus, [LATER])
    evaluate(store, corpus, LATER, run="second")
    return store


def evaluate(store: EmbeddingStore, corpus: Corpus, *specs: EncoderSpec, run: str) -> None:
    """Scores the encoders, as one run."""
    started = datetime.now(UTC)
    for spec in specs:
        names = {"encoder": spec.name, "encoder_fingerprint": spec.fingerprint}
        sets = SetsRef(**names, corpus=corpus.name, corpus_fingerprint=corpus.fingerprint)
        resampling = Resampling(replicates=20)
        score.fn(sets, store_uri=store.uri, protocols=(), device="cpu", resampling=resampling, run=run)
    told = {"name": "test", "config": "{}", "command": "capim run", "versions": "{}", "host": "", "state": "completed"}
    row = {"run": run, "pid": 1, **told, "started": started, "finished": datetime.now(UTC), "message": None}
    store.write_rows("runs", pa.Table.from_pylist([row], schema=RUNS))
