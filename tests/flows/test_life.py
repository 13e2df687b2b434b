"""A model's life in a store that a team shares: it comes with its facts, is gated, has revisions, and goes again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from capim.store import EmbeddingStore, EncoderSpec
from capim.store.schema import Comparison, LedgerEntry, Outcome, Ranking, Result, Slice
from capim.store.types import Corpus
from capim.tasks.corpora.readers.shapes import read_shapes
from tests.command import command
from tests.random_store import OTHER, SPECS, random_store

pytestmark = pytest.mark.slow

PAIR = (SPECS[0], EncoderSpec(name="two", adapter="hf_dual", checkpoint="me/two", revision="a1", dim=16))
QUICK = "--replicates 100 --quiet"
TESTED = f"{QUICK} --permutations 1000"


def three_corpora() -> list[Corpus]:
    """Enough of them for a ranking."""
    return [replace(read_shapes(n_scenes=24, seed=seed), name=f"photos-{seed}") for seed in range(3)]


def computed(workspace: Path, specs: tuple[EncoderSpec, ...]) -> EmbeddingStore:
    """Three corpora by these encoders, evaluated, compared and analysed."""
    for corpus in three_corpora():
        random_store(workspace / "store", corpus, specs, signal=2.0)
    command(f"evaluate {QUICK} --device cpu --protocols t2i/all,i2t/any", workspace)
    return compared(workspace)


def compared(workspace: Path) -> EmbeddingStore:
    command(f"compare {TESTED}", workspace)
    command(f"analyse {TESTED} --analyses ambiguous,hubs", workspace)
    return EmbeddingStore.open(workspace / "store")


def derived(store: EmbeddingStore) -> dict[str, list[dict[str, Any]]]:
    """All rows that were computed, without what differs from run to run."""
    without = {"run", "created", "seconds_per_query"}
    kinds: tuple[type[Any], ...] = (Outcome, Result, Comparison, Ranking, Slice)
    return {
        kind.__name__: sorted(
            ({name: value for name, value in vars(row).items() if name not in without} for row in store.all(kind)),
            key=repr,
        )
        for kind in kinds
    }


def test_a_dropped_encoder_with_its_results_leaves_what_a_store_without_it_has(tmp_path: Path) -> None:
    """A dropped one stayed in results, tests and rankings; nothing could remove it."""
    without, workspace = computed(tmp_path / "without", PAIR), tmp_path / "with"
    store = computed(workspace, (*PAIR, OTHER))
    before = derived(store)
    assert before["Ranking"]

    said = command("store drop --encoder other", workspace)
    assert len(said.out.split()) == 6, "the sets"
    assert "stay: results, tests and reports go on counting them; --results drops them too" in said.err
    assert derived(store) == before

    planned = command("store drop --encoder other --results", workspace).err
    assert "nothing was changed" in planned
    assert derived(store) == before
    command("store drop --encoder other --results --yes", workspace)
    left = derived(EmbeddingStore.open(store.uri))
    assert "other" not in repr(left)
    assert OTHER.fingerprint not in repr(left)
    assert left["Result"] == derived(without)["Result"], "what is not about it stays"
    assert not left["Ranking"], "ranks are those of all together"
    assert derived(compared(workspace)) == derived(without), "made again without it"
    assert [row.name for row in store.encoders()] == ["one", "two"]
    assert not [row for row in store.all(LedgerEntry) if OTHER.fingerprint in row.identity]
    command("store verify", workspace)
    assert "not in the store" in command("store drop --encoder other --results --yes", workspace, code=2).err


def test_results_of_a_dropped_corpus_can_follow_it(tmp_path: Path) -> None:
    for corpus in three_corpora()[:2]:
        store = random_store(tmp_path / "store", corpus, PAIR[:1])
    command(f"evaluate {QUICK} --device cpu --protocols t2i/all", tmp_path)
    command("store drop --corpus photos-0 --yes", tmp_path)
    assert store.counts("results", "corpus")["photos-0"]
    assert (
        "images and captions together"
        in command("store drop --corpus photos-1 --modality image --results", tmp_path, code=2).err
    )
    command("store drop --corpus photos-0 --results --yes", tmp_path)
    assert {*EmbeddingStore.open(store.uri).counts("results", "corpus")} == {"photos-1"}


def test_what_has_no_vectors_any_more_is_named_and_not_the_whole_store(tmp_path: Path) -> None:
    """The message was "the store has no complete embedding sets", of a store with three."""
    random_store(tmp_path / "store", read_shapes(n_scenes=4), SPECS)
    command("store drop --encoder one --modality image --yes", tmp_path)
    said = command("evaluate --encoders one", tmp_path, code=2).err
    assert "no complete embeddings of the images of 'shapes' by 'one'; run `capim embed --corpora shapes" in said
