"""Captions and file names are strangers' text: they show as text and break nothing."""

from __future__ import annotations

import html
import json
import math
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from capim.reports.exports import export_results
from capim.reports.render import escape_markdown
from capim.reports.rows.reading import read_report_data
from capim.reports.write import write_report
from tests.reports.conftest import HOSTILE, ODD_ID
from tests.reports.stand_in import StandIn


class Visible(HTMLParser):
    """Texts, elements and the attributes whose names begin with ``on``."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.elements: list[str] = []
        self.handlers: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside:
            while self._inside.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if not {"script", "style", "svg"} & set(self._inside):
            self.texts.append(data)


def test_hostile_captions_show_as_text_in_html(hostile_report: Path) -> None:
    page = Visible()
    page.feed((hostile_report / "report.html").read_text("utf-8"))
    shown = " ".join(" ".join(page.texts).split())
    for text in HOSTILE:
        assert " ".join(text.split()) in shown
    assert page.handlers == []
    assert "img" not in page.elements


def test_only_our_two_scripts_run(hostile_report: Path) -> None:
    text = (hostile_report / "report.html").read_text("utf-8")
    assert len(re.findall(r"<script>", text)) == 2
    assert "alert(1)</script>" not in text
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1])  # type: ignore[index]
    assert policy.count("sha256-") == 2
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
    assert policy.startswith("default-src 'none'")


def test_hostile_captions_break_no_markdown_table_or_line(hostile_report: Path) -> None:
    text = (hostile_report / "report.md").read_text("utf-8")
    assert "<script>" not in text
    assert "<img src=x" not in text
    assert "](https://" not in text
    assert "\n# not a heading" not in text
    lines = text.splitlines()
    for head, rule in pairwise(lines):
        if re.fullmatch(r"\|( :?-+:? \|)+", rule):
            assert _cells(head) == _cells(rule)
    widths = [_cells(line) for line in lines if line.startswith("|")]
    assert min(widths) > 1


def _cells(line: str) -> int:
    return len(re.split(r"(?<!\\)\|", line)) - 2


def test_a_file_name_with_quotes_shows_as_it_is(hostile_report: Path) -> None:
    text = (hostile_report / "report.html").read_text("utf-8")
    assert html.escape(ODD_ID).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in text
    assert ODD_ID not in text
    assert escape_markdown(ODD_ID) in (hostile_report / "report.md").read_text("utf-8")


def test_results_json_is_json_where_a_figure_is_no_number(demo_store: StandIn, tmp_path: Path) -> None:
    for row, value in zip(demo_store.tables["results"], (math.nan, math.inf), strict=False):
        row["chance"] = value
    folder = Path(write_report(demo_store, tmp_path)).parent
    document = json.loads((folder / "results.json").read_text(), parse_constant=pytest.fail)
    assert {row["chance"] for row in document["results"]} >= {None}
    [path, _] = export_results(read_report_data(demo_store), tmp_path / "r.json")
    json.loads(path.read_text(), parse_constant=pytest.fail)


def test_results_json_is_json_whatever_the_captions(hostile_report: Path) -> None:
    document = json.loads((hostile_report / "results.json").read_text("utf-8"))
    assert document["results"]
    assert HOSTILE[3] not in json.dumps(document, ensure_ascii=False), "results without the texts of the page"
