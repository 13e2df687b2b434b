"""The catalogue of published document pages, read from a folder laid out like the hub."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from store.errors import RequestError
from tasks.corpora import CORPORA, open_corpus
from tasks.corpora.judged_tasks import JUDGED_TASKS, SubsetCounts
from tasks.corpora.listing import list_corpora
from tests.corpora.readers.test_judged import mteb

TASK = "Vidore2ESGReportsRetrieval"
TINY = SubsetCounts(samples=5, queries=2, judgements=3, fewest=1, most=2)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A description of two languages of a task with three pages, whose published counts are those of the copy."""
    for subset in ("english", "french"):
        mteb(tmp_path / "esg", subset=subset)
    counts = {"french": TINY, "english": TINY}
    monkeypatch.setitem(JUDGED_TASKS, TASK, replace(JUDGED_TASKS[TASK], subsets=counts))
    return {"reader": TASK, "root": str(tmp_path / "esg")}


def test_every_task_and_subset_of_vidore_is_named_with_its_revision_and_counts() -> None:
    vidore = {name: task for name, task in JUDGED_TASKS.items() if name.startswith("Vidore")}
    assert len(vidore) == 34
    assert sum(len(task.subsets) for task in vidore.values()) == 143
    assert all(len(task.revision) == 40 and None not in task.subsets.values() for task in vidore.values())
    finance = vidore["Vidore3FinanceEnRetrieval"]
    assert finance.subsets["french"] == SubsetCounts(samples=3251, queries=309, judgements=8766, fewest=1, most=25)
    assert {name[:7]: task.main_metric for name, task in vidore.items()} == {
        "VidoreA": "nDCG@5", "VidoreD": "nDCG@5", "VidoreI": "nDCG@5", "VidoreT": "nDCG@5", "VidoreS": "nDCG@5",
        "Vidore2": "nDCG@5", "Vidore3": "nDCG@10",
    }  # fmt: skip


def test_tasks_are_listed_with_their_size_and_one_without_counts_says_so() -> None:
    rows = {row.name: row for row in list_corpora()}
    assert rows["Vidore3FinanceEnRetrieval"].size == "2,942 pages, 309 queries, each of 6 languages"
    assert rows["VidoreArxivQARetrieval"].size == "500 pages, 500 queries"
    assert rows["NanoViDoRe3"].size == "no published counts"
    assert set(JUDGED_TASKS) <= set(CORPORA)


def test_a_task_has_its_own_name_headline_and_languages(tiny: dict[str, Any]) -> None:
    corpus = open_corpus(tiny)
    assert (corpus.name, corpus.main_metric) == (TASK, "nDCG@5")
    assert set(corpus.captions["language"].to_pylist()) == {"en", "fr"}
    assert open_corpus({**tiny, "subsets": ["french"]}).captions.num_rows == 2


def test_a_wrong_count_is_an_error_that_names_both(tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"french": TINY, "english": TINY._replace(samples=6, judgements=9)}
    monkeypatch.setitem(JUDGED_TASKS, TASK, replace(JUDGED_TASKS[TASK], subsets=counts))
    with pytest.raises(RequestError) as caught:
        open_corpus(tiny)
    first, second, advice = caught.value.faults
    assert first == f"{TASK} (english): expected 6 pages and queries, got 5"
    assert second == f"{TASK} (english): expected 9 judgements, got 3"
    assert "0542c0d03da0ec1c8cbc517c8d78e7e95c75d3d3 of vidore/esg_reports_v2" in advice
