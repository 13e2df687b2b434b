"""Comparisons grow: one more encoder costs its own pairs, and gives the same rows as all encoders at once."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from capim.store import EmbeddingStore
from capim.store.removal import drop_evaluations
from capim.store.types import EncoderSpec
from capim.tasks import compare
from capim.tasks.corpora.readers.shapes import read_shapes
from capim.tasks.results import comparison
from capim.tasks.runtime.references import EvaluationRef
from capim.tasks.statistics.draws import Adjustment, Resampling
from tests.random_store import random_store
from tests.tasks.conftest import evaluated

SPECS = [
    EncoderSpec(name=f"e{dim}", adapter="hf_dual", checkpoint=f"me/e{dim}", revision="a1", dim=dim)
    for dim in (8, 9, 10, 11)
]
PROTOCOLS = ("t2i/all", "i2t/any")
DIFFERS = {"created", "run"}  # between stores that are otherwise equal


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[EvaluationRef, ...]]:
    """A store of four encoders that are not compared yet, on more images than have their flips enumerated."""
    corpus, path = read_shapes(n_scenes=24), tmp_path_factory.mktemp("growth") / "store"
    return path, evaluated(random_store(path, corpus, SPECS), corpus, SPECS)


def compared(
    store: EmbeddingStore, evaluations: Sequence[EvaluationRef], run: str, adjustment: Adjustment = "max-t"
) -> list[dict[str, Any]]:
    """The rows of a comparison of these encoders, without what differs between stores."""
    how = Resampling(replicates=60, permutations=500, adjustment=adjustment)
    reference = compare.compare_corpus.fn(
        tuple(evaluations), protocols=PROTOCOLS, store_uri=store.uri, resampling=how, run=run
    )
    rows = sorted(compare.compared_rows(store, [reference]), key=lambda row: str(row["comparison"]))
    return [{name: value for name, value in row.items() if name not in DIFFERS} for row in rows]


def copied(whole: tuple[Path, tuple[EvaluationRef, ...]], path: Path) -> EmbeddingStore:
    return EmbeddingStore.open(shutil.copytree(whole[0], path))


@pytest.mark.parametrize("adjustment", ["max-t", "holm"])
def test_a_store_grown_encoder_by_encoder_equals_one_made_at_once_to_the_last_bit(
    whole: tuple[Path, tuple[EvaluationRef, ...]], tmp_path: Path, adjustment: Adjustment
) -> None:
    every = whole[1]
    at_once = compared(copied(whole, tmp_path / "at once"), every, "r", adjustment)
    assert {row["metric"] for row in at_once} > {"R@1", "MRR", "median_rank"}
    assert any(not row["p_exact"] for row in at_once if row["metric"] == "median_rank")
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        grown = copied(whole, tmp_path / str(order))
        for n in range(2, 5):
            rows = compared(grown, [every[at] for at in sorted(order[:n])], f"r{n}", adjustment)
        assert [{name: str(value) for name, value in row.items()} for row in rows] == [
            {name: str(value) for name, value in row.items()} for row in at_once
        ]


def test_one_more_encoder_makes_its_own_pairs_only_and_another_family_of_known_pairs_none(
    whole: tuple[Path, tuple[EvaluationRef, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, every = copied(whole, tmp_path / "store"), whole[1]
    made = compared(store, every[:3], "three")
    n_figures = len({(row["protocol"], row["metric"]) for row in made})
    compared(store, every, "four")
    by_run = store.counts("derived", "run", kind="pair")
    assert by_run == {"three": 3 * n_figures, "four": 3 * n_figures}
    monkeypatch.setattr(comparison, "all_pair_facts", None)  # nothing of a pair is computed
    assert len(compared(store, every[1:], "others")) == 3 * n_figures
    for adjustment in ("holm", "benjamini-hochberg"):
        assert len(compared(store, every, adjustment, adjustment)) == 6 * n_figures


def test_pairs_go_with_the_evaluations_that_they_are_of(
    whole: tuple[Path, tuple[EvaluationRef, ...]], tmp_path: Path
) -> None:
    store, every = copied(whole, tmp_path / "store"), whole[1]
    compared(store, every, "r")
    before = store.rows("pair_facts").num_rows
    gone = every[0]
    drop_evaluations(
        store,
        [*gone.evaluations.values()],
        encoder_fingerprints=[gone.sets.encoder_fingerprint],
        corpus_fingerprint=gone.sets.corpus_fingerprint,
    )
    assert 2 * store.rows("pair_facts").num_rows == before  # three of six pairs
    assert not store.counts("pair_facts", "evaluation_a", evaluation_a=[*gone.evaluations.values()])
