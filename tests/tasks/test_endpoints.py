"""An endpoint into a store: nothing is paid for twice, and vectors of two models are never mixed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from capim.flows.config import read_suite
from capim.store import EmbeddingStore
from capim.store.errors import WorkError
from capim.store.schema import Batch
from capim.store.types import Corpus, EncoderSpec, SetKey
from capim.store.upkeep.removal import drop
from capim.tasks.corpora.description import open_corpus
from capim.tasks.embed import EncodedSet, EncodeSettings, SetEncoder
from capim.tasks.encoders import load_encoder, resolve
from capim.tasks.encoders.adapters.endpoint import PROBE_CAPTIONS, PROBE_IMAGE
from capim.tasks.reference.changes import WatchRule
from capim.tasks.watch import changed_probes
from tests.encoders.endpoint_stub import Stub, endpoint, spec_of

IN_FLIGHT = 4  # batches: one that is being stored, and those that go through the model meanwhile
CORPUS = {"name": "few", "reader": "shapes", "n_scenes": 20}
ENCODE = """
import json, sys
from capim.store import EmbeddingStore
from capim.store.types import EncoderSpec
from capim.tasks.embed import EncodeSettings, SetEncoder
store = EmbeddingStore.open(sys.argv[1])
settings = EncodeSettings(device="cpu", caption_batch=4)
SetEncoder(EncoderSpec.from_json(sys.argv[2]), store, settings, "killed").encode(store.corpus("few"), "caption")
"""


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return open_corpus(CORPUS)


@pytest.fixture
def store(empty: EmbeddingStore, corpus: Corpus) -> EmbeddingStore:
    empty.write_corpus(corpus)
    return empty


@pytest.fixture
def stub() -> Iterator[Stub]:
    with endpoint() as running:
        yield running


def spec_for(stub: Stub, revision: str = "main", **options: object) -> EncoderSpec:
    return resolve(spec_of(stub, revision=revision, image_form="input", **options))


def encode(store: EmbeddingStore, corpus: Corpus, spec: EncoderSpec, *, run: str = "first") -> EncodedSet:
    store.write_encoder(spec)
    return SetEncoder(spec, store, EncodeSettings(device="cpu", caption_batch=16), run).encode(corpus, "caption")


def asked(stub: Stub) -> Counter[str]:
    """How often each caption was asked for, without the probes."""
    found = Counter(stub.inputs)
    return Counter(
        {text: n for text, n in found.items() if text not in PROBE_CAPTIONS and not text.startswith("image ")}
    )


def test_what_a_service_gave_is_stored_with_its_address_and_not_asked_for_again(stub, store, corpus) -> None:
    spec = spec_for(stub, concurrency=2, inputs_per_request=5)
    encode(store, corpus, spec)
    texts = corpus.captions["text"].to_pylist()
    rows = store.all(Batch)
    assert {(row.device, row.forward_precision) for row in rows} == {(stub.url[7:-3], "of the service")}
    vectors = store.vectors(encoder="far", corpus="few", modality="caption").matrix
    wanted = np.asarray([stub.vector(text) for text in texts])
    np.testing.assert_allclose(vectors, wanted / np.linalg.norm(wanted, axis=1, keepdims=True), atol=1e-6)
    assert set(store.rows("probes")["item"].to_pylist()) == {*PROBE_CAPTIONS, PROBE_IMAGE}
    stub.bodies.clear()
    assert encode(store, corpus, spec_for(stub, concurrency=8)).n_encoded == 0  # other settings of the access
    assert stub.bodies == []


@pytest.mark.slow  # a process that can be killed has to start first
def test_what_was_stored_before_a_kill_is_never_asked_for_again(stub, store, corpus) -> None:
    stub.seconds = 0.03
    spec = spec_for(stub)
    store.write_encoder(spec)
    command = [sys.executable, "-c", ENCODE, store.uri, spec.to_json()]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2], env={**os.environ, "OMP_NUM_THREADS": "1"})
    n_all = len(set(corpus.captions["text"].to_pylist()))
    while sum(asked(stub).values()) < n_all // 2:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = asked(stub)
    key = SetKey.of(spec, corpus.name, corpus.fingerprint, "caption")
    missing = store.missing(key)
    wanted = set(corpus.captions["text"].take(missing).to_pylist())
    assert 0 < len(wanted) < n_all
    stub.bodies.clear()
    stub.seconds = 0.0
    done = encode(store, corpus, spec, run="second")
    assert done.n_encoded == len(missing)
    after = asked(stub)
    assert after == Counter(dict.fromkeys(wanted, 1))
    lost = sum((before + after).values()) - n_all
    assert 0 <= lost <= IN_FLIGHT * 4
    assert store.sealed(key) is not None


def test_a_model_that_changed_behind_its_address_is_an_error_before_anything_is_encoded(stub, store, corpus) -> None:
    spec = spec_for(stub)
    encode(store, corpus, spec)
    stub.changed = 0.5
    larger = open_corpus({**CORPUS, "n_scenes": 21})
    store.write_corpus(larger)
    stub.bodies.clear()
    with pytest.raises(WorkError, match=r"org/model at http.* is another model than on 20.* of 0\.\d+.*revision = "):
        encode(store, larger, spec)
    assert asked(stub) == {}
    encoder = load_encoder(spec)
    [finding] = changed_probes(store, encoder, WatchRule(), run="watch")
    assert (finding.verdict, finding.subject) == ("fail", "far, probes")
    drop(store, encoder="far", dry_run=False)  # one way to go on: what the old model encoded goes
    assert encode(store, corpus, spec).n_encoded == len(corpus.captions)
    stub.changed = 1.0
    new = spec_for(stub, "2026-11-22")  # the other: the new model is another encoder
    assert encode(store, larger, new).n_encoded == len(larger.captions)
    assert changed_probes(store, load_encoder(new), WatchRule(), run="watch") == []


def test_a_model_that_changes_during_an_encode_leaves_its_set_unsealed(stub, store, corpus) -> None:
    def change(*_: object) -> bool:
        stub.changed = 0.5
        return False

    def calm(*_: object) -> bool:
        return False

    stub.troubles = [calm] * 5 + [change]
    spec = spec_for(stub, concurrency=1)
    with pytest.raises(WorkError, match="another model"):
        encode(store, corpus, spec)
    assert store.sealed(SetKey.of(spec, corpus.name, corpus.fingerprint, "caption")) is None


def test_small_noise_between_two_answers_is_no_other_model(stub, store, corpus) -> None:
    spec = spec_for(stub)
    encode(store, corpus, spec)
    stub.changed = 1e-4
    assert changed_probes(store, load_encoder(spec), WatchRule(), run="watch") == []
    assert json.loads(store.encoders()[0].spec)["options"]["url"] == stub.url


def test_a_batch_size_is_not_found_by_trying_where_trying_is_paid_for(stub, store, corpus) -> None:
    spec = spec_for(stub)
    store.write_encoder(spec)
    settings = EncodeSettings(device="cuda:7", caption_batch=None)  # no device is needed or held
    assert SetEncoder(spec, store, settings, "auto").encode(corpus, "caption").batch_size == 256
    assert asked(stub) == Counter(dict.fromkeys(corpus.captions["text"].to_pylist(), 1))


def test_the_model_of_a_service_is_no_folder_beside_the_suite(tmp_path) -> None:
    (tmp_path / "clip").mkdir()
    table = '[[encoder]]\nname = "far"\nadapter = "http"\ncheckpoint = "clip"\ndim = 8\n'
    (tmp_path / "suite.toml").write_text(f'{table}options = {{ url = "https://api.example.com/v1" }}\n')
    assert read_suite(tmp_path / "suite.toml")["encoders"][0]["checkpoint"] == "clip"
