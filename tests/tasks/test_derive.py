"""The ledger: comparisons are made once, and again where something that they depend on changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from capim.store import EmbeddingStore
from capim.tasks import compare
from capim.tasks.metrics.table import METRICS
from capim.tasks.runtime.references import CompareRef, EvaluationRef
from capim.tasks.statistics.draws import Resampling
from capim.tasks.why import reasons


def compared(
    store: EmbeddingStore, evaluations: tuple[EvaluationRef, ...], run: str, margin: float = 1.0
) -> tuple[CompareRef, CompareRef]:
    how = {"store_uri": store.uri, "resampling": Resampling(replicates=50, margin=margin), "run": run}
    each = compare.compare_corpus.fn(evaluations, protocols=["t2i/all", "i2t/any"], **how)  # type: ignore[arg-type]
    return each, compare.compare_combined.fn(evaluations, **how)  # type: ignore[arg-type]


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
        run: [(row["reason"], row["detail"]) for row in reasons(store, run) if row["what"] == "comparison"]
        for run in store.counts("derived", "run")
    }
    assert said["first"] == [("new input", f"the first comparison on {evaluations[0].sets.corpus}")]
    assert said["wider"] == [("other setting", "margin: 1.0 -> 5.0")]
    assert said["newer"] == [("newer code", f"MRR: {version} -> another")]
    left_out = f"{evaluations[1].sets.encoder} is left out"
    assert said["fewer"] == [("new input, other setting", f"{left_out}; margin: 5.0 -> 2.0")]
