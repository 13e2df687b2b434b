"""Rows of analyses: written in one commit, replaced as a group, filtered, queried."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from capim.store import EmbeddingStore, RequestError
from capim.store.rows import delete
from capim.store.schema import TABLES
from tests.random_store import rows_of
from tests.store.toy import make_block, make_corpus, make_key, make_spec


def outcomes(evaluation: str, n: int, rank: int = 1) -> pa.Table:
    shared = {"evaluation": evaluation, "rank_best": rank, "rank_worst": rank, "top_ords": [1, 2]}
    return rows_of("outcomes", *({**shared, "query_id": f"q{query}", "query_ord": query} for query in range(n)))


def run(name: str, state: str) -> pa.Table:
    return rows_of("runs", {"run": name, "state": state})


def test_replacing_takes_the_whole_group_and_leaves_the_others(store):
    assert store.write_rows("outcomes", outcomes("a", 5), replace="evaluation") == 5
    assert store.write_rows("outcomes", outcomes("b", 4), replace="evaluation") == 4
    assert store.write_rows("outcomes", outcomes("a", 3, rank=2), replace="evaluation") == 3
    rows = store.rows("outcomes")
    assert rows.num_rows == 7
    assert rows.schema.equals(TABLES["outcomes"].columns)
    assert store.rows("outcomes", evaluation="a").column("rank_best").to_pylist() == [2, 2, 2]
    assert store.rows("outcomes", evaluation=["a", "b"], query_id="q3").num_rows == 1
    assert store.rows("outcomes", evaluation=[]).num_rows == 0
    assert store.rows("outcomes", evaluation="it's; DROP TABLE").num_rows == 0


def test_outcomes_are_read_in_query_order_whatever_their_number_and_the_order_of_writing(store):
    """Beyond 8,192 rows Lance gives the rows of a merge in any order."""
    n = 20_000
    whole, other = outcomes("a", n), outcomes("b", n)
    order = np.random.default_rng(0).permutation(n)
    store.write_rows("outcomes", whole.take(order))
    store.write_rows("outcomes", other.take(order), replace="evaluation")
    for wanted in ({"evaluation": "a"}, {"evaluation": "b"}, {}):
        rows = store.rows("outcomes", **wanted)
        np.testing.assert_array_equal(rows["query_ord"].to_numpy(), np.tile(np.arange(n), len(rows) // n))
    assert store.rows("outcomes")["evaluation"].to_pylist() == ["a"] * n + ["b"] * n


def test_items_vectors_and_multivectors_are_read_in_corpus_order_whatever_their_number(store):
    n, corpus = 10_000, make_corpus(10_000)
    store.write_corpus(corpus)
    assert store.items("toy", "image")["id"].to_pylist() == corpus.images["id"].to_pylist()
    for spec in (make_spec(name="single", dim=4), make_spec(name="multi", dim=4, vectors="multi")):
        store.write_encoder(spec)
        key = make_key(corpus, spec)
        for part in np.array_split(np.random.default_rng(0).permutation(n), 3):
            store.put(key, spec, make_block(spec, part))
        store.seal(key)
    read = store.vectors(encoder="single", corpus="toy", modality="image")
    assert read.ids == corpus.images["id"].to_pylist()
    assert read.ords.tolist() == list(range(n))
    blocks = store.multivectors(encoder="multi", corpus="toy", modality="image", window=3000)
    assert np.concatenate([block.ords for block in blocks]).tolist() == list(range(n))


def test_results_are_read_in_an_order_that_does_not_depend_on_the_writing(store):
    rows = [
        {"result": f"{protocol}{metric}{encoder}", "protocol": protocol, "metric": metric, "encoder": encoder}
        for protocol in ("i2t/any", "t2i/all") for metric in ("MRR", "R@1") for encoder in "ab"
    ]  # fmt: skip
    for row in np.random.default_rng(0).permutation(len(rows)):
        store.write_rows("results", rows_of("results", rows[row]), replace="result")
    assert store.rows("results")["result"].to_pylist() == [row["result"] for row in rows]


def test_without_replace_known_rows_stay_as_they_are(store):
    assert store.write_rows("runs", run("r1", "running")) == 1
    assert store.write_rows("runs", run("r1", "failed")) == 0
    assert store.rows("runs").column("state").to_pylist() == ["running"]
    assert store.write_rows("runs", run("r1", "completed"), replace="run") == 1
    assert store.rows("runs").column("state").to_pylist() == ["completed"]


def test_outcomes_that_another_process_scored_first_are_no_damage(store):
    """On other hardware, scores may differ in the last digit."""
    assert store.write_rows("outcomes", outcomes("a", 3)) == 3
    assert store.write_rows("outcomes", outcomes("a", 3, rank=2)) == 0
    assert store.rows("outcomes")["rank_best"].to_pylist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.drop_columns(["rank_best"]), "'rank_best' with null values"),
        (lambda rows: rows.append_column("extra", pa.array([1, 2])), "has no column 'extra'"),
        (lambda rows: pa.concat_tables([rows, rows]), "occurs more than once"),
        (
            lambda rows: rows.drop_columns(["cluster"]).append_column("cluster", pa.array(["x", "y"])),
            "scalar of type int32",
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_anything_is_written(store, change, message):
    with pytest.raises(RequestError, match=message):
        store.write_rows("outcomes", change(outcomes("a", 2)))
    assert store.rows("outcomes").num_rows == 0


def test_unknown_tables_and_columns_are_named(store):
    with pytest.raises(RequestError, match="no table 'nope'; the tables are outcomes, results"):
        store.rows("nope")
    with pytest.raises(RequestError, match="table 'outcomes' has no column 'nope'"):
        store.rows("outcomes", nope="x")
    with pytest.raises(RequestError, match="no column 'nope'"):
        store.write_rows("outcomes", outcomes("a", 1), replace="nope")


def test_threads_that_replace_the_same_rows_at_once_leave_them_once(store):
    with ThreadPoolExecutor(4) as pool:
        ranked = (outcomes("a", 30, rank) for rank in range(1, 9))
        list(pool.map(lambda rows: store.write_rows("outcomes", rows, replace="evaluation"), ranked))
    rows = store.rows("outcomes")
    assert sorted(rows.column("query_id").to_pylist()) == sorted(f"q{number}" for number in range(30))
    assert len(set(rows.column("rank_best").to_pylist())) == 1, "one writer's rows, not a mixture"


@pytest.mark.parametrize("change", ["replaces", "removes"])
def test_entries_of_rows_that_another_process_changes_before_they_are_written_are_those_of_the_stored_rows(
    store, monkeypatch, change
):
    other, plain = EmbeddingStore.open(store.uri), EmbeddingStore._merge

    def merged(self, table, rows, replace):
        done = plain(self, table, rows, replace)
        if self is store and table == "outcomes":
            if change == "replaces":
                other.write_rows("outcomes", outcomes("a", 30, 2), replace="evaluation")
            else:
                delete(other.connection, "outcomes", "evaluation", ["a"])
        return done

    monkeypatch.setattr(EmbeddingStore, "_merge", merged)
    store.write_rows("outcomes", outcomes("a", 30, 1), replace="evaluation")
    rows = EmbeddingStore.open(store.uri).rows("outcomes")
    assert rows.column("rank_best").to_pylist() == ([2] * 30 if change == "replaces" else [])


def test_many_small_writes_do_not_leave_many_files(store, monkeypatch):
    monkeypatch.setattr("capim.store.embedding_store._MOST_FILES", 5)
    for number in range(12):
        store.write_rows("runs", run(f"r{number}", "running"))
    table = store.connection.find("runs")
    assert len(table.get_fragments()) <= 6
    assert table.count_rows() == 12
