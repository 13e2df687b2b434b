"""Golden texts of both templates from one fixed report; templates only print, and untrusted text breaks nothing.

After a change that is meant: ``CAPIM_WRITE_GOLDEN=1 pytest tests/reports/test_templates.py``, and read the diff.
"""

from __future__ import annotations

import html
import json
import math
import os
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import jinja2
import pytest
from jinja2 import nodes

from capim.reports.exports import export_results
from capim.reports.render import (
    TEMPLATES,
    _markdown,
    _named,
    escape_markdown,
    figure_files,
    html_templates,
    render_html,
    render_markdown,
)
from capim.reports.rows.reading import read_report_data
from capim.reports.write import write_report
from tests.reports.conftest import HOSTILE, ODD_ID
from tests.reports.fixed import FIXED
from tests.reports.pages import cases, elements, readable
from tests.reports.pages import cells as cells_of
from tests.reports.pages import views as packed_tables
from tests.reports.stand_in import StandIn, report

GOLDEN = Path(__file__).parent / "golden"


def held_against(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("CAPIM_WRITE_GOLDEN"):
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


def test_html_is_the_golden_text() -> None:
    text = render_html(FIXED)
    text = re.sub(r"<style>.*?</style>", "<style></style>", text, flags=re.DOTALL)
    text = re.sub(r'<script>"use strict".*?</script>', "<script></script>", text, flags=re.DOTALL)
    held_against("report.html", re.sub(r"(?:&#39;|')sha256-[^&']+(?:&#39;|')", "'sha256-…'", readable(text)))


def test_markdown_is_the_golden_text() -> None:
    held_against("report.md", render_markdown(FIXED))


def test_figures_are_drawn_for_light_and_for_dark_paper() -> None:
    files = figure_files(FIXED)
    assert sorted(files) == ["sha1.jpg", "test-shapes-dark.svg", "test-shapes.svg"]
    assert "currentColor" not in str(files["test-shapes.svg"]) + str(files["test-shapes-dark.svg"])
    assert files["test-shapes.svg"] != files["test-shapes-dark.svg"]


@pytest.mark.parametrize(
    "path", sorted(p for p in TEMPLATES.iterdir() if p.suffix in (".html", ".md")), ids=lambda p: p.name
)
def test_templates_do_not_calculate(path: Path) -> None:
    tree = jinja2.Environment().parse(path.read_text("utf-8"))
    arithmetic = (nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow, nodes.Neg)
    assert [node.lineno for node in tree.find_all(arithmetic)] == []
    names = {node.name for node in tree.find_all(nodes.Filter)}
    assert names <= {"embedded_json", "figure_path", "join", "length", "markup", "picture", "says", "select", "tojson"}


@pytest.mark.parametrize("templates", [html_templates, _markdown])
def test_a_misspelt_name_is_an_error(templates: Callable[[], jinja2.Environment]) -> None:
    with pytest.raises(jinja2.UndefinedError, match="titel"):
        templates().from_string("{{ report.titel }}").render(report=FIXED)


def test_characters_that_turn_or_hide_text_are_named_and_links_lead_where_they_did() -> None:
    text = '<a href="/q?{{ id }}" title="{{ id }}">{{ id }}</a><script>const id = "{{ id }}";</script><p>{{ arabic }}'
    hidden = "abc\u202egnp.exe\u200b\x07"
    page = html_templates().from_string(text).render(id=hidden, arabic="\u200f\u0642")
    named = "abc[U+202E]gnp.exe[U+200B][U+0007]"
    assert page == (
        f'<a href="/q?{hidden}" title="{named}">{named}</a><script>const id = "{hidden}";</script><p>\u200f\u0642'
    )


OUR_PICTURE = re.compile('<img class="thumb"( tabindex="0")? alt="[^"]*" loading="lazy" data-key="p[0-9]+">')


def test_hostile_captions_are_values_that_no_browser_reads_as_a_page(hostile_report: Path) -> None:
    whole = (hostile_report / "report.html").read_text("utf-8")
    views = [case[view] for case in cases(whole) for view in ("tile", "view")]
    headings = (html.unescape(text) for view in views for text in re.findall(r"<h2[^>]*>(.*?)</h2>", view, re.DOTALL))
    assert {" ".join(_named(text).split()) for text in HOSTILE} <= {" ".join(text.split()) for text in headings}
    for part in (whole, *views, *packed_tables(whole)):
        tags, attributes = elements(part)
        assert [name for name in attributes if name.startswith("on")] == []
        assert not [text for text in HOSTILE if "<" in text and text in part]
        assert [picture for picture in re.findall("<img[^>]*>", part) if not OUR_PICTURE.fullmatch(picture)] == []
        assert "script" not in tags or part is whole


def test_only_our_script_runs(hostile_report: Path) -> None:
    text = (hostile_report / "report.html").read_text("utf-8")
    assert len(re.findall(r"<script>", text)) == 1
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1])  # type: ignore[index]
    assert policy.count("sha256-") == 1
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
    assert policy.startswith("default-src 'none'")


