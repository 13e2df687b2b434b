"""Comparisons grow: one more encoder gives the same rows as all encoders at once."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from capim.store import EmbeddingStore
from capim.store.schema import Comparison
from capim.store.types import EncoderSpec
from capim.tasks import compare
from capim.tasks.corpora.readers.shapes import read_shapes
from capim.tasks.references import EvaluationRef, rows_of
from capim.tasks.statistics.draws import Resampling
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


def compared(store: EmbeddingStore, evaluations: Sequence[EvaluationRef], run: str) -> list[dict[str, Any]]:
    """The rows of a comparison of these encoders, without what differs between stores."""
    how = Resampling(replicates=60, permutations=500)
    reference = compare.compare_corpus.fn(
        tuple(evaluations), protocols=PROTOCOLS, store_uri=store.uri, resampling=how, run=run
    )
    rows = sorted(rows_of(store, Comparison, [reference]), key=lambda row: row.comparison)
    return [{name: value for name, value in vars(row).items() if name not in DIFFERS} for row in rows]


def copied(whole: tuple[Path, tuple[EvaluationRef, ...]], path: Path) -> EmbeddingStore:
    return EmbeddingStore.open(shutil.copytree(whole[0], path))


def test_a_store_grown_encoder_by_encoder_equals_one_made_at_once_to_the_last_bit(
    whole: tuple[Path, tuple[EvaluationRef, ...]], tmp_path: Path
) -> None:
    every = whole[1]
    at_once = compared(copied(whole, tmp_path / "at once"), every, "r")
    assert {row["metric"] for row in at_once} > {"R@1", "MRR", "median_rank"}
    assert any(not row["p_exact"] for row in at_once if row["metric"] == "MRR")
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        grown = copied(whole, tmp_path / str(order))
        for n in range(2, 5):
            rows = compared(grown, [every[at] for at in sorted(order[:n])], f"r{n}")
        assert [{name: str(value) for name, value in row.items()} for row in rows] == [
            {name: str(value) for name, value in row.items()} for row in at_once
        ]
