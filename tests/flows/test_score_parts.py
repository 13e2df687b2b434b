"""An evaluation in parts and in little memory stores the outcomes of one in a single piece."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from capim.flows.benchmark import evaluate
from capim.flows.config import run_config
from capim.flows.execution import settings_of
from capim.store import EmbeddingStore
from capim.store.rows import PARTS_PREFIX, delete
from capim.store.schema import Result
from capim.store.types import MODALITIES, digest16
from capim.tasks.evaluate import find_sets, score_part
from capim.tasks.ranking.evaluate import Scoring
from capim.tasks.ranking.outcomes import SCORER_VERSION
from capim.tasks.ranking.ranker import PartOutcomes
from capim.tasks.references import Selection
from capim.tasks.results.scoring import open_sets

pytestmark = pytest.mark.slow  # whole suites of commands

CORPORA = ["shapes-sample12", "shapes-winoground-sample12"]
TINY = {"corpora": CORPORA, "encoders": ["tiny-clip", "tiny-colpali"], "replicates": 100, "device": "cpu"}


def outcomes(store: EmbeddingStore) -> pa.Table:
    return store.rows("outcomes").sort_by([(name, "ascending") for name in ("evaluation", "query_id")])


@pytest.fixture
def unscored(own_demo: Path) -> tuple[Path, pa.Table]:
    """A workspace with the vectors of an evaluated one, and the outcomes that its evaluation stored."""
    store = EmbeddingStore.open(own_demo / "store")
    expected = outcomes(store)
    expected = expected.filter(pc.is_in(expected["corpus"], pa.array(CORPORA)))
    for table in ("outcomes", "results"):
        store.connection.drop(table)
        delete(store.connection, "derived", "table_name", [table])
    return own_demo, expected


def test_parts_and_little_memory_store_the_same_outcomes_and_leave_nothing_else(
    unscored: tuple[Path, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, expected = unscored
    config = run_config({**TINY, "workspace": str(workspace), "parts": 3, "memory": "300kB"})
    store = EmbeddingStore.open(config.store_uri)
    sets = find_sets.fn(config.selection)
    for pair in sets:  # as if a worker had been lost after these
        score_part.fn(pair, settings_of(config, "r"), part=2, n_parts=3)
    assert sum(name.startswith(PARTS_PREFIX) for name in store.connection.names()) == len(sets) == 4
    scored: list[range] = []

    score = Scoring.part

    def counted(scoring: Scoring, part: range) -> dict[str, PartOutcomes]:
        scored.append(part)
        return score(scoring, part)

    monkeypatch.setattr(Scoring, "part", counted)
    evaluate.fn(config)
    assert len(scored) == 2 * len(sets)
    assert outcomes(store).equals(expected)
    assert not any(name.startswith(PARTS_PREFIX) for name in store.connection.names())
    assert [again.n_scored for again in evaluate.fn(config)] == [0] * len(sets)


def test_late_interaction_has_both_measures_of_agreement_with_english_and_their_means(in_languages: Path) -> None:
    store, corpus = EmbeddingStore.open(in_languages / "store"), "shapes-multilingual"
    for name in ("consistency_nDCG@20", "consistency_RBO"):
        found = {}
        for encoder in ("one", "many"):
            rows: list[Any] = store.all(Result, encoder=encoder, corpus=corpus, metric=name)
            found[encoder] = {row.protocol: row.value for row in rows}
        late = found["many"]
        assert late.keys() == found["one"].keys() >= {"t2i/de/plain", "i2t/de/plain", "t2i/*/*", "i2t/*/*"}
        assert all(0 < (late[id_] or 0) < 1 for id_ in ("t2i/de/plain", "i2t/de/plain"))
    for sets in find_sets.fn(Selection(store_uri=store.uri, corpora=[corpus], encoders=["one", "many"])):
        key = partial(store.key, encoder=sets.encoder_fingerprint, corpus=sets.corpus_fingerprint)
        digests = [sealed.digest for m in MODALITIES if (sealed := store.sealed(key(modality=m))) is not None]
        earlier = [sets.encoder_fingerprint, sets.corpus_fingerprint, *digests, "t2i/de/plain", SCORER_VERSION]
        [evaluation] = open_sets(store, sets, ["t2i/de/plain"]).evaluations.values()
        # what earlier versions stored of late interaction, without these measures, is scored again, and nothing else
        assert (evaluation == digest16(earlier)) == (sets.encoder == "one")
