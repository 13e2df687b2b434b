# ruff: noqa: E501 - strategies in one line
"""Export and import are inverses: over any corpora, outcomes and vectors, in every format."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capim.store import EmbeddingStore
from capim.store.files import write_row_file
from capim.store.sets.embedding_files import export_embeddings
from capim.store.sets.importing import imported_encoder
from capim.store.types import OF_OUTCOMES, Corpus
from capim.tasks.corpora.build import CaptionRow, ImageRow, PairRow, QuadrupleRow, build_corpus
from capim.tasks.ranking.protocols import build_tasks, protocols_of
from capim.tasks.ranking.ranker import score_given
from capim.tasks.results.imported.runs import corpus_of_qrels, outcomes_of_run
from capim.tasks.results.imported.sources import Imported, Source, outcomes_of_source
from tests.imported import import_embeddings

pytestmark = pytest.mark.slow  # whole suites of commands

_WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6).map(str.strip)
_IDS = st.lists(_WORDS.filter(bool), min_size=3, max_size=6, unique=True)


def corpus_of(ids: list[str], per_image: int) -> Corpus:
    """Images of these ids with captions of the same signs, a pair and a quadruple."""
    captions = [CaptionRow(f"{one}#{k}", one, f"{one} {k}") for one in ids for k in range(per_image)]
    return build_corpus(
        "drawn",
        [ImageRow(one) for one in ids],
        [*captions, CaptionRow("negative", None, "none of them")],
        source=None,
        pairs=[PairRow("p", ids[0], f"{ids[0]}#0", "negative", "swap")],
        quadruples=[QuadrupleRow("q", ids[0], ids[1], f"{ids[0]}#0", f"{ids[1]}#0", ["tag"])],
    )


@settings(max_examples=40, deadline=None)
@given(ids=_IDS, per_image=st.integers(1, 3), seed=st.integers(0, 9), ties=st.booleans(), suffix=st.sampled_from([".parquet", ".csv", ".json"]))  # fmt: skip
def test_exported_outcomes_are_the_same_rows_elsewhere(
    ids: list[str], per_image: int, seed: int, ties: bool, suffix: str
) -> None:
    corpus = corpus_of(ids, per_image)
    scores = np.random.default_rng(seed).standard_normal((corpus.captions.num_rows, len(ids))).astype(np.float32)
    scores = np.round(scores) if ties else scores
    outcomes = list(score_given(scores, build_tasks(corpus, protocols_of(corpus))).values())
    here = Imported.of(outcomes, imported_encoder("here", OF_OUTCOMES, dim=1), corpus)
    with tempfile.TemporaryDirectory() as folder:
        for key, one in here.outcomes.items():
            path = Path(folder) / f"outcomes{suffix}"
            write_row_file(path, here.rows(key))
            found = outcomes_of_source(Source("outcomes", str(path), "here"), corpus)["here"]
            assert found.matched == {one.protocol.id: "query_id"}
            there = Imported.of(found.outcomes, here.encoder, corpus)
            assert [*there.outcomes] == [key]  # a digest of every rank, list and score
            assert there.rows(key).equals(here.rows(key))


@settings(max_examples=8, deadline=None)
@given(ids=_IDS, seed=st.integers(0, 9), suffix=st.sampled_from([".npy", ".npz", ".parquet", ".safetensors", ".csv"]))
def test_exported_vectors_are_the_same_set_elsewhere(ids: list[str], seed: int, suffix: str) -> None:
    corpus = corpus_of(ids, 1)
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stores = [EmbeddingStore.open(folder / each, create=True) for each in ("here", "there")]
        for store in stores:
            store.write_corpus(corpus)
        vectors = rng.standard_normal((len(ids), 5))
        if suffix in (".npy", ".csv"):  # which hold no norm beside the unit vectors
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        np.savez(folder / "own.npz", embeddings=vectors.astype(np.float32), ids=np.array(ids))
        [here] = import_embeddings(stores[0], encoder="one", corpus="drawn", images=folder / "own.npz")
        file = folder / f"images{suffix}"
        export_embeddings(stores[0], file, encoder="one", corpus="drawn", modality="image")
        [there] = import_embeddings(stores[1], encoder="one", corpus="drawn", images=file)
        assert there.digest == here.digest
        assert there.key == here.key


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from("abcdef"), st.dictionaries(st.sampled_from("uvwxyz"), st.integers(0, 2), min_size=1), min_size=1), st.integers(0, 9))  # fmt: skip
def test_outcomes_in_trec_eval_s_order_are_rows_like_any(qrels: dict[str, dict[str, int]], seed: int) -> None:
    if not any(max(grades.values()) > 0 for grades in qrels.values()):
        return
    rng = np.random.default_rng(seed)
    run = {query: {item: float(rng.integers(0, 4)) for item in "uvwxyz"} for query in qrels}
    corpus = corpus_of_qrels(qrels, [run], "trec", origin="x")
    here = Imported.of(outcomes_of_run(run, corpus).outcomes, imported_encoder("here", OF_OUTCOMES, dim=1), corpus)
    with tempfile.TemporaryDirectory() as folder:
        for key in here.outcomes:
            write_row_file(Path(folder) / "o.csv", here.rows(key))
            found = outcomes_of_source(Source("outcomes", f"{folder}/o.csv", "here"), corpus)["here"]
            assert [*Imported.of(found.outcomes, here.encoder, corpus).outcomes] == [key]
