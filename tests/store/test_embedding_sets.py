"""A set is written in blocks, resumed, sealed and read back as it was given."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from capim.store import EmbeddingStore, RequestError, WorkError
from capim.store.connection import storage_faults
from tests.store.toy import begin, fill, make_block, make_corpus, make_embeddings, make_spec


@pytest.mark.parametrize("storage", ["float16", "float32"])
def test_what_was_put_comes_back_in_corpus_order_to_the_last_bit(store, storage):
    spec, key = begin(store, 20, storage=storage)
    for ords in ([19, 3, 7], [0, 1, 2, 4, 5, 6], range(8, 19)):
        store.put(key, spec, make_block(spec, ords))
    sealed = store.seal(key)

    read = store.vectors(encoder="enc", corpus="toy", modality="image")

    given = make_embeddings(range(20), spec)
    assert read.ids == make_corpus(20).images.column("id").to_pylist()
    (rows,) = store.stored_blocks(key)
    np.testing.assert_array_equal(rows.vectors.values, given.values.astype(storage))
    expected = given.values
    if storage == "float16":  # which has another norm
        rounded = given.values.astype(np.float16).astype(np.float32)
        expected = rounded / np.linalg.norm(rounded, axis=1, keepdims=True)
    np.testing.assert_allclose(read.matrix, expected, rtol=3e-7 if storage == "float16" else 0, atol=0)
    np.testing.assert_array_equal(read.n_tokens, given.n_tokens)
    np.testing.assert_array_equal(read.truncated, given.truncated)
    np.testing.assert_array_equal(read.norms, given.norms)
    assert read.tag == sealed.tag
    assert sealed.n_rows == sealed.n_vectors == 20
    assert read.matrix.flags.writeable


def test_ragged_sets_come_back_in_windows_to_the_last_bit(store):
    corpus, spec = make_corpus(20), make_spec(vectors="multi")
    key = fill(store, corpus, spec)
    given = make_embeddings(range(20), spec)

    blocks = list(store.multivectors(encoder="enc", corpus="toy", modality="image", window=6))

    assert [len(block) for block in blocks] == [6, 6, 6, 2]
    np.testing.assert_array_equal(np.concatenate([block.values for block in blocks]), given.values.astype(np.float16))
    assert blocks[0].values.dtype == np.float16
    assert [len(vectors) for block in blocks for vectors in block] == given.counts.tolist()
    assert store.sealed(key).n_vectors == len(given.values)


def test_two_writers_that_do_not_see_each_other_leave_every_row_once(store, monkeypatch):
    spec, key = begin(store, 20)
    other = EmbeddingStore.open(store.uri)
    store.put(key, spec, make_block(spec, range(5)))
    other.missing(key)
    writer = other.writer(key)
    monkeypatch.setattr(writer, "_refresh", lambda: None)  # the moment between looking and writing
    store.put(key, spec, make_block(spec, range(5, 20), batch_id="first"))
    assert other.put(key, spec, make_block(spec, range(5, 20), batch_id="second")) == 15

    sealed = store.seal(key)

    batches = store.connection.find(key.table, version=sealed.tag).to_table(columns=["batch_id"])
    assert sorted(set(batches.column("batch_id").to_pylist())) == ["b0", "first"]
    assert sealed.n_rows == batches.num_rows == 20


def test_an_incomplete_set_is_not_sealed_and_read_only_when_asked_for(store):
    spec, key = begin(store, 20)
    store.put(key, spec, make_block(spec, [0, 2]))
    with pytest.raises(WorkError, match=r"18 of 20 items have no row, first 'i00001'.*capim embed"):
        store.seal(key)
    with pytest.raises(RequestError, match=r"not sealed.*Complete them with `capim embed`"):
        store.vectors(encoder="enc", corpus="toy", modality="image")


def test_a_sealed_set_is_on_the_disk_and_not_only_in_memory(store, monkeypatch):
    synced = set()
    monkeypatch.setattr("capim.store.files.os.fsync", lambda opened: synced.add(os.fstat(opened).st_ino))
    key = fill(store, make_corpus(5), make_spec())
    for table, part in ((key.table, "data"), (key.table, "_versions"), ("sets", "data")):
        files = [*(store.connection.folder(table) / part).iterdir()]
        assert files
        assert {file.stat().st_ino for file in files} <= synced


@pytest.mark.parametrize("words", ["Operation not permitted (os error 1)", "Operation not supported (os error 95)"])
def test_a_file_system_without_hard_links_is_named(words):
    with pytest.raises(WorkError, match="has no hard links"), storage_faults("writing"):
        raise OSError(words)


def test_a_store_pickles_as_its_address(store):
    assert pickle.loads(pickle.dumps(store)).uri == store.uri


def test_a_missing_store_is_named_with_the_next_step(tmp_path):
    with pytest.raises(RequestError, match=r"there is no store at .*nowhere.*capim demo"):
        EmbeddingStore.open(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_file_is_not_a_store(tmp_path):
    (tmp_path / "file").write_text("x")
    for create in (False, True):
        with pytest.raises((RequestError, WorkError), match="file"):
            EmbeddingStore.open(tmp_path / "file", create=create)
    assert (tmp_path / "file").read_text() == "x"


@pytest.mark.parametrize(
    ("module", "more"), [("capim.store", ["scipy"]), ("capim.tasks.corpora", ["pyarrow", "datasets", "PIL", "numpy"])]
)
def test_importing_the_store_or_the_table_of_corpora_loads_nothing_heavy(module, more):
    heavy = ["torch", "transformers", "prefect", "pandas", "lance", "lancedb", "duckdb", "huggingface_hub", *more]
    code = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
