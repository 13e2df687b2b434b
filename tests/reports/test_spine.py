"""A report from rows in memory and from a real store: what stands in it, and that it is always the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from capim.reports.destination import point, write_files
from capim.reports.elements.page import Section
from capim.reports.render import render_markdown
from capim.reports.rows.reading import read_report_data
from capim.reports.rows.report_data import Before, ReportData
from capim.reports.sections.board import NO_RESULT
from capim.reports.write import SECTIONS, write_report
from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.files import replacing
from capim.store.schema import Import, Published, Ranking, Slice
from tests.random_store import row_of
from tests.reports.large import coco
from tests.reports.stand_in import StandIn, block, demo, report, result, written


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


def test_results_are_read_once_so_that_another_process_may_replace_them_meanwhile(
    demo_store: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, tables = demo_store.rows, list[str]()

    def rows(table: str, **equals: str | Sequence[str]) -> pa.Table:
        tables.append(table)
        return stored(table, **equals)

    monkeypatch.setattr(demo_store, "rows", rows)
    read_report_data(demo_store, gallery=False)
    assert tables.count("results") == 1


def test_an_encoder_with_results_by_an_earlier_version_of_a_metric_is_shown_without_them(demo_store: StandIn) -> None:
    def outdate(corpus: str) -> None:
        for row in demo_store.tables["results"]:
            if (row["encoder"], row["corpus"]) == ("tiny-clip", corpus):
                row.update(metric_version="0", created=row["created"] - timedelta(days=1))

    outdate("shapes")
    assert read_report_data(demo_store, encoders=["tiny-clip"]).corpus_names() == ["shapes-winoground"]
    outdate("shapes-winoground")
    with pytest.raises(RequestError, match=r"by another version of the metric .*capim evaluate"):
        read_report_data(demo_store, encoders=["tiny-clip"])


def test_the_order_of_stored_rows_changes_nothing(demo_store: StandIn) -> None:
    before = report(demo_store)
    for rows in demo_store.tables.values():
        rows.reverse()
    assert report(demo_store) == before


@pytest.mark.parametrize("name", sorted({each.name for each in fields(ReportData)} - {"uri", "live", "serve"}))
def test_whatever_a_report_shows_is_in_its_digest(demo_store: StandIn, name: str) -> None:
    data = read_report_data(demo_store)
    given: dict[str, Any] = {
        **dict.fromkeys(("left_out", "states", "larger_families"), ("a sentence",)),
        "queries": ("a query",),
        "totals": ("totals",),
        "slices": (row_of(Slice),),
        "rankings": (row_of(Ranking),),
        "imports": (row_of(Import),),
        "published": (row_of(Published),),
        "features": {("photos", "c"): ("colour",)},
        "thumbnails": {"sha": b"picture"},
        "specs": {key: replace(spec, facts={"link": "x"}) for key, spec in data.specs.items()},
        "corpora": {key: replace(corpus, origin="elsewhere") for key, corpus in data.corpora.items()},
        "before": Before(ended=datetime(2026, 1, 1, tzinfo=UTC), results={}, comparisons=()),
    }
    whole = getattr(data, name)
    changed: Any = given[name] if name in given else type(whole)() if isinstance(whole, dict) else whole[1:]
    assert changed != whole
    assert replace(data, **{name: changed}).digest != data.digest


def test_a_partial_run_has_no_empty_sections(demo_store: StandIn) -> None:
    keep = [r for r in demo_store.tables["results"] if r["encoder"] == "tiny-clip" and r["protocol"] == "i2t/any"]
    demo_store.tables.update({"results": keep, "comparisons": [], "batches": [], "runs": []})
    demo_store.sets.clear()
    built = report(demo_store)
    assert "compositional" not in {section.id for section in built.sections}
    assert all(section.blocks for section in built.sections)
    assert "tiny-clip" in render_markdown(built)


def test_without_a_headline_result_a_report_says_so(demo_store: StandIn, tmp_path: Path) -> None:
    """As in a store that is being written: the results of another metric are there first."""
    other = [row for row in demo_store.tables["results"] if row["metric"] == "R@5"]
    demo_store.tables.update({"results": other, "comparisons": []})
    page = Path(write_report(demo_store, tmp_path))
    for name in ("report.md", "report.html", "first.html"):
        assert NO_RESULT in page.with_name(name).read_text("utf-8")


def test_every_figure_carries_interval_and_protocol_and_skipped_images_their_reason(demo_store: StandIn) -> None:
    markdown = render_markdown(report(demo_store))
    assert "shapes · text to image (t2i/all)" in markdown
    assert "**62.0** (58.0–66.0)" in markdown
    assert "shapes-winoground · binding (winoground)" in markdown
    assert "1 image of shapes could not be used" in markdown
    assert "broken0.jpg | not an image: truncated file" in markdown


# --- What holds of every row of SECTIONS, those of installed packages among them; a new row is found here by itself.
@pytest.fixture(scope="module")
def data():
    return read_report_data(demo())


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_is_made_of_stored_rows_and_the_same_rows_make_the_same_section(name, data) -> None:
    made = SECTIONS[name](data)
    assert isinstance(made, Section)
    assert SECTIONS[name](data) == made
    if made.blocks:
        assert made.id
        assert made.title
        assert all(block.kind for block in made.blocks)


def test_the_folder_of_a_users_own_code_is_not_shown(data) -> None:
    code = {name: replace(spec, adapter="/home/ada/my_loader.py:load") for name, spec in data.specs.items()}
    shown = [str(SECTIONS[name](replace(data, specs=code))) for name in ("provenance", "leaderboard")]
    assert all("my_loader.py:load" in text and "/home/ada" not in text for text in shown)


def test_a_multilingual_corpus_shows_what_is_stored_over_all_languages() -> None:
    store = coco(n_images=8, n_models=2, n_languages=3)
    for of, value in (("", 0.5), ("@without-en", 0.25), ("@speakers", 0.75)):
        result(store, "siglip2-so400m", "coco-sm", f"t2i/*/*{of}", "R@1", value, half=0.01)
    picker = block(SECTIONS["leaderboard"](read_report_data(store)), "figures")
    rows = [table.rows[0] for corpus, label, table in picker.views if corpus == "coco-sm" and "t2i/*" in label]
    found = {(row[1].text, row[1].note) for row in rows}
    assert found == {("50.0", "49.0–51.0"), ("25.0", "24.0–26.0"), ("75.0", "74.0–76.0")}


def test_a_result_of_a_metric_that_is_no_more_is_shown_nowhere() -> None:
    store = coco(n_images=8, n_models=2, n_languages=3)
    before = report(store)
    result(store, "siglip2-so400m", "coco-sm", "t2i/all", "R@1_eta2_language", 0.875, half=0.01)
    assert render_markdown(report(store)) == render_markdown(before)
    assert "R@1_eta2_language" not in str(report(store))


# --- Reports in folders that several write to; test_object_storage_run writes to a bucket.
def test_two_that_write_one_report_leave_the_unfinished_files_of_each_other(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    with replacing(tmp_path / "figures" / "a.svg") as unfinished:
        unfinished.write_text("of the other")
        write_files(tmp_path, {"figures/gone.svg": "old"})
        write_files(tmp_path, {"figures/b.svg": "new"}, replace_folder="figures")
    assert {file.name: file.read_text() for file in (tmp_path / "figures").iterdir()} == {
        "a.svg": "of the other", "b.svg": "new",
    }  # fmt: skip


def test_a_link_that_a_killed_process_left_does_not_lead_into_the_page_of_another_run(tmp_path: Path) -> None:
    for page in ("pages/a", "pages/b"):
        write_files(tmp_path / page, {"report.html": page})
    point(str(tmp_path), "run", "pages/a")
    (tmp_path / ".run.new").symlink_to("pages/a")
    assert point(str(tmp_path), "run", "pages/b") == f"{tmp_path}/run"
    assert (tmp_path / "run" / "report.html").read_text() == "pages/b"
    assert (tmp_path / "pages" / "a" / "report.html").read_text() == "pages/a"
