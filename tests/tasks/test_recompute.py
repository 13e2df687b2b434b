"""`capim store verify --recompute` finds figures that the ledger calls right and that are not computed so."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from capim.store import EmbeddingStore
from capim.store.ledger import entry_digest, made_rows
from capim.store.rows import read_where
from capim.store.schema import LedgerEntry, Result
from capim.store.upkeep.integrity import StoreCheck, verify
from capim.tasks.compare import compare_corpus, rank_suite
from capim.tasks.corpora.readers.shapes import read_shapes
from capim.tasks.recompute import recompute
from capim.tasks.references import EvaluationRef, RunSettings
from capim.tasks.report import diagnose_corpus
from capim.tasks.statistics.draws import Resampling
from tests.command import command
from tests.random_store import OTHER, SPECS, random_store, scored
from tests.tasks.conftest import evaluated


@pytest.fixture(scope="module")
def derived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with comparisons, analyses of one corpus and a ranking of two encoders; not to be changed."""
    workspace = tmp_path_factory.mktemp("derived")
    specs = (SPECS[0], OTHER)
    evaluations: list[EvaluationRef] = []
    for corpus in (replace(read_shapes(n_scenes=n), name=f"shapes-{n}") for n in (8, 9, 10)):
        store = random_store(workspace / "store", corpus, specs, signal=8.0)
        how: Any = {"resampling": Resampling(replicates=100), "run": "r"}
        evaluations += (of_corpus := scored(store, corpus, specs, protocols=["t2i/all"], **how))
        settings = RunSettings(store_uri=store.uri, analyses=["complexity", "errors", "temperatures"], **how)
        compare_corpus.fn(of_corpus, settings, protocols=["t2i/all"])
        if corpus.name == "shapes-9":
            diagnose_corpus.fn(of_corpus, settings)
    rank_suite.fn(tuple(evaluations), settings)
    return workspace


def wrong(store: EmbeddingStore) -> list[StoreCheck]:
    return [each for each in recompute(store) if each.state == "damaged"]


def rewritten(store: EmbeddingStore, table: str, change: dict[str, str], where: str | None = None) -> EmbeddingStore:
    """The store after rows of a table were changed and the ledger with them, as if capim had once computed so."""
    opened, ledger = (store.connection.find(name) for name in (table, "derived"))
    assert opened is not None and ledger is not None
    opened.update(change, where=where)
    made = made_rows(table, read_where(store.connection, table))
    for entry in store.all(LedgerEntry):
        if entry.table_name == table and entry.key in made:
            digest = entry_digest(entry, made[entry.key])
            ledger.update({"digest": f"'{digest}'"}, where=f"key = '{entry.key}' AND table_name = '{table}'")
    assert {check.state for check in verify(EmbeddingStore.open(store.uri))} == {"sound"}
    return EmbeddingStore.open(store.uri)


def test_a_figure_that_the_ledger_calls_right_is_named_and_made_again(store: EmbeddingStore) -> None:
    before = store.rows("results", encoder="one").drop(["created"])
    assert wrong(store) == []
    [row] = store.all(Result, encoder="one", protocol="t2i/all", metric="R@1")
    rewritten(store, "results", {"value": "0.9877"}, f"result = '{row.result}'")
    named = f"one on shapes, t2i/all, R@1: value is stored as 0.9877, computed as {row.value}"
    workspace = Path(store.uri).parent
    printed = command("store verify --recompute --format json", workspace, code=1)
    assert any(named in each["detail"] for each in printed.rows)
    assert "`capim store verify --recompute --drop` removes what is damaged" in printed.err
    command("store verify --recompute --drop", workspace)
    evaluated(EmbeddingStore.open(store.uri), read_shapes(n_scenes=12))
    command("store verify --recompute", workspace)
    assert EmbeddingStore.open(store.uri).rows("results", encoder="one").drop(["created"]).equals(before)


@pytest.fixture(scope="module")
def named(derived: Path, tmp_path_factory: pytest.TempPathFactory) -> list[StoreCheck]:
    """What is found after rows of three tables were changed."""
    store = EmbeddingStore.open(shutil.copytree(derived / "store", tmp_path_factory.mktemp("wrong") / "store"))
    rewritten(store, "comparisons", {"difference": "difference + 0.2"})
    rewritten(store, "slices", {"value": "value + 0.1"}, "analysis <> 'reference'")
    rewritten(store, "slices", {"level_name": "level_name || '!'"}, "analysis = 'reference'")
    return wrong(rewritten(store, "rankings", {"value": "value + 0.1"}))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("comparisons", "and other on shapes-8, t2i/all, R@1: difference is stored"),
        ("slices", "on shapes-9, t2i/all, "),
        ("slices", "reference, published figure"),
        ("rankings", "value is stored"),
    ],
)
def test_what_compares_encoders_is_computed_again_too(named: list[StoreCheck], table: str, words: str) -> None:
    found = [each.detail for each in named if each.what == table]
    assert any(words in detail for detail in found), found


def test_comparisons_analyses_and_rankings_that_nobody_changed_are_computed_alike(derived: Path) -> None:
    checks = recompute(EmbeddingStore.open(derived / "store"))
    computed = ["results", "comparisons", "slices", "rankings"]
    assert {each.what: each.state for each in checks} == dict.fromkeys(computed, "sound")
