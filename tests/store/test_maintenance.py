"""Info, verify, drop and compact: what they say and what they leave alone."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest

from capim.store import EmbeddingStore, RequestError
from capim.store.connection import one_connection
from capim.store.embedding_store import written_format
from capim.store.schema import FORMAT
from capim.store.upkeep.integrity import drop_damaged, verify
from capim.store.upkeep.inventory import info
from capim.store.upkeep.removal import compact_store, drop, drop_superseded
from tests.random_store import rows_of
from tests.store.toy import fill, make_block, make_corpus, make_key, make_spec, states


def test_info_says_what_is_there_how_large_and_who_wrote_it(store):
    corpus, spec = make_corpus(20), make_spec()
    key = fill(store, corpus, spec)
    other = make_spec(name="late", vectors="multi")
    store.write_encoder(other)
    store.put(make_key(corpus, other), other, make_block(other, range(3)))
    store.write_rows("batches", rows_of("batches", {"set_name": key.table, "host": "node7", "device": "H200"}))

    contents = info(store)

    dense, late = sorted(contents.sets, key=lambda row: str(row["vectors"]), reverse=True)
    assert (dense["encoder"], dense["state"], dense["n_rows"], dense["n_items"]) == ("enc", "sealed", 20, 20)
    assert dense["tag"] == store.sealed(key).tag
    assert dense["written_by"] == "node7 (H200)"
    assert (late["encoder"], late["state"], late["n_rows"], late["n_items"]) == ("late", "partial", 3, 20)
    assert late["tag"] is None
    folders = [*store.connection.folder("sets").parent.glob("*.lance")]
    assert contents.n_tables == len(folders)
    assert sum(file.stat().st_size for each in folders for file in (each / "data").iterdir()) >= contents.n_bytes > 0


def test_verify_tells_ok_from_incomplete(store):
    corpus = make_corpus(20)
    key = fill(store, corpus, make_spec())
    other = make_spec(revision="r2")
    store.put(make_key(corpus, other), other, make_block(other, range(3)))
    sources = {"image_tag": store.sealed(key).tag, "caption_tag": "sealed-gone"}
    store.write_rows("results", rows_of("results", sources))
    findings = {finding.what: finding for finding in verify(store)}
    assert findings[key.table].state == "sound"
    assert findings[make_key(corpus, other).table].detail.startswith("3 of 20 items, not sealed")
    assert findings["corpus toy"].state == "sound"
    assert findings["encoders"].detail == "1 rows"
    tags = [finding for finding in verify(store) if finding.what == "results" and finding.state == "incomplete"]
    assert "1 embedding sets" in tags[0].detail
    assert "sealed-gone" in tags[0].detail
    drop_superseded(store, encoder_fingerprint="x", corpus_fingerprint="y")
    assert store.rows("results").num_rows == 1
    drop_superseded(store, encoder_fingerprint="x", corpus_fingerprint="x")
    assert store.rows("results").num_rows == 0


def test_dropping_is_a_plan_first(store):
    corpus, spec = make_corpus(20), make_spec()
    key, captions = fill(store, corpus, spec), fill(store, corpus, spec, "caption")
    late = fill(store, corpus, make_spec(name="late", vectors="multi"))

    plan = drop(store, encoder="enc", modality="image")
    assert plan.tables == (key.table,)
    assert plan.n_rows == 20
    assert store.sealed(key) is not None

    drop(EmbeddingStore.open(store.uri), encoder="enc", modality="image", dry_run=False)
    assert store.sealed(key) is None
    assert store.sealed(captions) is not None
    assert len(store.missing(key)) == 20, "a writer that was there before notices"
    assert fill(store, corpus, spec) == key, "it can be made again"

    gone = drop(store, corpus="toy", dry_run=False)
    assert set(gone.tables) >= {key.table, captions.table, late.table}
    assert store.corpora() == []
    assert store.sealed_sets() == []
    assert store.encoder("enc") == spec
    drop(store, encoder="enc", dry_run=False)
    with pytest.raises(RequestError, match="it holds late"):
        store.encoder("enc")
    with pytest.raises(RequestError, match="give what to drop"):
        drop(store)


def test_compaction_frees_history_and_keeps_every_sealed_state(store):
    corpus, spec = make_corpus(40), make_spec()
    key = fill(store, corpus, spec, step=2)
    before = store.vectors(encoder="enc", corpus="toy", modality="image")
    other = make_spec(revision="r2")
    unsealed = make_key(corpus, other)
    for start in range(0, 30, 2):
        store.put(unsealed, other, make_block(other, range(start, start + 2)))
    for number in range(10):
        store.write_encoder(make_spec(name=f"n{number}"))

    assert compact_store(store) > 0

    table = store.connection.find(unsealed.table)
    assert (len(table.get_fragments()), table.count_rows()) == (1, 30)
    again = EmbeddingStore.open(store.uri)
    np.testing.assert_array_equal(again.vectors(encoder="enc", corpus="toy", modality="image").matrix, before.matrix)
    assert again.put(unsealed, other, make_block(other, range(28, 40))) == 10
    assert store.put(unsealed, other, make_block(other, range(28, 40))) == 0
    assert again.sealed(key) == store.sealed(key)
    assert "damaged" not in states(again)


def test_rows_added_again_beside_a_sealed_state_are_removed_and_it_stays(store, monkeypatch):
    corpus, spec = make_corpus(20), make_spec()
    key = fill(store, corpus, spec)
    unaware = EmbeddingStore.open(store.uri).writer(key)
    monkeypatch.setattr(unaware, "_refresh", lambda: None)
    unaware.put(spec, make_block(spec, range(20)))
    assert store.connection.find(key.table).count_rows() == 40
    assert store.seal(key).n_rows == 20
    assert len(store.vectors(encoder="enc", corpus="toy", modality="image")) == 20
    compact_store(store)
    assert store.connection.find(key.table).count_rows() == 20
    assert states(store) == {"sound"}


def test_temporary_files_are_swept_when_they_are_old(store):
    key = fill(store, make_corpus(20), make_spec())
    folder = store.connection.folder(key.table) / "data"
    old, young = folder / ".tmp_old", folder / ".tmp_young"
    for file in (old, young):
        file.write_bytes(bytes(1000))
    os.utime(old, (1, 1))
    assert compact_store(store) >= 1000
    assert young.exists()
    assert not old.exists()


def test_a_corpus_whose_write_was_not_finished_is_not_there_and_the_next_write_finishes_it(store):
    corpus = make_corpus(3, name="torn")
    store.write_corpus(make_corpus(4, name="kept"))
    store.connection.create(f"corpus-images-torn-{corpus.fingerprint}", corpus.images.schema, corpus.images)
    with pytest.raises(RequestError, match=r"corpus 'torn' is not in the store .*it holds kept"):
        store.corpus("torn")
    store.write_corpus(corpus)
    assert store.corpus("torn").images.equals(corpus.images)


def test_a_store_whose_format_cannot_be_read_is_opened(store, caplog):
    folder = store.connection.folder("encoders")
    for file in (folder / "_versions").iterdir():
        file.write_bytes(b"")
    assert EmbeddingStore.open(store.uri).sealed_sets() == []
    assert "Run `capim store verify --drop`" in caplog.text
    assert drop_damaged([*verify(store)]) == ["encoders"]
    assert written_format(store.connection) == FORMAT


@pytest.mark.parametrize(
    ("format_", "words"),
    [
        (99, "a later release wrote it. Upgrade capim"),
        (4, "an earlier release wrote it. Export its vectors with that release and import them here"),
    ],
)
def test_a_store_of_another_format_says_which_release_reads_it(store, format_, words):
    store.connection.find("encoders").update_schema_metadata({"capim.format": str(format_)})
    said = f"has format {format_}, this release of capim reads format {FORMAT}: {words}"
    with pytest.raises(RequestError, match=re.escape(said)) as refused:
        EmbeddingStore.open(store.uri)
    assert len(str(refused.value).splitlines()) == 1
    with one_connection():  # of a run, whose tasks open it one after the other
        for create in (False, True):
            with pytest.raises(RequestError, match=re.escape(said)):
                EmbeddingStore.open(store.uri, create=create)
