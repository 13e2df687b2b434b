"""Corpora, the image index and encoders come back as they were written, once, whoever writes them."""

from __future__ import annotations

import dataclasses
import json
import logging

import pytest

from capim.store import EmbeddingStore, RequestError
from capim.store.rows import delete
from capim.store.schema import StoredImage
from capim.store.types import EncoderSpec
from tests.store.toy import make_corpus, make_spec


def test_a_corpus_comes_back_equal_and_is_stored_once(store):
    corpus = make_corpus(20, languages=("en", "de"))
    store.write_corpus(corpus)
    store.write_corpus(corpus)
    read = store.corpus("toy")
    assert read.images.equals(corpus.images)
    assert read.captions.equals(corpus.captions)
    assert read.quadruples.equals(corpus.quadruples)
    assert read.fingerprint == corpus.fingerprint
    vars(read).pop("fingerprint")
    assert read.fingerprint == corpus.fingerprint, "computed again from what was read"
    assert len(store.corpora()) == 1
    assert store.corpora()[0].languages == ["de", "en"]


def test_a_name_stands_for_the_corpus_written_last_and_a_fingerprint_for_one_state(store):
    small, large = make_corpus(3), make_corpus(4)
    store.write_corpus(large)
    store.write_corpus(small)
    assert store.corpus("toy").images.num_rows == 3
    assert store.corpus("toy", large.fingerprint).images.num_rows == 4
    assert store.corpus(large.fingerprint).images.num_rows == 4
    store.write_corpus(large)
    assert store.corpus("toy").images.num_rows == 4, "written last, though it was there"
    assert len(store.corpora()) == 2


def test_a_kept_corpus_has_the_headline_that_another_process_stored(store):
    corpus, kept = make_corpus(3), store.keeping()
    kept.connection.kept.look_seconds = 0.0
    store.write_corpus(corpus)
    assert kept.corpus(corpus.name) is kept.corpus(corpus.name)
    delete(store.connection, "corpora", "name", [corpus.name])
    store.write_corpus(dataclasses.replace(corpus, main_metric="MRR"))
    assert kept.corpus(corpus.name).main_metric == "MRR"


def test_a_corpus_keeps_every_location_that_it_was_read_from_the_newest_last(store):
    first, other = make_corpus(3), make_corpus(4)
    for corpus, location in ((first, "/a"), (first, "/b"), (first, ""), (first, "/a"), (other, "/a"), (first, "/a")):
        store.write_corpus(dataclasses.replace(corpus, location=location))
    rows = {row.fingerprint: row for row in store.corpora()}
    assert rows[first.fingerprint].locations == ["/b", "/a"]
    assert rows[other.fingerprint].locations == ["/a"]
    assert rows[first.fingerprint].written > rows[other.fingerprint].written, "read last from /a"
    assert store.corpus("toy").fingerprint == first.fingerprint
    written = rows[first.fingerprint].written
    store.write_corpus(dataclasses.replace(first, location="/a"))
    assert max(row.written for row in store.corpora()) == written, "nothing new: nothing is written"


def test_a_sample_is_stored_with_how_it_was_drawn(store):
    store.write_corpus(dataclasses.replace(make_corpus(3, name="toy-sample3-seed7"), location="/a", draw=(3, 7)))
    [row] = store.corpora()
    assert (row.sample, row.seed, row.locations) == (3, 7, ["/a"])


def test_indexed_images_are_found_by_the_hash_of_their_bytes(store):
    undecodable = StoredImage(item="b", sha="b", reason="truncated file")
    store.write_images([StoredImage(item="a", sha="a", width=4, height=3, thumbnail=b"jpeg"), undecodable])
    store.write_images([undecodable, StoredImage(item="c", sha="c", width=1, height=1)])
    assert store.indexed_images(["a", "b", "c", "d"]) == {"a": None, "b": "truncated file", "c": None}
    assert store.thumbnails(["a", "b", "c", "d"]) == {"a": b"jpeg"}
    assert EmbeddingStore.open(store.uri).indexed_images([]) == {}


def test_two_specs_under_one_name_are_kept_apart_and_logged(store, caplog):
    old, new = make_spec(), make_spec(revision="r2")
    store.write_encoder(old)
    store.write_encoder(old)
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        store.write_encoder(new)
    assert f"'enc' now means {new.fingerprint}" in caplog.text
    assert old.fingerprint in caplog.text
    assert store.encoder("enc") == new
    assert store.encoder(old.fingerprint) == old
    store.write_encoder(old)
    assert store.encoder("enc") == old, "the one that was registered last"
    with pytest.raises(RequestError, match=r"encoder 'nope' is not in the store .*it holds enc"):
        store.encoder("nope")


def test_the_licence_of_an_encoder_is_stored_with_it_and_is_no_part_of_what_it_is(store):
    store.write_encoder(make_spec())
    told = dataclasses.replace(make_spec(), licence="MIT")
    store.write_encoder(told)
    assert told.fingerprint == make_spec().fingerprint
    assert store.encoder("enc").licence == store.encoder(told.fingerprint).licence == "MIT"
    before = {name: value for name, value in json.loads(told.to_json()).items() if name != "licence"}
    assert EncoderSpec.from_json(json.dumps(before)).licence == "unknown", "stored before licences were"


@pytest.mark.parametrize("name", ["", "../up", "a/b", "a b", ".hidden", "x" * 121, "naïve"])
def test_a_name_that_could_leave_the_folder_is_refused(store, name):
    with pytest.raises(RequestError, match="1 to 120 ASCII letters, digits"):
        store.write_corpus(make_corpus(2, name=name))
    assert store.corpora() == []
