"""Golden texts of both templates from one fixed report; and that templates only print.

After a change that is meant: ``CAPIM_WRITE_GOLDEN=1 pytest tests/reports/test_templates.py``, and read the diff.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import jinja2
import pytest
from jinja2 import nodes

from capim.reports.render import TEMPLATES, _markdown, figure_files, html_templates, render_html, render_markdown
from tests.reports.fixed import FIXED
from tests.reports.pages import readable

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