def test_hostile_captions_break_no_markdown_table_or_line(hostile_store: StandIn) -> None:
    text = render_markdown(report(hostile_store))
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


def test_a_file_name_with_quotes_shows_as_it_is(hostile_report: Path, hostile_store: StandIn) -> None:
    text = (hostile_report / "report.html").read_text("utf-8")
    views = [html.unescape(case["view"]) for case in cases(text)]
    assert any(f'alt="{_named(ODD_ID)}"' in view or f">{_named(ODD_ID)}</span>" in view for view in views)
    quoted = ODD_ID.replace('"', '""')
    assert any(f',"{quoted}"' in view for view in views), "as it is in a line of judgements"
    assert ODD_ID not in text
    assert escape_markdown(ODD_ID) in render_markdown(report(hostile_store))


def test_results_json_is_json_where_a_figure_is_no_number(demo_store: StandIn, tmp_path: Path) -> None:
    for row, value in zip(demo_store.tables["results"], (math.nan, math.inf), strict=False):
        row["chance"] = value
    folder = Path(write_report(demo_store, tmp_path)).parent
    document = json.loads((folder / "results.json").read_text(), parse_constant=pytest.fail)
    assert {row["chance"] for row in document["results"]} >= {None}
    [path, _] = export_results(read_report_data(demo_store), tmp_path / "r.json")
    json.loads(path.read_text(), parse_constant=pytest.fail)


WHOLE = {"RSUM", "median_rank", "mean_rank"}  # metrics that are not fractions


def as_shown(row: dict[str, Any]) -> tuple[str, str]:
    """The text of a value and of its interval, rounded here without the code of the reports."""
    scale = 1 if row["metric"] in WHOLE else 100
    low, high = (f"{scale * row[end]:,.1f}" for end in ("ci_low", "ci_high"))
    return f"{scale * row['value']:,.1f}", f"{low}–{high}"


def result_cells(page: Path) -> Iterator[dict[str, str]]:
    """The metric, exact value, text and interval of every table cell whose tooltip names a metric and its value."""
    for shown in cells_of(page.read_text("utf-8")):
        found = re.search(r"(?:^|; )([^;]+) = ([^,]+), ", shown.get("title", ""))
        if found and shown["small"] and shown["text"]:
            facts = {"metric": found[1], "exact": found[2], "sort": shown["data-sort"]}
            yield {**facts, "value": shown["text"], "interval": shown["small"]}


def faults(page: Path, results: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The cells of a page whose numbers are not those of a stored row."""
    cells = list(result_cells(page))
    assert len(cells) > 300
    stored = {(r["metric"], repr(r["value"]), *as_shown(r)) for r in results if r["value"] is not None}
    shown = ("metric", "exact", "value", "interval")
    return [c for c in cells if c["sort"] != c["exact"] or tuple(c[name] for name in shown) not in stored]


def test_every_result_on_the_page_is_a_stored_value_rounded(hostile_report: Path) -> None:
    results = json.loads((hostile_report / "results.json").read_text("utf-8"))["results"]
    page = hostile_report / "report.html"
    assert faults(page, results) == []
    changed = [{**r, "value": r["value"] + 0.001} if r["protocol"] == "t2i/all" else r for r in results]
    assert faults(page, changed), "a value that the page does not show is noticed"
