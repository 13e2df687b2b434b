"""Which of several rows is current: one state of each name, the newest row of a figure, comparisons of one request."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from capim.store import EmbeddingStore
from capim.store.current import States, newest_rows
from capim.store.row_types import rows_in
from capim.store.rows import merge
from capim.store.schema import ANALYSES, Comparison, OfStates, Result, Watched
from tests.random_store import BEGUN, rows_of, write_row


def result(store: EmbeddingStore, day: int, encoder: str = "a1", corpus: str = "x1", **columns: Any) -> str:
    """A result of the state of an encoder, whose name is a letter, on that of a corpus."""
    subject = {"encoder": encoder[0], "encoder_fingerprint": encoder, "corpus": corpus[0], "corpus_fingerprint": corpus}
    subject |= {"protocol": "t2i/all", "metric": "R@1", "metric_version": "1", "evaluation": f"e{day}"}
    return write_row(store, "results", day, **subject | columns)


@pytest.fixture
def two_states(store: EmbeddingStore) -> EmbeddingStore:
    """A store with two states of corpus ``x``."""
    rows = ({"name": "x", "fingerprint": f"x{day}", "written": BEGUN + timedelta(days=day)} for day in (1, 2))
    merge(store.connection, "corpora", rows_of("corpora", *rows), update=True)
    return store


def current(store: EmbeddingStore, table: str = "results", **equals: str) -> list[str]:
    """The keys of the current rows, which a view of SQL has, too."""
    [key, *_] = ANALYSES[table].key
    rows = [getattr(row, key) for row in store.current(ANALYSES[table].row, **equals)]
    if not equals:
        assert store.sql(f"SELECT {key} FROM {table}")[key].to_pylist() == rows
    return rows


def test_a_name_means_its_newest_state_and_a_figure_its_newest_row(two_states: EmbeddingStore) -> None:
    result(two_states, 1)
    result(two_states, 2, corpus="x2")
    newest = result(two_states, 3, corpus="x2")
    other = result(two_states, 4, corpus="x2", metric="MRR")
    assert current(two_states) == [other, newest]
    assert current(two_states, metric="R@1") == [newest]
    again = result(two_states, 5, encoder="a2", corpus="x2")
    assert current(two_states) == [again], "all figures of an earlier state of the encoder are left out"
    assert current(two_states, encoder_fingerprint="a1") == [other, newest], "a fingerprint means that state"


def test_results_on_a_dropped_corpus_and_of_another_version_of_the_metric_are_not_current(two_states) -> None:
    kept = result(two_states, 1)
    result(two_states, 2, corpus="x3")
    assert current(two_states) == [kept], "no corpus x3 is stored"
    newer = result(two_states, 3, encoder="b1", metric_version="2")
    assert current(two_states) == [newer]


def test_a_result_that_is_written_while_the_current_ones_are_read_takes_none_away(two_states, monkeypatch) -> None:
    first, read_all = result(two_states, 1), EmbeddingStore.all

    def read_before_others_write(store, row_type, **equals):
        rows = read_all(store, row_type, **equals)
        result(two_states, 2)
        return rows

    monkeypatch.setattr(EmbeddingStore, "all", read_before_others_write)
    assert [row.result for row in two_states.current(Result)] == [first]


def test_equal_times_are_decided_by_run() -> None:
    rows = rows_in(Watched, rows_of("watched", *({"created": BEGUN, "run": run} for run in ("2", "3", "1"))))
    assert [row.run for row in newest_rows(rows, "watched")] == ["3"]


def compared(store: EmbeddingStore, day: int, a: str, b: str, **columns: Any) -> str:
    pair = {"encoder_a": a[0], "fingerprint_a": a, "encoder_b": b[0], "fingerprint_b": b}
    figure = {"corpus": "x", "corpus_fingerprint": "x1", "protocol": "t2i/all", "metric": "R@1", "metric_version": "1"}
    return write_row(store, "comparisons", day, **pair, **figure | columns)


def test_comparisons_of_a_figure_are_those_of_the_request_with_most_current_pairs(two_states: EmbeddingStore) -> None:
    for day, encoder in enumerate(("a1", "b1", "c1")):
        result(two_states, day, encoder=encoder)
    pairs = [compared(two_states, day, *pair, run="all") for day, pair in enumerate((("a1", "b1"), ("a1", "c1")), 3)]
    compared(two_states, 5, "b1", "c1")
    compared(two_states, 6, "a1", "b1", metric_version="0")
    assert current(two_states, "comparisons") == pairs, "the pair of a later request takes none out of them"


def test_the_ranking_of_most_encoders_and_corpora_of_current_states_is_current(two_states: EmbeddingStore) -> None:
    for day, encoder in enumerate(("a1", "b1")):
        result(two_states, day, encoder=encoder)
    for day, n, state in ((1, 2, "x1"), (2, 1, "x1"), (3, 2, "x1"), (4, 5, "x0")):
        corpora = json.dumps([{"corpus": "x", "fingerprint": state}])
        of_a = {"encoder": "a", "encoder_fingerprint": "a1", "value": 0.5}
        write_row(two_states, "rankings", day, **of_a, corpora=corpora, n_encoders=n)
    assert current(two_states, "rankings") == ["rankings-3"]


def test_a_ranking_without_what_is_at_chance_is_as_large_as_the_older_one_with_it(two_states: EmbeddingStore) -> None:
    for day, encoder in enumerate(("a1", "b1")):
        result(two_states, day, encoder=encoder)
    older, newer = (json.dumps([{"corpus": "x", "fingerprint": "x1", "not_counted": of}]) for of in ([], ["z"]))
    of_b = {"encoder": "b", "encoder_fingerprint": "b1", "corpora": newer, "headlines": '{"x": 0.1}'}
    of_a = {"encoder": "a", "encoder_fingerprint": "a1", "value": 0.5}
    for encoder, value in (("a", 0.5), ("b", 0.6)):
        of_one = {"encoder": encoder, "encoder_fingerprint": f"{encoder}1", "value": value, "n_corpora": 2}
        write_row(two_states, "rankings", 1, **of_one, corpora=older, n_encoders=2)
    write_row(two_states, "rankings", 2, **of_a, corpora=newer, n_encoders=1)
    write_row(two_states, "rankings", 2, **of_b, n_encoders=1)
    assert current(two_states, "rankings") == ["rankings-2"] * 2


def test_states_have_rows_of_every_table() -> None:
    states = States(corpora={"x": "x1"}, encoders={"a": "a1"})
    of_sets = OfStates(encoder="a", encoder_fingerprint="a1", corpus="x", corpus_fingerprint="x1")
    assert states.has(of_sets)
    assert not states.has(replace(of_sets, corpus="y"))
    assert not states.has(replace(of_sets, corpus_fingerprint="x0"))
    pair = {"encoder_a": "a", "fingerprint_a": "a0", "encoder_b": "a", "corpus": "x", "corpus_fingerprint": "x1"}
    [compared] = rows_in(Comparison, rows_of("comparisons", pair | {"fingerprint_b": "a1"}))
    assert not states.has(compared)
    assert states.has(replace(compared, fingerprint_a="a1"))
