"""A store made by the first release opens, is read in full and goes on growing.

``tests/golden/store-format-1.tar.gz`` was made by ``make_golden.py``: corpus ``toy`` of 20 images, sealed sets of
``enc`` (single) and ``late`` (multi), 12 of 40 captions by ``begun``, and one row each in outcomes, results, runs.
A fingerprint that comes out differently from the same contents fails here too: it would orphan every stored vector.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from store import EmbeddingStore, RequestError, formats
from store.evolution import TRUE_OF_OLDER_ROWS
from store.keys import table_of
from store.schema import FORMAT, OUTCOMES
from store.tables import ANALYSES, CORPUS_PARTS, REGISTERS

GOLDEN = Path(__file__).parents[1] / "golden" / "store-format-1.tar.gz"


@pytest.fixture
def first(tmp_path):
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    return EmbeddingStore.open(tmp_path / "store")


def test_every_vector_of_the_first_release_reads_the_same(first, make_corpus, make_spec, make_embeddings):
    given = make_embeddings(range(20), make_spec())
    read = first.vectors(encoder="enc", corpus="toy", modality="image")
    np.testing.assert_array_equal(read.matrix, given.values.astype(np.float16).astype(np.float32))
    late = make_embeddings(range(20), make_spec(name="late", vectors="multi"))
    blocks = list(first.multivectors(encoder="late", corpus="toy", modality="image"))
    np.testing.assert_array_equal(np.concatenate([b.values for b in blocks]), late.values.astype(np.float16))
    assert first.corpus("toy").captions.equals(make_corpus(20).captions)
    assert "damaged" not in {finding.state for finding in first.verify()}


def test_a_set_that_the_first_release_began_is_finished_by_this_one(
    first, make_corpus, make_spec, make_key, make_block
):
    corpus, spec = make_corpus(20), make_spec(name="begun", revision="r0")
    key = make_key(corpus, spec, "caption")
    first.connection.find(table_of(key)).drop_columns(["put"])  # as sets were before writes had numbers
    assert first.missing(key, 40).tolist() == list(range(12, 40))
    assert first.put(key, spec, make_block(corpus, spec, range(40), "caption")) == 28
    assert first.seal(key, n_items=40).rows == 40


def test_a_sealed_set_from_before_writes_had_numbers_is_sealed_again(first):
    key = first.key(encoder="enc", corpus="toy", modality="image")
    before, table = first.sealed(key), first.connection.find(table_of(key))
    table.drop_columns(["put"])
    table.tags.delete(before.tag)
    assert first.seal(key, n_items=20).digest == before.digest


def test_rows_of_the_first_release_have_todays_columns_and_new_rows_join_them(first):
    (old,) = first.rows("outcomes").to_pylist()
    assert old["evaluation"] == "old"
    filler = {field.name: "x" if field.type == pa.string() else 1 for field in OUTCOMES if not field.nullable}
    full = {field.name: [1.0] if pa.types.is_list(field.type) else 2.0 for field in OUTCOMES if field.nullable}
    assert first.write_rows("outcomes", pa.Table.from_pylist([filler | full], schema=OUTCOMES)) == 1
    rows = first.rows("outcomes")
    assert rows.schema.equals(OUTCOMES)
    assert rows.sort_by("evaluation").to_pylist()[0] == old
    assert first.results().num_rows == first.rows("runs").num_rows == 1
    assert first.sql("SELECT count(*) AS n FROM outcomes").to_pylist() == [{"n": 2}]


def test_no_column_of_the_first_release_was_removed_or_changed_without_raising_the_format(first):
    for table, schema in {**ANALYSES, **REGISTERS}.items():
        stored = first.connection.find(table)
        if stored is not None and FORMAT == 1:
            now = {field.name: field.type for field in schema}
            assert {field.name: field.type for field in stored.schema} == {
                name: kind for name, kind in now.items() if name in stored.schema.names
            }, table


def test_a_required_column_that_is_new_gets_its_value_in_older_rows(store, monkeypatch):
    older = pa.schema([field for field in ANALYSES["outcomes"] if field.name != "weight"])
    filler = {field.name: "x" if field.type == pa.string() else 1 for field in older if not field.nullable}
    store.connection.create("outcomes", older, pa.Table.from_pylist([filler], schema=older))
    assert store.rows("outcomes").column("weight").to_pylist() == [1.0]
    store.write_rows("outcomes", pa.Table.from_pylist([filler | {"query_id": "y", "weight": 0.5}], schema=OUTCOMES))
    assert sorted(store.rows("outcomes").column("weight").to_pylist()) == [0.5, 1.0]
    assert "weight" in lance.dataset(store.connection.table_uri("outcomes")).schema.names
    monkeypatch.delitem(TRUE_OF_OLDER_ROWS, "weight")
    bare = store.connection.find("outcomes")
    bare.drop_columns(["weight"])
    with pytest.raises(RequestError, match="lacks column 'weight', which has no value that is true of older rows"):
        store.rows("outcomes")


@pytest.mark.parametrize(
    ("this", "message"), [(0, "Install a newer capim"), (2, "To migrate: .*capim export.*capim import")]
)
def test_a_store_of_another_format_says_what_to_do(store, monkeypatch, this, message):
    monkeypatch.setattr(formats, "FORMAT", this)
    with pytest.raises(RequestError, match=f"has format 1, this release reads {this}. {message}"):
        EmbeddingStore.open(store.uri)


def test_parts_of_a_corpus_are_those_of_the_schema(store, make_corpus):
    store.write_corpus(make_corpus(2))
    for part, schema in CORPUS_PARTS.items():
        corpus = store.corpus("toy")
        assert getattr(corpus, part).schema.equals(schema)


def test_a_store_whose_format_cannot_be_read_opens_with_what_its_sets_say_and_is_mended(first, caplog):
    for file in (Path(first.uri) / "formats.lance" / "data").iterdir():
        file.write_bytes(file.read_bytes()[:20])
    again = EmbeddingStore.open(first.uri)
    assert "`capim store repair formats` mends it" in caplog.text
    assert [finding.what for finding in again.verify() if finding.state == "damaged"] == ["formats"]
    assert again.repair_table("formats") == (1, 0)
    caplog.clear()
    mended = EmbeddingStore.open(first.uri)
    assert not caplog.text
    assert mended.connection.find("formats").to_table()["format"].to_pylist() == [1]
    assert "damaged" not in {finding.state for finding in mended.verify()}
