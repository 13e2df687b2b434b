"""Every number that the page shows is in ``results.json`` too."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.reports.test_untrusted_text import Visible

NUMBER = re.compile(r"[−-]?\d[\d,]*(?:\.\d+)?")


def texts_in(value: object) -> list[str]:
    """All texts of a JSON document."""
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts_in(item)]
    if isinstance(value, list):
        return [text for item in value for text in texts_in(item)]
    return [value if isinstance(value, str) else json.dumps(value)]


def test_every_number_of_the_page_is_in_results_json(hostile_report: Path) -> None:
    page = Visible()
    page.feed((hostile_report / "report.html").read_text("utf-8"))
    shown = {number for text in page.texts for number in NUMBER.findall(text)}
    document = json.loads((hostile_report / "results.json").read_text("utf-8"))
    known = {number for text in texts_in(document) for number in NUMBER.findall(text)}
    assert len(shown) > 300
    assert shown - known == set()
