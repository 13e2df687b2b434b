"""`capim store verify --recompute` finds wrong bytes that every digest and checksum calls right."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capim.store import EmbeddingStore
from capim.store.integrity import StoreCheck, verify
from capim.tasks.compare import compare_corpus, rank_suite
from capim.tasks.corpora.readers.shapes import read_shapes
from capim.tasks.recompute import Wrong, recompute
from capim.tasks.report import diagnose_corpus
from capim.tasks.runtime.references import EvaluationRef
from capim.tasks.statistics.draws import Resampling
from tests.command import command
from tests.random_store import OTHER, SPECS, random_store
from tests.tasks.conftest import evaluated

_SAME_CRC = 0x1DB710641  # the polynomial of CRC-32: these bits can be flipped anywhere, and no checksum changes


@pytest.fixture(scope="module")
def derived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with comparisons, analyses and a ranking of two encoders over two corpora; not to be changed."""
    workspace = tmp_path_factory.mktemp("derived")
    specs = (SPECS[0], OTHER)
    evaluations: list[EvaluationRef] = []
    for corpus in (replace(read_shapes(n_scenes=n), name=f"shapes-{n}") for n in (8, 9, 10)):
        store = random_store(workspace / "store", corpus, specs, signal=8.0)
        evaluations += (of_corpus := evaluated(store, corpus, specs))
        how: Any = {"store_uri": store.uri, "resampling": Resampling(replicates=100), "run": "r"}
        compare_corpus.fn(of_corpus, protocols=["t2i/all"], **how)
        diagnose_corpus.fn(of_corpus, analyses=["complexity", "hubs", "gap"], **how)
    rank_suite.fn(tuple(evaluations), **how)
    return workspace


def change(store: EmbeddingStore, table: str, changed: Callable[[bytes], bytes]) -> EmbeddingStore:
    """Changes the data files of a table together with the record of its digests, which bless what they now are."""
    for file in (Path(store.uri) / f"{table}.lance" / "data").iterdir():
        file.write_bytes(changed(file.read_bytes()))
    fresh = EmbeddingStore.open(store.uri)
    opened = fresh.connection.open(table)
    assert opened is not None
    fresh.connection.digests.record(table, opened, anew=True)
    assert {check.state for check in verify(EmbeddingStore.open(store.uri))} == {"sound"}
    return EmbeddingStore.open(store.uri)


def wrong(store: EmbeddingStore) -> list[Wrong]:
    return [each for each in recompute(store) if isinstance(each, Wrong)]


def test_an_undisturbed_store_has_every_figure_and_outcome_that_is_computed(store: EmbeddingStore) -> None:
    counted = {each.what: each.detail for each in recompute(store) if not isinstance(each, Wrong)}
    assert counted == {"results": f"{store.rows('results').num_rows} computed again", "outcomes": counted["outcomes"]}
    assert wrong(store) == []


def test_a_figure_that_was_changed_with_its_digest_is_named_and_made_again(store: EmbeddingStore) -> None:
    before = store.rows("results", encoder="one").drop(["created"])
    [row] = store.rows("results", encoder="one", protocol="t2i/all", metric="R@1").to_pylist()
    bits = struct.pack("<d", row["value"])
    changed = change(store, "results", lambda data: data.replace(bits, struct.pack("<d", 0.9877)))
    found = [each.detail for each in wrong(changed)]
    named = f"one on shapes, t2i/all, R@1: value is stored as 0.9877, computed as {row['value']}"
    assert any(named in detail for detail in found), found
    workspace = Path(store.uri).parent
    printed = command("store verify --recompute --format json", workspace, code=1)
    assert any(named in each["detail"] for each in printed.rows)
    command("store repair --recompute", workspace)
    evaluated(EmbeddingStore.open(store.uri), read_shapes(n_scenes=12))
    command("store verify --recompute", workspace)
    assert EmbeddingStore.open(store.uri).rows("results", encoder="one").drop(["created"]).equals(before)


@pytest.mark.parametrize("encoder", ["one", "many"])
def test_a_changed_vector_whose_row_has_the_checksum_that_it_should_have_is_found(
    store: EmbeddingStore, encoder: str
) -> None:
    [spec] = [spec for spec in SPECS if spec.name == encoder]
    key = store.key(encoder=encoder, corpus="shapes", modality="image")
    stored = next(iter(store.stored_blocks(key))).vectors[0]
    for place in range(8 * (stored.nbytes - 5)):
        flipped = (int.from_bytes(stored.tobytes(), "little") ^ _SAME_CRC << place).to_bytes(stored.nbytes, "little")
        values = np.frombuffer(flipped, stored.dtype)
        if np.isfinite(values).all() and 0.3 < np.abs(values - stored.ravel()).max() < 4:
            break
    changed = change(store, key.table, lambda data: data.replace(stored.tobytes(), flipped))
    found = wrong(changed)
    assert {(each.what, each.detail.partition(",")[0]) for each in found} == {("outcomes", f"{spec.name} on shapes")}
    workspace = Path(store.uri).parent
    assert "embeddings" in command("store repair --recompute", workspace).err
    assert wrong(EmbeddingStore.open(store.uri)) == []


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("rank_worst", "rank_worst + 1", "are stored, computed"),
        ("best_score", "best_score + 0.01", "the best relevant score is stored as"),
        ("cluster", "cluster + 1", "clusters is stored as 1, computed as 0"),
    ],
)
def test_changed_outcomes_are_found_though_the_figures_follow_from_them(
    store: EmbeddingStore, column: str, value: str, words: str
) -> None:
    table = store.connection.find("outcomes")
    assert table is not None
    table.update({column: value}, where="protocol = 'i2t/any' AND encoder = 'many' AND query_ord = 0")
    found = [each.detail for each in wrong(store) if each.what == "outcomes"]
    assert found
    assert all("many on shapes, i2t/any" in detail and words in detail for detail in found), found


@pytest.mark.parametrize(
    ("table", "change_of", "words"),
    [
        (
            "comparisons",
            {"difference": "difference + 0.2"},
            "and other on shapes-8, t2i/all, R@1: difference is stored",
        ),
        ("slices", {"value": "value + 0.1"}, "on shapes-9, t2i/all, "),
        ("slices", {"level_name": "level_name || '!'"}, "reference, published figure"),
        ("rankings", {"value": "value + 0.1"}, "value is stored"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_compares_encoders_is_computed_again_too(
    derived: Path, tmp_path: Path, table: str, change_of: dict[str, str], words: str
) -> None:
    store = EmbeddingStore.open(shutil.copytree(derived / "store", tmp_path / "store"))
    opened = store.connection.find(table)
    assert opened is not None
    opened.update(change_of)
    found = [each.detail for each in wrong(store) if each.what == table]
    assert any(words in detail for detail in found), found


def test_comparisons_analyses_and_rankings_that_nobody_changed_are_computed_alike(derived: Path) -> None:
    found = list(recompute(EmbeddingStore.open(derived / "store")))
    checks = [each for each in found if isinstance(each, StoreCheck)]
    assert len(checks) == len(found)
    computed = ["results", "outcomes", "comparisons", "slices", "rankings"]
    assert {each.what: each.state for each in checks} == dict.fromkeys(computed, "sound")
