"""A report from rows in memory and from a real store: what stands in it, and that it is always the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from capim.reports.render import render_markdown
from capim.reports.write import write_report
from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from tests.reports.stand_in import StandIn, report, written


def test_stand_in_store_and_store_opened_anew_give_the_same_bytes(demo_store: StandIn, tmp_path: Path) -> None:
    store = written(demo_store, tmp_path / "store")
    demo_store.sets.clear()
    demo_store.uri = store.uri
    sources = {"in-memory": demo_store, "stored": store, "again": EmbeddingStore.open(store.uri)}
    first, *others = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (Path(write_report(of, tmp_path / name)).parent for name, of in sources.items())
    )
    assert {path.suffix for path in first} >= {".html", ".md", ".json", ".csv", ".svg"}
    for files in others:
        assert [path for path in {**first, **files} if first.get(path) != files.get(path)] == []


def test_an_empty_real_store_says_what_to_run(tmp_path: Path) -> None:
    store = EmbeddingStore.open(tmp_path / "store", create=True)
    with pytest.raises(RequestError, match="capim run"):
        write_report(store, tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_a_run_without_results_is_an_error_that_names_the_runs_with_results(demo_store: StandIn) -> None:
    with pytest.raises(RequestError, match=r"'run-9'.*run-1"):
        report(demo_store, run="run-9")


def test_the_order_of_stored_rows_changes_nothing(demo_store: StandIn) -> None:
    before = report(demo_store)
    for rows in demo_store.tables.values():
        rows.reverse()
    assert report(demo_store) == before


def test_a_partial_run_has_no_empty_sections(demo_store: StandIn) -> None:
    keep = [r for r in demo_store.tables["results"] if r["encoder"] == "tiny-clip" and r["protocol"] == "i2t/any"]
    demo_store.tables.update({"results": keep, "comparisons": [], "batches": [], "runs": []})
    demo_store.sets.clear()
    built = report(demo_store)
    assert "compositional" not in {section.id for section in built.sections}
    assert all(section.blocks for section in built.sections)
    assert "tiny-clip" in render_markdown(built)


def test_every_figure_carries_interval_and_protocol_and_skipped_images_their_reason(demo_store: StandIn) -> None:
    markdown = render_markdown(report(demo_store))
    assert "shapes · text to image (t2i/all)" in markdown
    assert "**62.0** (58.0–66.0)" in markdown
    assert "shapes-winoground · binding (winoground)" in markdown
    assert "1 image of shapes could not be used" in markdown
    assert "broken0.jpg | not an image: truncated file" in markdown
