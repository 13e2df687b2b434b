"""SQL sees everything, float16 vectors included, and can change nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import duckdb
import numpy as np
import pytest

from capim.store import EmbeddingStore, RequestError
from capim.store.sql import known_tables
from capim.store.upkeep.inventory import SETS_INFO
from tests.random_store import rows_of, write_row
from tests.store.toy import fill, make_corpus, make_spec


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    store, corpus = EmbeddingStore.open(tmp_path_factory.mktemp("filled") / "store", create=True), make_corpus(5)
    fill(store, corpus, make_spec(name="dense", storage="float16"))
    fill(store, corpus, make_spec(name="dense", storage="float16"), "caption")
    fill(store, corpus, make_spec(name="late", vectors="multi"))
    return store


def test_a_statement_that_takes_longer_than_it_may_is_stopped(filled):
    begun = time.monotonic()
    with pytest.raises(RequestError, match=r"the query took longer than 0\.3 seconds"):
        filled.sql(
            "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range % 7 = b.range % 11", seconds=0.3
        )
    assert time.monotonic() - begun < 10


def test_a_statement_takes_no_more_memory_than_it_may(filled):
    lists = "SELECT range(100000) FROM range(1000)"  # an answer of 800 MB
    for statement in (lists, "SELECT list(range) FROM range(10000000)"):
        with pytest.raises(RequestError, match="needs more memory than 50 MiB; select fewer rows"):
            filled.sql(statement, memory=50 * 2**20)
    ordered = "SELECT count(*) AS n FROM (SELECT md5(range::VARCHAR) AS m FROM range(2000000) ORDER BY m)"
    assert filled.sql(ordered, memory=100 * 2**20).to_pylist() == [{"n": 2_000_000}]


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="threads get no signals")
@pytest.mark.parametrize("seconds", [None, 300])
def test_ctrl_c_ends_a_statement_while_duckdb_waits_for_its_threads(filled, seconds):
    endless = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range % 7 = 3"
    pressed = threading.Timer(1, os.kill, [os.getpid(), signal.SIGINT])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell ignores in the background
    pressed.start()
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            filled.sql(endless, seconds=seconds)
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begun < 10


def test_tables_are_listed_and_pivoted(filled) -> None:
    listed = filled.sql("SHOW TABLES").column("name").to_pylist()
    assert {*known_tables()} == {*listed}
    named = filled.sql("SELECT column_name FROM information_schema.columns WHERE table_name = 'encoders'")
    assert {"name", "fingerprint", "spec"} <= {*named.column("column_name").to_pylist()}
    pivoted = filled.sql("PIVOT results ON metric USING first(value) GROUP BY encoder, protocol")
    metrics = filled.sql("SELECT DISTINCT metric FROM results").column("metric").to_pylist()
    assert pivoted.column_names == ["encoder", "protocol", *sorted(metrics)]


def test_columns_that_a_statement_names_by_a_pattern_are_all_there(filled):
    found = filled.sql("SELECT COLUMNS('value.*') FROM results").column_names
    assert found == ["value", "value_ties_lost", "value_ties_won"]


def test_captions_images_and_embeddings_join(filled):
    answer = filled.sql(
        "SELECT i.text, e.n_tokens FROM embeddings e JOIN captions i USING (corpus_fingerprint, ord) "
        "WHERE e.encoder = 'dense' AND e.modality = 'caption' ORDER BY ord LIMIT 2"
    )
    assert answer.to_pylist() == [{"text": "en text 0 0", "n_tokens": 0}, {"text": "en text 0 1", "n_tokens": 1}]
    assert filled.sql("SELECT count(*) AS n FROM embedded_items WHERE text IS NOT NULL").to_pylist() == [{"n": 10}]


def test_float16_vectors_are_read_as_floats_when_they_are_named(filled):
    answer = filled.sql("SELECT list_inner_product(vector, vector) AS square FROM embeddings WHERE encoder = 'dense'")
    np.testing.assert_allclose(answer.column("square").to_numpy(), 1.0, atol=2e-3)
    counts = filled.sql("SELECT len(vectors) AS n, n_vectors FROM embeddings WHERE encoder = 'late' ORDER BY ord")
    assert counts.column("n").to_pylist() == counts.column("n_vectors").to_pylist() == [1, 2, 3, 1, 2]
    assert "vector" not in filled.sql("SELECT * FROM embeddings LIMIT 1").column_names
    assert "vectors" in filled.sql("SELECT * FROM sets LIMIT 1").column_names


def test_outcomes_come_with_the_text_that_was_searched_with(filled):
    toy = {"corpus": "toy", "corpus_fingerprint": filled.corpus("toy").fingerprint}
    of_captions = toy | {"protocol": "t2i/all", "evaluation": "of captions"}
    filled.write_rows("outcomes", rows_of("outcomes", of_captions | {"query_id": "en/human/3"}))
    assert filled.sql("SELECT count(*) AS n FROM query_outcomes").to_pylist() == [{"n": 0}], "they have no results yet"
    write_row(filled, "results", 1, **of_captions)
    answer = filled.sql("SELECT query_text, query_image, rank_best FROM query_outcomes")
    assert answer.to_pylist() == [{"query_text": "en text 1 1", "query_image": "i00001", "rank_best": 1}]
    of_images = toy | {"protocol": "i2i/all", "evaluation": "of images"}
    filled.write_rows("outcomes", rows_of("outcomes", of_images | {"query_id": "i00002"}))
    write_row(filled, "results", 2, **of_images)
    answer = filled.sql("SELECT query_modality, query_image FROM query_outcomes WHERE protocol = 'i2i/all'")
    assert answer.to_pylist() == [{"query_modality": "image", "query_image": "i00002"}]


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE results",
        "CREATE TABLE x AS SELECT 1",
        "COPY (SELECT 1) TO '/tmp/capim-query.csv'",
        "SELECT 1; SELECT 2",
        "ATTACH '/tmp/capim-query.db'",
        "SET enable_external_access = true",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "PRAGMA version",
        "",
    ],
)
def test_anything_but_one_question_is_refused(filled, statement):
    with pytest.raises(RequestError, match="the query failed"):
        filled.sql(statement)


def test_columns_of_one_name_are_numbered_and_none_is_lost(filled):
    found = filled.sql("SELECT a.n, b.n, 3 AS n_2, c.n FROM (SELECT 1 AS n) a, (SELECT 2 AS n) b, (SELECT 4 AS n) c")
    assert found.to_pylist() == [{"n": 1, "n_3": 2, "n_2": 3, "n_4": 4}]


def test_a_question_leaves_nothing_on_stderr(filled):
    code = (
        f"from capim import store; print(store.EmbeddingStore.open({filled.uri!r}).sql('SELECT 1 AS one').to_pylist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[{'one': 1}]\n", "")


def test_every_table_and_view_can_be_selected_from_and_no_column_needs_quotes(filled):
    words = duckdb.sql("SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'").fetchall()
    refused = {"set", "rows", "values", "bytes", "interval"} | {word for (word,) in words}
    for name in known_tables():
        assert name not in refused
        assert filled.sql(f"SELECT count(*) AS n FROM {name}").column_names == ["n"]
        assert filled.sql(f"SELECT * FROM {name} LIMIT 1").num_columns >= 2
        columns = filled.sql(f"DESCRIBE {name}").column("column_name").to_pylist()
        assert not refused & set(columns), name
        assert filled.sql(f"SELECT {', '.join(columns)} FROM {name} LIMIT 0").column_names == columns
    sets = [filled.connection.find(sealed.key.table).schema for sealed in filled.sealed_sets()]
    for names in (*(schema.names for schema in sets), SETS_INFO):
        assert not refused & set(names)
