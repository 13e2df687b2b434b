"""The ledger: comparisons are made once, and again where something that they depend on changes."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from capim.store import EmbeddingStore
from capim.store.rows import delete
from capim.store.schema import Comparison, LedgerEntry, Slice, Subject
from capim.store.types import EncoderSpec
from capim.tasks import compare
from capim.tasks.corpora.readers.shapes import read_shapes
from capim.tasks.derive import Compute, Derivation, Derived, Work, derive, one_by_one, page_key
from capim.tasks.metrics.table import METRICS
from capim.tasks.references import EvaluationRef, RunSettings, rows_of
from capim.tasks.statistics.draws import Resampling
from capim.tasks.why import reasons
from tests.random_store import random_store, row_of
from tests.tasks.conftest import evaluated


def compared(
    store: EmbeddingStore, evaluations: tuple[EvaluationRef, ...], run: str, margin: float = 1.0
) -> tuple[Derived, Derived]:
    how = RunSettings(store_uri=store.uri, resampling=Resampling(replicates=50, margin=margin), run=run)
    each = compare.compare_corpus.fn(evaluations, how, protocols=["t2i/all", "i2t/any"])
    return each, compare.compare_combined.fn(evaluations, how)


def made(store: EmbeddingStore, run: str) -> int:
    return store.counts("derived", "run", kind="comparison").get(run, 0)


def test_another_margin_and_newer_code_of_a_metric_are_compared_anew_and_the_first_again_when_asked_for(
    store: EmbeddingStore, evaluations: tuple[EvaluationRef, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared(store, evaluations, "first")
    before = store.rows("comparisons").sort_by("comparison")
    compared(store, evaluations, "wider", margin=5.0)
    assert made(store, "wider") == made(store, "first") == 2 * len(METRICS) + 1
    compared(store, evaluations, "back")
    assert store.rows("comparisons", run=["first", "back"]).sort_by("comparison").equals(before)
    monkeypatch.setitem(METRICS, "MRR", replace(METRICS["MRR"], version="another"))
    compared(store, evaluations, "newer code")
    assert made(store, "newer code") == 2  # of both protocols; sums and means are of other metrics
    monkeypatch.setitem(METRICS, "R@1", replace(METRICS["R@1"], version="another"))
    compared(store, evaluations, "newer recall")
    assert made(store, "newer recall") == 3  # and the sums and means


def test_the_reason_is_the_input_the_setting_or_the_code_that_differs_from_the_newest_earlier_entry(
    store: EmbeddingStore, evaluations: tuple[EvaluationRef, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared(store, evaluations, "first")
    compared(store, evaluations, "wider", margin=5.0)
    version = METRICS["MRR"].version
    monkeypatch.setitem(METRICS, "MRR", replace(METRICS["MRR"], version="another"))
    compared(store, evaluations, "newer", margin=5.0)
    compared(store, evaluations[:1], "fewer", margin=2.0)
    said = {
        run: [(row.reason, row.detail) for row in reasons(store, run) if row.what == "comparison"]
        for run in store.counts("derived", "run")
    }
    assert said["first"] == [("new input", f"the first comparison on {evaluations[0].sets.corpus}")]
    assert said["wider"] == [("other setting", "margin: 1.0 -> 5.0")]
    assert said["newer"] == [("newer code", f"MRR: {version} -> another")]
    left_out = f"{evaluations[1].sets.encoder} is left out"
    assert said["fewer"] == [("new input, other setting", f"{left_out}; margin: 5.0 -> 2.0")]


def derivation(name: str, **settings: object) -> Derivation:
    return Derivation(kind="analysis", subject=Subject(analysis=name), inputs=[], settings=settings, version="1")


def slices_of(each: Derivation) -> list[Slice]:
    """Two rows of an analysis."""
    return [row_of(Slice, analysis=str(each.subject.analysis), slice=own) for own in ("first", "second")]


def work(wanted: Sequence[Derivation], compute: Compute) -> Work:
    return Work(table="slices", wanted=wanted, compute=compute)


def test_what_the_store_has_whole_is_not_made_again(empty: EmbeddingStore) -> None:
    asked: list[str] = []
    steps: list[float] = []

    def compute(each: Derivation) -> list[Slice]:
        asked.append(str(each.subject.analysis))
        return slices_of(each)

    a, b, c = map(derivation, "abc")
    first = derive(empty, work([a, b], one_by_one(compute)), run="1", advance=steps.append)
    assert first == Derived(uses=(a.key, b.key), n_rows=4, n_made=2)
    assert (asked, steps) == (["a", "b"], [0, 2])
    second = derive(empty, work([a, c, b], one_by_one(compute)), run="2", advance=steps.append)
    assert second == Derived(uses=(a.key, c.key, b.key), n_rows=6, n_made=1)
    assert (asked, steps) == (["a", "b", "c"], [0, 2, 2, 1])
    derive(empty, work([a], one_by_one(compute)), run="3", advance=steps.append)
    assert asked == ["a", "b", "c"]
    rows, entries = empty.all(Slice), empty.all(LedgerEntry)
    assert Counter(row.derived for row in rows) == {a.key: 2, b.key: 2, c.key: 2}
    assert {row.slice for row in rows} == {each.row_key(own) for each in (a, b, c) for own in ("first", "second")}
    assert {entry.key: (entry.run, entry.n_rows) for entry in entries} == {
        a.key: ("1", 2), b.key: ("1", 2), c.key: ("2", 2)
    }  # fmt: skip
    assert all(0 < entry.seconds < 60 for entry in entries)
    assert empty.stored_rows([a.key, derivation("d").key]) == {a.key: 2}
    assert empty.stored_rows([]) == {}


def test_what_the_store_has_in_part_is_made_again(empty: EmbeddingStore) -> None:
    a, b = map(derivation, "ab")
    derive(empty, work([a, b], one_by_one(slices_of)), run="1")
    delete(empty.connection, "slices", "slice", [a.row_key("second")])
    assert empty.stored_rows([a.key, b.key]) == {b.key: 2}


def test_neighbours_of_one_group_are_one_commit_and_what_gives_nothing_is_left_out(empty: EmbeddingStore) -> None:
    todo = [derivation(name) for name in ("a1", "a2", "b1", "a3")]
    commits = one_by_one(slices_of, by=lambda each: str(each.subject.analysis)[0])(todo)
    assert [list(made) for made in commits] == [[0, 1], [2], [3]]
    steps: list[float] = []

    def one_of_two(todo: Sequence[Derivation]) -> list[dict[int, list[Slice]]]:
        return [{}, {1: slices_of(todo[1])}]

    derive(empty, work(todo[:2], one_of_two), run="1", advance=steps.append)
    assert (empty.stored_rows([each.key for each in todo]), steps) == ({todo[1].key: 2}, [0, 1])


def test_settings_are_usual_if_none_differs_from_that_of_a_run_without_options() -> None:
    assert derivation("a").usual
    assert derivation("a", **asdict(Resampling()), other=3).usual
    assert not derivation("a", **asdict(Resampling(seed=1))).usual


def test_the_key_of_a_page_changes_with_what_it_shows(empty: EmbeddingStore) -> None:
    def key(keys: Sequence[str] | None = None, **chosen: Sequence[str]) -> str:
        return page_key(empty, keys, chosen, "1")

    a, b = map(derivation, "ab")
    none = key()
    derive(empty, work([a, b], one_by_one(slices_of)), run="1")
    assert key() == none  # no run asked for it
    keys = [none, key([]), key([a.key]), key([a.key, b.key]), key([a.key], corpora=["x"])]
    assert len({*keys}) == len(keys)
    assert key([b.key, a.key]) == key([a.key, b.key])


# --- Comparisons grow: one more encoder gives the same rows as all encoders at once.
FOUR = [
    EncoderSpec(name=f"e{dim}", adapter="hf_dual", checkpoint=f"me/e{dim}", revision="a1", dim=dim)
    for dim in (8, 9, 10, 11)
]
PROTOCOLS = ("t2i/all", "i2t/any")
DIFFERS = {"created", "run"}  # between stores that are otherwise equal


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[EvaluationRef, ...]]:
    """A store of four encoders that are not compared yet, on more images than have their flips enumerated."""
    corpus, path = read_shapes(n_scenes=24), tmp_path_factory.mktemp("growth") / "store"
    return path, evaluated(random_store(path, corpus, FOUR), corpus, FOUR)


def rows_compared(store: EmbeddingStore, evaluations: Sequence[EvaluationRef], run: str) -> list[dict[str, Any]]:
    """The rows of a comparison of these encoders, without what differs between stores."""
    how = RunSettings(store_uri=store.uri, resampling=Resampling(replicates=60, permutations=500), run=run)
    reference = compare.compare_corpus.fn(tuple(evaluations), how, protocols=PROTOCOLS)
    rows = sorted(rows_of(store, Comparison, [reference]), key=lambda row: row.comparison)
    return [{name: value for name, value in vars(row).items() if name not in DIFFERS} for row in rows]


def copied(whole: tuple[Path, tuple[EvaluationRef, ...]], path: Path) -> EmbeddingStore:
    return EmbeddingStore.open(shutil.copytree(whole[0], path))


def test_a_store_grown_encoder_by_encoder_equals_one_made_at_once_to_the_last_bit(
    whole: tuple[Path, tuple[EvaluationRef, ...]], tmp_path: Path
) -> None:
    every = whole[1]
    at_once = rows_compared(copied(whole, tmp_path / "at once"), every, "r")
    assert {row["metric"] for row in at_once} > {"R@1", "MRR", "median_rank"}
    assert any(not row["p_exact"] for row in at_once if row["metric"] == "MRR")
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        grown = copied(whole, tmp_path / str(order))
        for n in range(2, 5):
            rows = rows_compared(grown, [every[at] for at in sorted(order[:n])], f"r{n}")
        assert [{name: str(value) for name, value in row.items()} for row in rows] == [
            {name: str(value) for name, value in row.items()} for row in at_once
        ]
