"""The technical terms that a report uses, each explained once, in one place."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from capim.reports import format as show
from capim.reports.elements import words
from capim.reports.elements.page import Block, Board, Chart, Evidence, Gallery, Notice, Picker, Section, Table, Text
from capim.reports.elements.tables import pivot, texts
from capim.reports.rows.report_data import R1, ReportData

TERMS: dict[str, tuple[str, str]] = tomllib.loads(Path(__file__).with_name("terms.toml").read_text("utf-8"))
"""A term as displayed to the pattern of its occurrences and its explanation."""


def section(data: ReportData, board: Board, sections: Iterable[Section]) -> Section:
    """The terms that the board and the sections say, in their order."""
    level = next((r.level for r in data.results if r.ci_low is not None), 0.95)
    tested = [r for r in data.comparisons if r.p_equivalent is not None]
    own = next((r for r in tested if r.metric == R1), next(iter(tested), None))
    margin = words.margin(data.metric(own.metric), own.margin) if own is not None else "the margin"
    said = "\n".join([*board.lines, *(text for made in sections for text in _texts(made))])
    found = [
        (term, f"{about.format(level=show.percent(level, 0), margin=margin or 'the margin')}.")
        for term, (pattern, about) in TERMS.items()
        if re.search(pattern, said, re.IGNORECASE)
    ]
    table = pivot("terms", "Terms", found, texts("Term", lambda of: of[0]), texts("is", lambda of: of[1]))
    return Section(id="definitions", title="Definitions", blocks=(table,) if found else (), folded=True)


def _texts(section: Section) -> Iterator[str]:
    """Yield the texts of a section; not those of queries, which are users' words."""
    yield from (section.title, section.lead)
    for block in section.blocks:
        yield from _words(block)


def _words(block: Block) -> Iterator[str]:
    if isinstance(block, Table):
        yield from (block.caption, block.note, block.folded)
        yield from (text for column in block.columns for text in (column.group, column.heading))
        yield from (row[0].text for row in block.rows)
        yield from (cell.state for row in block.rows for cell in row)
    elif isinstance(block, Picker):
        yield from (text for *_, table in block.views for text in _words(table))
    elif isinstance(block, Chart):
        yield from (block.title, block.note)
    elif isinstance(block, Notice):
        yield from (block.title, *block.items)
    elif isinstance(block, Evidence):
        yield from block.lines
    elif isinstance(block, Text):
        yield block.text
    elif isinstance(block, Gallery):
        yield from (block.caption, block.note)
        yield from (option for each in block.filters if each.name == "kind" for option in each.options)
