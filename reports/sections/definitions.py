"""The technical terms that a report uses, each explained once, in one place."""

from __future__ import annotations

import tomllib
from pathlib import Path

from capim.reports import format as show
from capim.reports.elements import words
from capim.reports.elements.page import Section
from capim.reports.elements.tables import pivot, texts
from capim.reports.rows.report_data import R1, ReportData

TERMS: dict[str, str] = tomllib.loads(Path(__file__).with_name("terms.toml").read_text("utf-8"))
"""A term as displayed to its explanation."""


def section(data: ReportData) -> Section:
    """Return the terms, with the level of the intervals and the margin of this report."""
    level = next((r.level for r in data.results if r.ci_low is not None), 0.95)
    tested = [r for r in data.comparisons if r.p_equivalent is not None]
    own = next((r for r in tested if r.metric == R1), next(iter(tested), None))
    margin = words.margin(data.metric(own.metric), own.margin) if own is not None else ""
    found = {"level": show.percent(level, 0), "margin": margin or "the margin"}
    about = [(term, f"{text.format(**found)}.") for term, text in TERMS.items()]
    table = pivot("terms", "Terms", about, texts("Term", lambda of: of[0]), texts("is", lambda of: of[1]))
    return Section(id="definitions", title="Definitions", blocks=(table,), folded=True)
