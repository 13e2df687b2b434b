"""What is meant to be shared: short markdown with pictures, long CSVs, results without paths; two reports compared."""

from __future__ import annotations

import csv
import json
import os
import re
from dataclasses import replace
from datetime import timedelta
from itertools import combinations
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from capim.reports.compare import compare, write_comparison
from capim.reports.exports.tabular import row_schema
from capim.reports.render import MOST_LINES, render_markdown
from capim.reports.rows.report_data import OF_THE_MACHINE, ShownResult
from capim.reports.rows.snapshot import changed_figures, load_snapshot
from capim.reports.write import STORED, write_report
from capim.store.errors import RequestError
from capim.store.row_types import columns_of
from capim.store.schema import TABLES, Comparison
from capim.store.types import MetricFacts
from tests.reports.large import coco
from tests.reports.pages import cases, long_table
from tests.reports.stand_in import StandIn, comparison, demo, report, result, spec, store_of

DOCS = Path(__file__).parents[2] / "docs" / "results.schema.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a store at an absolute path, run by a command with one."""
    store: StandIn = coco(n_images=16, n_models=3, n_languages=3)
    store.uri = "/home/ada/work/ws/store"
    for row in store.tables["runs"]:
        row.update(command="capim run --workspace /home/ada/work/ws", host="adas-laptop", message="see /home/ada/x.log")
    return Path(write_report(store, tmp_path_factory.mktemp("shared"))).parent


def test_no_path_and_no_name_of_the_machine_is_in_any_file(folder: Path) -> None:
    texts = {p.name: p.read_text("utf-8") for p in folder.rglob("*") if p.suffix in (".html", ".md", ".json", ".csv")}
    assert len(texts) > 5
    assert [name for name, text in texts.items() if "/home/ada" in text or "adas-laptop" in text] == []
    assert "--workspace …/ws" in texts["report.html"]
    assert "/home/ada" not in str(cases(texts["report.html"]))
    assert "/home/ada" not in str([long_table(folder / "report.html", name) for name in ("comparisons", "slices")])


def test_markdown_is_short_and_has_its_picture(folder: Path) -> None:
    text = (folder / "report.md").read_text("utf-8")
    named = {*re.findall(r"\(figures/([^)]+)\)", text), *re.findall(r'(?:src|srcset)="figures/([^"]+)"', text)}
    assert text.count("\n") <= MOST_LINES
    assert named and all((folder / "figures" / name).is_file() for name in named)
    assert "report.html#slices" in text


def test_markdown_of_forty_encoders_on_twelve_corpora_has_a_hundred_lines_and_eight_columns() -> None:
    encoders, corpora = [f"encoder-with-a-name-{i:02}" for i in range(40)], [f"corpus-{i:02}" for i in range(12)]
    store = store_of(encoders, **dict.fromkeys(corpora, 4))
    for name in corpora:
        for at, encoder in enumerate(encoders):
            for protocol, bonus in (("t2i/all", 0.0), ("i2t/any", 0.1)):
                result(store, encoder, name, protocol, "R@1", 0.3 + at / 100 + bonus, chance=0.32)
    for a, b in combinations(encoders, 2):
        for protocol in ("t2i/all", "i2t/any"):
            comparison(store, corpora[0], protocol, "R@1", a, b, -0.001, 0.9)
    made = report(store)
    text = render_markdown(made, page="report.html")
    assert text.count("\n") <= MOST_LINES
    assert max(line.count("|") for line in text.splitlines()) - 1 <= 8
    assert made.board and len(made.board.headline) < 120, "a sentence does not list forty names"
    assert all(name in text for name in encoders)


def test_results_follow_their_schema(folder: Path) -> None:
    document, schema = json.loads((folder / "results.json").read_text("utf-8")), json.loads(DOCS.read_text("utf-8"))
    properties = {**schema["properties"]}
    for table in STORED:
        columns = columns_of(ShownResult if table == "results" else TABLES[table].row)
        properties[table] = {"type": "array", "items": row_schema(columns, without=OF_THE_MACHINE)}
    facts = MetricFacts(name="m", title="a metric").columns()
    kinds = [(name, pa.bool_() if isinstance(value, bool) else pa.string()) for name, value in facts.items()]
    rows = row_schema(pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds]), without=())
    properties["metrics"] = {"type": "object", "additionalProperties": rows}
    if os.environ.get("CAPIM_WRITE_GOLDEN"):
        schema = {**schema, "properties": properties}
        DOCS.write_text(json.dumps(schema, indent=1) + "\n", "utf-8")
    assert schema["properties"] == properties, "as the tables of the store"
    jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)
    assert sorted(document) == sorted(properties) == schema["required"]
    assert all(document[table] for table in ("results", "runs"))


def test_csvs_are_long_with_encoders_and_intervals(folder: Path) -> None:
    document = json.loads((folder / "results.json").read_text("utf-8"))
    for table in ("results", "comparisons", "slices"):
        rows = list(csv.DictReader((folder / f"{table}.csv").read_text("utf-8").splitlines()))
        stored = document[table] if table == "results" else long_table(folder / "report.html", table)
        assert len(rows) == len(stored)
        assert {"ci_low", "ci_high"} <= rows[0].keys()
        assert any(name.startswith("encoder") for name in rows[0])


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
