"""A store whose encoders draw their vectors, evaluated in two runs: of ``one`` there is a later revision."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from capim.store import EmbeddingStore
from capim.store.schema import RUNS
from capim.store.types import Corpus, EncoderSpec
from capim.tasks.evaluate import score
from capim.tasks.runtime.references import SetsRef
from capim.tasks.statistics.draws import Resampling
from tests.random_store import OTHER, SPECS, random_store

DRAWS = Resampling(replicates=20)
LATER = replace(OTHER, name="one", revision="b2", dim=9)  # other draws


def evaluated_store(folder: Path, corpus: Corpus) -> EmbeddingStore:
    """Runs ``first`` with both encoders of ``SPECS``, and ``second`` with another revision of ``one``."""
    store = random_store(folder, corpus)
    evaluate(store, corpus, SPECS, run="first")
    random_store(folder, corpus, [LATER])
    evaluate(store, corpus, [LATER], run="second")
    return store


def evaluate(store: EmbeddingStore, corpus: Corpus, specs: list[EncoderSpec] | tuple[EncoderSpec, ...], *, run: str):
    """Scores the encoders, as one run."""
    started = datetime.now(UTC)
    for spec in specs:
        names = {"encoder": spec.name, "encoder_fingerprint": spec.fingerprint}
        sets = SetsRef(**names, corpus=corpus.name, corpus_fingerprint=corpus.fingerprint)
        score.fn(sets, store_uri=store.uri, protocols=(), device="cpu", resampling=DRAWS, run=run)
    texts = {"name": "test", "config": "{}", "command": "capim run", "versions": "{}", "host": "", "state": "completed"}
    row = {"run": run, "pid": 1, **texts, "started": started, "finished": datetime.now(UTC), "message": None}
    store.write_rows("runs", pa.Table.from_pylist([row], schema=RUNS))
