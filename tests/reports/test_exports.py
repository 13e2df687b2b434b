"""Every export is read back."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pyarrow.csv
import pyarrow.parquet
import pytest

from capim.reports.exports import export_results
from capim.reports.exports.tabular import in_seed_order, reduced
from capim.reports.rows.reading import read_report_data
from capim.store.errors import RequestError
from capim.store.row_types import columns_of
from capim.store.schema import Result
from tests.reports.stand_in import StandIn


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_csv_and_parquet_hold_every_result_to_the_last_digit(demo_store: StandIn, tmp_path: Path) -> None:
    data, values = read_report_data(demo_store), sorted(r["value"] for r in demo_store.tables["results"])
    [path] = export_results(data, tmp_path / "r.csv")
    table = pyarrow.csv.read_csv(path)
    assert table.column_names == columns_of(Result).names
    assert sorted(map(float, table["value"].to_numpy())) == values
    [path] = export_results(data, tmp_path / "r.parquet")
    table = pyarrow.parquet.read_table(path)
    assert table.schema.equals(columns_of(Result)), "the store's own types"
    assert sorted(map(float, table["value"].to_numpy())) == values


def test_json_obeys_the_schema_beside_it(demo_store: StandIn, tmp_path: Path) -> None:
    document, schema = (
        json.loads(p.read_text("utf-8")) for p in export_results(read_report_data(demo_store), tmp_path / "r.json")
    )
    jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)
    assert len(document["results"]) == len(demo_store.tables["results"])
    document["results"][0]["n_queries"] = "many"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)


def test_v28_csv_has_the_seeds_columns_in_percent_and_names_its_protocols(demo_store: StandIn, tmp_path: Path) -> None:
    [path] = export_results(read_report_data(demo_store), tmp_path / "r.csv", kind="v28")
    first = rows_of(path)[0]
    assert first["Model"] == "tiny-clip"
    assert (first["T2I Protocol"], first["T2I R@1"]) == ("t2i/first", "60.0")
    assert (first["I2T Protocol"], first["I2T R@1"]) == ("i2t/any", "74.0")
    assert first["Winoground Text"] == "43.4"
    assert first["Architecture"] == "Dense"
    assert rows_of(path)[-1]["Architecture"] == "Late-Interaction"


def test_reduced_tables_equal_those_that_coco_sm_published(shared_data: Path) -> None:
    for report in sorted((shared_data / "coco_sm" / "reports").glob("*_reduced.csv")):
        full = rows_of(report.with_name(report.name.replace("_reduced", "")))
        ours = reduced([{k: v if k in ("language", "meta") else float(v) for k, v in row.items()} for row in full])
        theirs = rows_of(report)
        assert [r["language"] for r in ours] == [r["language"] for r in theirs]
        for mine, published in zip(ours, theirs, strict=True):
            for column in published.keys() - {"language"}:
                pairs = zip(mine[column].split(" ± "), published[column].split(" ± "), strict=True)
                # theirs are means of unrounded figures, ours here of the three decimals that they published
                assert all(abs(float(a) - float(b)) < 0.00101 for a, b in pairs), (report.name, mine, column)


def test_coco_sm_files_have_the_published_form(large_store: StandIn, tmp_path: Path, shared_data: Path) -> None:
    export_results(read_report_data(large_store), tmp_path / "out", kind="coco-sm")
    full = tmp_path / "out" / "coco-sm" / "siglip2-so400m.csv"
    published = shared_data / "coco_sm" / "reports" / "open_clip.csv"
    assert full.read_text("utf-8").splitlines()[0] == published.read_text("utf-8").splitlines()[0]
    rows = rows_of(full)
    assert len(rows) == 18 * 3
    assert all(re.fullmatch(r"[01]\.\d{3}", row["t2i.ndcg@20"]) for row in rows)
    last = [row["language"] for row in rows_of(full.with_name("siglip2-so400m_reduced.csv"))][-4:]
    assert last == ["all", "google", "bing", "nllb"]


def test_rows_come_in_the_order_of_the_published_tables(shared_data: Path) -> None:
    for name in ("open_clip", "uform-multilingual-v2"):
        published = [(r["language"], r["meta"]) for r in rows_of(shared_data / "coco_sm" / "reports" / f"{name}.csv")]
        assert len(published) == 63
        assert in_seed_order(sorted(published)) == published


@pytest.mark.parametrize(
    ("target", "kind", "message"),
    [
        ("r.xlsx", None, "r.xlsx: suffix '.xlsx' is unknown; known: csv, json"),
        ("r.csv", "excel", "format 'excel' is unknown"),
        ("r.txt", "csv", "end it with .csv"),
        ("out", "coco-sm", "has no results for the format coco-sm"),
    ],
)
def test_an_export_that_cannot_be_says_why(
    demo_store: StandIn, tmp_path: Path, target: str, kind: str | None, message: str
) -> None:
    with pytest.raises(RequestError, match=re.escape(message)):
        export_results(read_report_data(demo_store), tmp_path / target, kind=kind)
    assert not list(tmp_path.iterdir())
