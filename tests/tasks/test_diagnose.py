"""The shell: what lies in the store in, slices into the store out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from capim.store import EmbeddingStore
from capim.store.rows import delete
from capim.store.schema import SHARE_OF_MISSES, LedgerEntry, Slice
from capim.store.types import Corpus
from capim.tasks.analyses.analysis import SingleVectors
from capim.tasks.analyses.table import ANALYSES
from capim.tasks.analyses.vectors import StoredVectors
from capim.tasks.corpora.readers.shapes import read_shapes
from capim.tasks.references import EvaluationRef, RunSettings
from capim.tasks.report import analyses_of, diagnose_corpus
from capim.tasks.statistics.draws import Resampling
from tests.random_store import SPECS, embeddings, random_store
from tests.tasks.conftest import N_SCENES, evaluated


@pytest.fixture
def corpus() -> Corpus:
    return read_shapes(n_scenes=N_SCENES)


def diagnose(store: EmbeddingStore, evaluations: tuple[EvaluationRef, ...], run: str) -> int:
    how = RunSettings(store_uri=store.uri, resampling=Resampling(replicates=100), run=run)
    return diagnose_corpus.fn(evaluations, how).n_rows


def test_slices_of_a_store_grown_encoder_by_encoder_are_those_of_one_made_at_once(
    store: EmbeddingStore, evaluations: tuple[EvaluationRef, ...], corpus: Corpus, tmp_path: Path
) -> None:
    diagnose(store, evaluations, "once")
    for name, order in (("forth", [0, 1]), ("back", [1, 0])):
        grown = random_store(tmp_path / name, corpus)
        again = evaluated(grown, corpus)
        for n in range(1, len(again) + 1):
            diagnose(grown, tuple(again[at] for at in sorted(order[:n])), f"{n}")
        assert timeless(grown) == timeless(store)


IDS = ("slice", "derived", "run", "created")


def timeless(store: EmbeddingStore) -> list[dict[str, object]]:
    """The current slices, without whose run they are and when; their details hold no time that a clock measured."""
    return [{k: v for k, v in vars(row).items() if k not in IDS} for row in store.current(Slice)]


def test_only_what_another_version_or_other_settings_change_is_made_again(
    store: EmbeddingStore, evaluations: tuple[EvaluationRef, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(run: str, seed: int = 0) -> set[str]:
        resampling = Resampling(replicates=100, seed=seed)
        diagnose_corpus.fn(evaluations, RunSettings(store_uri=store.uri, resampling=resampling, run=run))
        rows = store.all(LedgerEntry, run=run, kind="analysis")
        return {row.subject.analysis or "" for row in rows}

    every = made("first")
    monkeypatch.setitem(ANALYSES, "errors", replace(ANALYSES["errors"], version="another"))
    assert made("newer code") == {"errors"}
    assert made("other settings", seed=1) == every
    delete(store.connection, "slices", "analysis", ["threshold"])
    assert made("removed", seed=1) == {"thresholds"}


def test_an_analysis_that_draws_is_made_again_with_another_number_of_replicates(
    store: EmbeddingStore, evaluations: tuple[EvaluationRef, ...], corpus: Corpus
) -> None:
    def keys(name: str, replicates: int) -> set[str]:
        work = analyses_of(store, corpus, evaluations, [name], Resampling(replicates=replicates))
        return {each.key for each in work.wanted}

    assert keys("resampled-gallery", 100).isdisjoint(keys("resampled-gallery", 200))
    assert keys("errors", 100) == keys("errors", 200), "its intervals need no draws"


def test_sql_lists_the_ambiguous_misses_that_the_slices_count(tmp_path: Path, corpus: Corpus) -> None:
    texts = ["a shape" if at % 3 else text for at, text in enumerate(corpus.captions["text"].to_pylist())]
    place = corpus.captions.schema.get_field_index("text")
    alike = replace(corpus, captions=corpus.captions.set_column(place, "text", pa.array(texts)))
    store = random_store(tmp_path / "alike", alike)
    diagnose(store, evaluated(store, alike), "r")
    listed = store.sql(
        "SELECT a.encoder, a.protocol, a.cause, count(*) AS n, count(o.query_id) AS missed FROM ambiguous_misses a "
        "LEFT JOIN outcomes o ON o.encoder = a.encoder AND o.protocol = a.protocol AND o.query_id = a.query_id "
        "AND o.rank_best > 1 GROUP BY ALL"
    ).to_pylist()
    stored = {
        (row.encoder, row.protocol, row.feature): json.loads(row.detail or "")["ambiguous"]
        for row in store.all(Slice, analysis="ambiguous", metric=SHARE_OF_MISSES)
        if row.feature != "either"
    }
    assert {(r["encoder"], r["protocol"], r["cause"]): r["n"] for r in listed} == {k: n for k, n in stored.items() if n}
    assert all(row["missed"] == row["n"] for row in listed)
    assert listed


def test_both_headline_protocols_are_explained_and_nothing_else(
    store: EmbeddingStore, evaluations: tuple[EvaluationRef, ...]
) -> None:
    diagnose(store, evaluations, "r")
    rows = store.all(Slice)
    explained = {row.protocol for row in rows if row.analysis != "reference"}
    assert explained == {"t2i/all", "i2t/any"}
    assert {row.encoder for row in rows} == {"one", "many"}
    assert {row.level_name for row in rows if row.analysis == "reference"} == {"no reference"}


def test_vectors_come_back_as_they_were_put_multi_vectors_up_to_float16(store: EmbeddingStore, corpus: Corpus) -> None:
    fingerprints = {spec.name: spec.fingerprint for spec in SPECS}
    read = StoredVectors(store, fingerprints, corpus).single
    one = read("one")
    assert isinstance(one, SingleVectors)
    assert read("many") is None
    assert np.array_equal(one.images, embeddings(SPECS[0], N_SCENES, seed=N_SCENES).values)
    many = StoredVectors(store, fingerprints, corpus).items("many", "image", np.arange(N_SCENES, dtype=np.int32))
    assert many is not None
    assert many.values == pytest.approx(embeddings(SPECS[1], N_SCENES, seed=N_SCENES).values, abs=1e-3)
    assert many.ords.tolist() == list(range(N_SCENES))
