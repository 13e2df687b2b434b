"""A model into a store: batch sizes never change a vector, and trouble leaves what was stored."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from capim.flows.config import RunConfig
from capim.flows.embed import encode_settings
from capim.flows.execution import named
from capim.store import EmbeddingStore
from capim.store.errors import RequestError, WorkError
from capim.store.types import Corpus, SetKey
from capim.tasks.corpora.description import open_corpus
from capim.tasks.embed import EncodeSettings, EncodeWork, SetEncoder, encode_work
from capim.tasks.encoders import entry_from, load_encoder, pipeline, resolve, spec_of
from capim.tasks.references import CorpusRef

OWN = {"name": "own", "adapter": "hf_dual", "checkpoint": "package:tiny/clip", "dim": 64}


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return open_corpus({"name": "few", "reader": "shapes", "n_scenes": 5})


@pytest.fixture
def store(empty, corpus) -> EmbeddingStore:
    empty.write_corpus(corpus)
    return empty


def set_encoder(store: EmbeddingStore, **settings) -> SetEncoder:
    spec = resolve(spec_of("tiny-clip"))
    store.write_encoder(spec)
    return SetEncoder(spec, store, EncodeSettings(device="cpu", **settings), "test")


def vectors(store: EmbeddingStore, corpus: Corpus) -> np.ndarray:
    return store.vectors(encoder="tiny-clip", corpus=corpus.name, modality="caption").matrix


def test_the_run_decides_on_batches_then_the_encoders_own_table_then_the_catalog() -> None:
    own = OWN | {"image_batch": 3}
    spec = entry_from("own", {key: value for key, value in own.items() if key != "name"}).spec

    def batches(spec, **fields):
        settings = encode_settings(RunConfig(encoders=(own, "tiny-clip"), **fields), spec)
        return settings.image_batch, settings.caption_batch

    assert batches(spec) == (3, 256)
    assert batches(spec_of("tiny-clip")) == (128, 512)
    assert batches(spec, batch_size=7) == (7, 7)
    assert batches(spec, batch_size="auto") == (None, None)


@pytest.mark.parametrize("value", [0, "many"])
def test_a_batch_size_that_is_none_is_refused(value) -> None:
    row = {key: entry for key, entry in OWN.items() if key != "name"}
    with pytest.raises(RequestError, match="caption_batch must be a whole number from 1 on"):
        entry_from("own", row | {"caption_batch": value})


def test_a_batch_size_found_by_trying_is_reported_and_changes_no_vector(store, corpus, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(pipeline, "_TIMED_SECONDS", 0.0)
    monkeypatch.setattr(pipeline, "LARGEST_ON_CPU", {"image": 8, "caption": 8})
    found = set_encoder(store, image_batch=None, caption_batch=None).encode(corpus, "caption")
    assert found.batch_size in (4, 8)
    assert set(store.rows("batches")["batch_size"].to_pylist()) == {found.batch_size}
    other = EmbeddingStore.open(str(tmp_path / "other"), create=True)
    other.write_corpus(corpus)
    assert set_encoder(other, caption_batch=3).encode(corpus, "caption").batch_size == 3
    np.testing.assert_allclose(vectors(store, corpus), vectors(other, corpus), atol=1e-5)


@pytest.mark.parametrize(
    ("error", "message"),
    [(None, r"NaN, infinite or zero.*this batch was not stored"), (MemoryError, "a single .* does not fit.* are kept")],
)
def test_trouble_in_the_model_keeps_what_was_stored(error, message, store, corpus, monkeypatch) -> None:
    encoder = load_encoder(resolve(spec_of("tiny-clip")))
    forward, passes = encoder.forwards["caption"], []

    def trouble(**inputs):
        passes.append(len(inputs["input_ids"]))
        if len(passes) < 4:
            return forward(**inputs)
        if error is not None:
            raise error
        return forward(**inputs) * float("nan")

    encoder.forwards["caption"] = trouble
    monkeypatch.setattr("capim.tasks.embed.load_encoder", lambda *_, **__: encoder)
    first = set_encoder(store, caption_batch=2)
    with pytest.raises(WorkError, match=message):
        first.encode(corpus, "caption")
    first.close()
    key = SetKey.of(first.spec, corpus.name, corpus.fingerprint, "caption")
    n_kept = len(corpus.captions) - len(store.missing(key))
    assert n_kept >= sum(passes[:3])
    encoder.forwards["caption"] = forward
    assert set_encoder(store, caption_batch=2).encode(corpus, "caption").n_encoded == len(corpus.captions) - n_kept


def test_an_image_that_was_replaced_is_not_encoded_under_the_hash_of_the_old_one(store, corpus) -> None:
    other = corpus.source.read(corpus.images["key"][0].as_py())
    changed = replace(corpus, source=cast(Any, SimpleNamespace(read=lambda _: other)))
    encoder = set_encoder(store)
    with pytest.raises(WorkError, match=r"image '.*' was changed after the corpus was opened"):
        encoder.encode(changed, "image")
    key = SetKey.of(encoder.spec, corpus.name, corpus.fingerprint, "image")
    assert len(store.missing(key)) == len(corpus.images)


def test_each_shard_names_itself_to_the_task_that_seals_the_sets(store, corpus) -> None:
    """A nightly run showed no edge from `embed-shard` to `embed`: nothing in what a shard returned told who made it."""
    reference = CorpusRef(
        what="few", sample=None, seed=0, name=corpus.name, fingerprint=corpus.fingerprint, n_images=0, n_captions=0,
        n_skipped=0, skipped=(), changes=(), encodable=("image", "caption"),
    )  # fmt: skip
    work = EncodeWork(
        spec=resolve(spec_of("tiny-clip")), corpora=(reference,),
        opened=cast("Any", SimpleNamespace(get=lambda *_: corpus)),
        store_uri=store.uri, settings=EncodeSettings(device="cpu"), run="test", n_shards=2,
    )  # fmt: skip
    shards = [encode_work(replace(work, shard=shard)) for shard in range(2)]
    of_shards = [set(named(encoded)) for encoded in shards]
    assert [len(each) for each in of_shards] == [2, 2] and of_shards[0].isdisjoint(of_shards[1])
    assert of_shards[0] | of_shards[1] <= set(named({"work": work, "shards": shards}))
