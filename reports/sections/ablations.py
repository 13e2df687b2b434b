"""Ablations computed from stored embeddings: what smaller and coarser vectors cost, as one matrix.

An ablation is a slice whose ``detail`` names its change against the vectors as stored. All of them are in
``slices.csv``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from capim.reports import format as show
from capim.reports.elements.page import Block, Cell, Evidence, Mark, Section, Table
from capim.reports.elements.tables import absent, numbers, pivot, texts, value
from capim.reports.rows.report_data import R1, ReportData, detail_of, of_package
from capim.reports.sections.leaderboard import mains, retrieval_corpora
from capim.reports.sections.slices import encoder_order, part_label
from capim.store.schema import Slice
from capim.tasks.analyses.table import headings
from capim.tasks.reference.published import ANALYSIS as REFERENCE

MOST = 12  # settings of the matrix
LOSSES = 5
SLIGHT, MUCH = 0.005, 0.05  # of a change: bounds of grey and dark cells


def section(data: ReportData) -> Section:
    """Return the matrix of one corpus, and the largest losses of all."""
    elsewhere = {*headings("slices"), *headings("failures"), REFERENCE}
    rows = [row for row in data.slices if row.analysis not in elsewhere and _change(row) is not None]
    shown = {(row.analysis, row.protocol): row.metric for row in reversed(data.slices)}  # the first one, or R@1
    shown |= {(row.analysis, row.protocol): R1 for row in data.slices if row.metric == R1}
    rows = [row for row in rows if row.metric == shown[row.analysis, row.protocol]]
    rows = [row for row in rows if row.protocol in mains(data, row.corpus)[:1]]
    corpora = [name for name in retrieval_corpora(data) if any(row.corpus == name for row in rows)]
    blocks: list[Block] = []
    if corpora:
        blocks.append(_matrix(data, corpora[0], [row for row in rows if row.corpus == corpora[0]]))
    losses = [row for row in rows if (_change(row) or 0.0) < -SLIGHT]
    if losses:
        losses.sort(key=lambda row: (_change(row), _label(row)))
        blocks.append(Evidence(lines=tuple(_loss(row) for row in losses[:LOSSES])))
    return Section(
        id="ablations",
        title="Smaller vectors",
        lead="Computed from the stored embeddings; nothing was encoded again. Points against the vectors as stored.",
        blocks=tuple(blocks),
    )


def _change(row: Slice) -> float | None:
    change = detail_of(row).get("change")
    return change if isinstance(change, int | float) else None


def _label(row: Slice) -> str:
    return part_label(row.feature, row.level_name)


def _setting(data: ReportData, row: Slice) -> tuple[str, str]:
    """Return the analysis and the setting: of vectors that were cut, their part, alike for encoders of any width."""
    label = _label(row)
    width, kept = data.specs[row.encoder].dim, re.search(r"(\d+) components", label)
    if kept and (n := int(kept[1])) and width % n == 0:
        label = label.replace(kept[0], f"1/{width // n} of the components")
    return row.analysis, label


def _matrix(data: ReportData, corpus: str, rows: Sequence[Slice]) -> Table:
    names = encoder_order(data, corpus, rows[0].protocol, rows[0].metric, rows)
    by_key = {(*_setting(data, row), row.encoder): row for row in rows}
    felt = Counter(key[:2] for key, row in by_key.items() if abs(_change(row) or 0.0) >= SLIGHT)
    order = [*headings("ablations"), *sorted({row.analysis for row in rows})]
    settings = sorted(felt, key=lambda key: (-felt[key], order.index(key[0]), key))

    def cell(name: str, setting: tuple[str, str]) -> Cell:
        row = by_key.get((*setting, name))
        if row is None or (change := _change(row)) is None:
            return absent("not computed")
        own = detail_of(row)
        interval = show.percent_range(own.get("change_low"), own.get("change_high"))
        note = f"{show.percent(row.value)} of {show.count(row.n_queries, 'query', 'queries')}; change {interval}"
        grey = abs(change) < SLIGHT
        shade = "" if grey else str(min(9, int(9 * abs(change) / MUCH)))
        mark: Mark = "muted" if grey else "warn" if change < 0 else "good"
        return replace(value(change, show.points(change), title=note, mark=mark), shade=shade if change < 0 else "")

    columns = [
        numbers(setting[1], partial(cell, setting=setting), group=_heading(setting[0], rows))
        for setting in sorted(settings[:MOST], key=lambda key: (order.index(key[0]), key))
    ]
    of = data.protocol(corpus, rows[0].protocol)
    title = f"{corpus}, {of.title}, {data.metric(rows[0].metric).label}: change in points"
    note = "Grey: less than half a point; settings that change no encoder by so much are left out. All: slices.csv."
    return replace(pivot("ablations-matrix", title, names, texts("Encoder", str), *columns, note=note), matrix=True)


def _heading(analysis: str, rows: Sequence[Slice]) -> str:
    known = headings("ablations").get(analysis, analysis.replace("-", " ").capitalize())
    return known + of_package([row for row in rows if row.analysis == analysis])


def _loss(row: Slice) -> str:
    own = detail_of(row)
    interval = show.percent_range(own.get("change_low"), own.get("change_high"))
    heading = headings("ablations").get(row.analysis, row.analysis)
    return f"{heading}: {row.encoder}, {row.corpus}: {show.points(_change(row))} with {_label(row)} ({interval})"
