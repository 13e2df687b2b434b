"""Figures of hardware that this machine lacks: not measured, not a failure, and those of another machine are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.benchmarks import __main__ as benchmarks
from tests.benchmarks import bench_gpu, cost
from tests.benchmarks.first_page import ANSWERS, first_page
from tests.benchmarks.rows import Row


@pytest.fixture
def files(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setattr(benchmarks, "ROWS", tmp_path / "results.json")
    monkeypatch.setattr(benchmarks, "TABLE", tmp_path / "RESULTS.md")
    monkeypatch.setattr(benchmarks, "write_cost", lambda kept: None)
    monkeypatch.delenv("QUICK", raising=False)
    return tmp_path


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a card")
def test_without_a_card_the_group_has_one_row_without_a_figure() -> None:
    (row,) = bench_gpu.run()
    assert row.value is None
    assert row.figure == "not measured"
    assert "no GPU" in row.name
    assert "ONLY=gpu" in row.note


def test_figures_of_a_machine_with_a_card_stay_when_the_group_runs_without_one(files: Path, monkeypatch) -> None:
    monkeypatch.setattr(benchmarks, "rows_of", lambda group: [Row("speed", 7.0, "times", ">= 2")])
    assert benchmarks.main(["gpu"]) == 0
    measured = (files / "results.json").read_text()
    monkeypatch.setattr(benchmarks, "rows_of", lambda group: [Row("no GPU", None, "")])
    assert benchmarks.main(["gpu"]) == 0
    assert (files / "results.json").read_text() == measured


def test_a_row_without_a_figure_is_printed_and_counts_for_no_bar(files: Path, monkeypatch) -> None:
    monkeypatch.setattr(benchmarks, "rows_of", lambda group: [Row("speed", None, "times", ">= 2")])
    assert benchmarks.main(["gpu"]) == 0
    page = (files / "RESULTS.md").read_text()
    assert "| speed | not measured |" in page
    assert "0 of the 0 figures that have a bar meet it" in page


def test_a_group_is_taken_from_the_results_of_another_machine(files: Path, tmp_path: Path) -> None:
    record = {"date": "2026-11-22", "seconds": 9, "commit": "abc", "machine": "a card", "versions": {}}
    record |= {"rows": [Row("speed", 7.0, "times", ">= 2")._asdict()]}
    (files / "results.json").write_text(json.dumps({"parts": record}))
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"gpu": record | {"machine": "another"}, "parts": record | {"machine": "another"}}))
    benchmarks.take(other, "gpu")
    kept = json.loads((files / "results.json").read_text())
    assert {group: entry["machine"] for group, entry in kept.items()} == {"parts": "a card", "gpu": "another"}
    assert "| speed | 7 times | >= 2 | met |" in (files / "RESULTS.md").read_text()


def test_the_costs_on_the_page_are_those_of_the_measured_rows() -> None:
    kept = json.loads(benchmarks.ROWS.read_text())
    assert cost.START + cost.cost_table(kept) + cost.END in cost.PAGE.read_text(encoding="utf-8")


def test_every_question_of_the_first_page_is_answered_by_a_measured_row() -> None:
    kept = json.loads(benchmarks.ROWS.read_text())
    page = first_page(kept)
    assert len(page) - 3 == len(ANSWERS) == 10
    assert "\n".join(page) in benchmarks.TABLE.read_text()
