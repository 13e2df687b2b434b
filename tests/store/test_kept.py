"""Rows that a connection keeps are those that a new one reads, whatever it or others have written meanwhile."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capim.store import EmbeddingStore
from capim.store.connection import Connection
from capim.store.row_types import rows_in
from capim.store.rows import delete
from capim.store.schema import LedgerEntry, Result
from tests.random_store import rows_of
from tests.store.toy import fill, make_corpus, make_spec

KEYS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["add", "replace", "delete", "other"]), KEYS, st.sampled_from("xyz")), max_size=8
)


def contents(rows: pa.Table) -> list[str]:
    return sorted(map(str, rows.to_pylist()))


@settings(max_examples=15, deadline=None)
@given(changes=CHANGES)
@pytest.mark.parametrize(("table", "key", "column"), [("runs", "run", "state"), ("watched", "run", "encoder")])
def test_rows_are_kept_through_every_change(
    table: str,
    key: str,
    column: str,
    changes: list[tuple[str, list[str], str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """``watched`` has several columns as its key, so that replaced rows have it read again."""
    plain = EmbeddingStore.open(tmp_path_factory.mktemp("kept"), create=True)
    store = plain.keeping()
    store.connection.kept.look_seconds = 0.0
    for kind, keys, value in changes:
        rows = rows_of(table, *({key: each, column: value} for each in keys))
        if kind == "delete":
            delete(store.connection, table, key, keys)
        else:
            (plain if kind == "other" else store).write_rows(table, rows, replace=key if kind == "replace" else None)
        assert contents(store.rows(table)) == contents(plain.rows(table))
        assert store.counts(table, column) == plain.counts(table, column)


def test_what_is_added_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = EmbeddingStore.open(tmp_path, create=True).keeping()
    assert not store.rows("runs")
    for n in range(40):
        store.write_rows("runs", rows_of("runs", {"run": str(n)}), replace="run")
    monkeypatch.setattr(Connection, "find", None)
    store.connection.kept.look_seconds = 60.0
    assert store.rows("runs").num_rows == 40
    assert store.rows("runs")["run"].num_chunks < 40


def test_what_newer_rows_refer_to_is_looked_for_again(tmp_path: Path) -> None:
    """Another process registers an encoder and a corpus, and writes results; ours has just looked at the registers."""
    others = EmbeddingStore.open(tmp_path, create=True)
    ours = others.keeping()
    ours.connection.kept.look_seconds = 60.0
    corpus, spec = make_corpus(20), make_spec()
    assert not ours.encoders()
    assert not ours.corpora()
    assert not ours.sealed_sets()
    key = fill(others, corpus, spec, step=20)
    names = {"encoder": spec.name, "corpus": corpus.name}
    fingerprints = {"encoder_fingerprint": spec.fingerprint, "corpus_fingerprint": corpus.fingerprint}
    others.write_rows("results", rows_of("results", names | fingerprints))
    assert ours.states().corpora == {corpus.name: corpus.fingerprint}
    assert ours.encoder(spec.fingerprint) == spec
    assert ours.corpus(corpus.name).fingerprint == corpus.fingerprint
    assert ours.sealed(key) == others.sealed(key)


def derived(store: EmbeddingStore) -> None:
    """Writes a result and its entry of the ledger."""
    rows = rows_in(Result, rows_of("results", {"derived": "d"}))
    store.write_derived("results", rows, rows_in(LedgerEntry, rows_of("derived", {"key": "d"})))


def test_rows_that_others_derived_are_read_although_the_ledger_was_cached_before(tmp_path: Path) -> None:
    others = EmbeddingStore.open(tmp_path, create=True)
    ours = others.keeping()
    ours.connection.kept.look_seconds = 60.0
    assert not ours.rows("derived")
    derived(others)
    assert ours.rows("results").num_rows == 1


def test_rows_that_we_derived_are_read_whatever_another_thread_has_just_seen(tmp_path: Path) -> None:
    """It read the rows before their entry, and remembered them, as without an entry, after both were written."""
    store = EmbeddingStore.open(tmp_path, create=True).keeping()
    store.connection.kept.look_seconds = 60.0
    derived(store)
    checked = store.connection.checked
    checked["results"] = checked["results"]._replace(unlisted=frozenset({"d"}))
    assert store.rows("results").num_rows == 1
