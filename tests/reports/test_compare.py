"""Two reports side by side."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from capim.reports.compare import compare, write_comparison
from capim.reports.rows.snapshot import changed_figures, load_snapshot
from capim.reports.write import write_report
from capim.store.errors import RequestError
from capim.store.schema import Comparison
from tests.reports.stand_in import StandIn, comparison, demo, spec


@pytest.fixture(scope="module")
def old_and_new(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same store before and after `tiny-clip` got a new revision that is worse."""
    store, folder = demo(), tmp_path_factory.mktemp("reports")
    write_report(store, folder / "old")
    changed = spec("tiny-clip", dim=65)
    for row in store.tables["results"]:
        if row["encoder"] == "tiny-clip":
            lower = {name: max(0.0, row[name] - 0.2) for name in ("value", "ci_low", "ci_high")}
            row |= {**lower, "encoder_fingerprint": changed.fingerprint, "evaluation": f"new {row['evaluation']}"}
            row["created"] += timedelta(days=1)
    store.specs |= {"tiny-clip": changed, "before": store.specs["tiny-clip"]}
    store.tables["runs"][0]["versions"] = json.dumps({"capim": "0.2.0", "lancedb": "0.41.0"})
    write_report(store, folder / "new")
    return folder / "old", folder / "new"


def test_a_significant_drop_is_at_the_top_and_what_else_differs_is_named(
    old_and_new: tuple[Path, Path], tmp_path: Path
) -> None:
    markdown = Path(write_comparison(*old_and_new, tmp_path / "out")).with_name("compare.md").read_text("utf-8")
    assert "Significantly worse" in markdown
    assert "tiny-clip on shapes, t2i/all R@1: −20.00" in markdown
    assert "unpaired bound" in markdown
    assert "| encoder tiny-clip | dim | 64 | 65 |" in markdown
    assert "| library | lancedb | 0.40.0 | 0.41.0 |" in markdown
    assert "encoder tiny-colpali" not in markdown


def test_a_report_against_itself_is_the_same_to_the_last_digit(old_and_new: tuple[Path, Path]) -> None:
    snapshot = load_snapshot(old_and_new[0])
    assert {c.basis for c in changed_figures(snapshot, snapshot)} == {"same rows"}
    report = compare(snapshot, snapshot)
    assert [section.id for section in report.sections] == ["figures"]


def test_a_stored_paired_test_of_the_two_states_is_preferred_to_the_bound(old_and_new: tuple[Path, Path]) -> None:
    old, new = (load_snapshot(path) for path in old_and_new)
    store = StandIn(specs={"a": spec("tiny-clip", dim=64), "b": spec("tiny-clip", dim=65)}, contents=demo().contents)
    comparison(store, "shapes", "t2i/all", "R@1", "a", "b", 0.2, 0.03)
    found = {c.key: c for c in changed_figures(old, replace(new, comparisons=store.all(Comparison)))}
    assert found["shapes", "t2i/all", "R@1", "tiny-clip"].basis == "paired test"
    assert found["shapes", "t2i/all", "R@1", "tiny-clip"].p == 0.03


@pytest.mark.parametrize("content", [None, "{}", "not json", '{"schema": "other/1"}'])
def test_what_is_no_report_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "results.json").write_text(content)
    with pytest.raises(RequestError, match=r"results\.json"):
        load_snapshot(tmp_path)
