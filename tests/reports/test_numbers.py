"""The results on the page are the values of the rows in ``results.json``, rounded."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

WHOLE = {"RSUM", "median_rank", "mean_rank"}  # metrics that are not fractions


class ResultCells(HTMLParser):
    """The metric, exact value, text and interval of every table cell whose tooltip names a metric and its value."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[dict[str, str]] = []
        self._field = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = {name: value or "" for name, value in attrs}
        if tag == "td" and " = " in about.get("title", ""):
            metric, _, rest = about["title"].partition(" = ")
            shown = {"metric": metric, "exact": rest.split(", ")[0], "sort": about["data-sort"]}
            self.cells.append({**shown, "value": "", "interval": ""})
        elif tag == "td":
            self._field = ""
        elif tag == "span":
            self._field = about.get("class", "")

    def handle_endtag(self, tag: str) -> None:
        self._field = "" if tag in ("span", "td") else self._field

    def handle_data(self, data: str) -> None:
        if self.cells and self._field in ("value", "interval") and not self.cells[-1][self._field]:
            self.cells[-1][self._field] = data


def as_shown(row: dict[str, Any]) -> tuple[str, str]:
    """The text of a value and of its interval, rounded here without the code of the reports."""
    scale = 1 if row["metric"] in WHOLE else 100
    low, high = (f"{scale * row[end]:,.1f}" for end in ("ci_low", "ci_high"))
    return f"{scale * row['value']:,.1f}", f"{low}–{high}"


def faults(page: str, results: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The cells of a page whose numbers are not those of a stored row."""
    parser = ResultCells()
    parser.feed(page)
    assert len(parser.cells) > 300
    stored = {(r["metric"], repr(r["value"]), *as_shown(r)) for r in results if r["value"] is not None}
    return [
        cell
        for cell in parser.cells
        if cell["sort"] != cell["exact"]
        or (cell["metric"], cell["exact"], cell["value"], cell["interval"]) not in stored
    ]


def test_every_result_on_the_page_is_a_stored_value_rounded(hostile_report: Path) -> None:
    results = json.loads((hostile_report / "results.json").read_text("utf-8"))["results"]
    page = (hostile_report / "report.html").read_text("utf-8")
    assert faults(page, results) == []
    changed = [{**r, "value": r["value"] + 0.001} if r["protocol"] == "t2i/all" else r for r in results]
    assert faults(page, changed), "a value that the page does not show is noticed"
