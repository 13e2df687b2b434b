"""A small evaluated store, without a model."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from capim.store import EmbeddingStore
from capim.store.types import Corpus, EncoderSpec
from capim.tasks.corpora.readers.shapes import read_shapes
from capim.tasks.references import EvaluationRef
from capim.tasks.statistics.draws import Resampling
from tests.random_store import SPECS, random_store, scored

N_SCENES = 12
Ground = tuple[Path, tuple[EvaluationRef, ...]]


def evaluated(store: EmbeddingStore, corpus: Corpus, specs: Sequence[EncoderSpec] = SPECS) -> tuple[EvaluationRef, ...]:
    """Evaluations of these encoders on a corpus."""
    how = {"protocols": ["t2i/all", "i2t/any", "t2i/first"], "resampling": Resampling(replicates=100), "run": "r"}
    return scored(store, corpus, specs, **how)


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """A workspace with evaluations of an encoder of each kind on ``shapes``, not to be changed; and these."""
    workspace, corpus = tmp_path_factory.mktemp("ground"), read_shapes(n_scenes=N_SCENES)
    return workspace, evaluated(random_store(workspace / "store", corpus), corpus)


@pytest.fixture
def store(ground: Ground, tmp_path: Path) -> EmbeddingStore:
    """A copy to change."""
    return EmbeddingStore.open(shutil.copytree(ground[0] / "store", tmp_path / "store"))


@pytest.fixture
def empty(tmp_path: Path) -> EmbeddingStore:
    """A store without any rows."""
    return EmbeddingStore.open(tmp_path / "empty", create=True)


@pytest.fixture
def evaluations(ground: Ground) -> tuple[EvaluationRef, ...]:
    """The evaluations of ``store``."""
    return ground[1]
