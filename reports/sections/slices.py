"""Slices: the same result over parts of the queries as one matrix, with the five largest tested differences.

A slice is one row of ``schema.SLICES``: an analysis, a feature, and a level of it. Three levels named ``with``,
``without`` and ``difference`` make a contrast; any other levels make parts. All of them are in ``slices.csv``.

An ablation is a slice with a ``detail`` that names its change against the vectors as stored: what smaller and coarser
vectors cost, computed from stored embeddings, is a matrix of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from capim.reports import format as show
from capim.reports.elements import words
from capim.reports.elements.page import Block, Cell, Evidence, Mark, Section, Table
from capim.reports.elements.tables import absent, anchor, estimate, numbers, pivot, shaded, texts, value
from capim.reports.rows import standing
from capim.reports.rows.choice import best_first
from capim.reports.rows.report_data import R1, ReportData, detail_of, of_package
from capim.reports.sections.leaderboard import mains, pair_protocols, retrieval_corpora, sliced
from capim.store.current import figure_of
from capim.store.schema import Slice
from capim.tasks.analyses.table import headings, worst_tables
from capim.tasks.protocols import Protocol
from capim.tasks.reference.published import ANALYSIS as REFERENCE
from capim.tasks.statistics.decision import ALPHA

MOST = 12  # slices or settings of a matrix
GAPS = LOSSES = 5
SLIGHT, MUCH = 0.005, 0.05  # of a change: bounds of grey and dark cells


class Part(NamedTuple):
    """A part of the queries of a task: the result, the analysis, and the name of the part."""

    figure: tuple[str, str, str]
    analysis: str
    name: str


def section(data: ReportData) -> Section:
    """Return the matrix of the parts on which the best encoder does worst, and the largest tested differences."""
    parts, blocks = _parts(data), list[Block]()
    if parts:
        blocks.append(_matrix(data, parts))
    if lines := _gaps(data):
        blocks.append(Evidence(lines=lines))
    blocks += _of_packages(data)
    for corpus in data.corpus_names():
        found = {row.protocol for row in data.slices if row.corpus == corpus}
        lacking = sorted(id_ for id_ in _protocols(data, corpus) if id_ not in found)
        if found and lacking:
            command = f"capim analyse --corpora {corpus} --protocols {lacking[0]}"
            blocks.append(Evidence(lines=(f"{corpus}: no slices of {show.some(lacking)} ({command}).",)))
    return Section(id="slices", title="Slices", blocks=tuple(blocks))


def _protocols(data: ReportData, corpus: str) -> list[str]:
    quadruples = sorted(p for p in data.protocols(corpus) if Protocol.of(p).is_all_quadruples)
    return [*quadruples, *pair_protocols(data, corpus)] or sliced(data, corpus)


def _parts(data: ReportData) -> dict[Part, dict[str, Slice]]:
    """Return the parts of the headline tasks with an interval, by encoder; without encoders at chance on the task."""
    tasks = {task[:3] for task in standing.headline_tasks(data)}
    parts: dict[Part, dict[str, Slice]] = {}
    worst = worst_tables()
    for row in data.slices:
        key, level = figure_of(row), row.level_name
        shown = row.analysis in worst and level != "difference" and (level != "without" or worst[row.analysis])
        known = key in tasks and shown and row.value is not None and row.ci_low is not None
        if known and not standing.at_chance(data, *key, row.encoder):
            named = {"with": row.feature, "without": f"without {row.feature}"}
            name = named.get(level) or part_label(row.feature, level)
            parts.setdefault(Part(key, row.analysis, name), {})[row.encoder] = row
    return parts


def _matrix(data: ReportData, parts: dict[Part, dict[str, Slice]]) -> Table:
    names = [name for name in best_first(data) if any(name in of for of in parts.values())]
    first = names[0]

    def lowest(part: Part) -> tuple[object, ...]:
        value = parts[part][first].value or 0.0
        return value if data.metric(part.figure[2]).higher_is_better else -value, part

    worst = sorted((part for part in parts if first in parts[part]), key=lowest)[:MOST]
    names = [name for name in names if any(name in parts[part] for part in worst)]

    def label(part: Part) -> Cell:
        corpus, protocol, metric = part.figure
        row = parts[part][first]
        title = data.protocol(corpus, protocol).title.replace(" to ", " → ")
        about = f"{data.metric(metric).label}, {show.count(row.n_queries, 'query', 'queries')}"
        return Cell(text=part.name, note=f"{corpus}, {title}", title=about)

    def cell(part: Part, name: str) -> Cell:
        row = parts[part].get(name)
        made = slice_cell(data, row)
        if row is None or row.value is None or data.metric(row.metric).unit != "percent":
            return made
        return shaded(made, row.value)

    columns = [numbers(name, partial(cell, name=name)) for name in names]
    title = f"The {show.count(len(worst), 'slice')} on which {first} does worst" if len(worst) > 1 else "Slices"
    note = "Percent, with interval; parts with too few images for an interval are left out."
    return pivot("slices-worst", title, worst, texts("Slice", label), *columns, note=note, matrix=True)


def _of_packages(data: ReportData) -> Iterator[Table]:
    """Yield a table for each analysis of a package and task: its slices by encoder."""
    groups: dict[tuple[str, ...], list[Slice]] = {}
    for row in data.slices:
        if of_package([row]) and row.analysis in headings("slices"):
            groups.setdefault((row.analysis, *figure_of(row)), []).append(row)
    for (analysis, corpus, protocol, metric), rows in groups.items():
        of = {(part_label(row.feature, row.level_name), row.encoder): row for row in rows}

        def cell(part: str, encoder: str, of: Mapping[tuple[str, str], Slice] = of) -> Cell:
            return slice_cell(data, of.get((part, encoder)))

        names = dict.fromkeys(row.encoder for row in rows)
        columns = [numbers(name, partial(cell, encoder=name)) for name in names]
        title = f"{headings('slices')[analysis]}{of_package(rows)} · {corpus}"
        note = f"{data.protocol(corpus, protocol).title}, {data.metric(metric).label}"
        parts, name = dict.fromkeys(part for part, _ in of), anchor("slices", analysis, *figure_of(rows[0]))
        yield pivot(name, title, [*parts], texts("Slice", str), *columns, note=note)


def _gaps(data: ReportData) -> tuple[str, ...]:
    """Return the largest differences with a feature against without it that a test shows, a line each."""
    tasks = {task[:3]: task for task in standing.headline_tasks(data)}
    known = [row for row in data.slices if row.level_name == "difference" and row.value is not None]
    known = [row for row in known if figure_of(row) in tasks and row.p_adjusted is not None and row.p_adjusted < ALPHA]
    known = [row for row in known if not standing.at_chance(data, *figure_of(row), row.encoder)]
    known.sort(key=lambda row: (-abs(row.value or 0.0), row.encoder, row.feature))
    return tuple(_gap(data, row) for row in known[:GAPS])


def _gap(data: ReportData, row: Slice) -> str:
    metric, task = data.metric(row.metric), data.protocol(row.corpus, row.protocol).title
    size = words.difference(metric, row.value)
    heading = headings("slices").get(row.analysis, row.analysis)
    n = show.count(row.n_queries, "query", "queries")
    about = f"{words.interval(metric, row)}; {heading.lower()}, {n}"
    return f"{row.encoder}, {row.corpus}, {task}: {size} with {row.feature} ({about})"


def encoder_order(data: ReportData, corpus: str, protocol: str, metric: str, rows: Sequence[Slice]) -> list[str]:
    """Return the encoders of the rows: in the order of the leaderboard, then those that are not on it."""
    encoders = {r.encoder for r in rows}
    ranked = [r.encoder for r in data.ranked(corpus, protocol, metric) if r.encoder in encoders]
    return ranked + sorted(encoders - set(ranked))


def part_label(feature: str, level: str) -> str:
    """Return the name of a part of the queries, or of a setting of an ablation."""
    return feature if feature == level else f"{feature} {level}".strip()


def slice_cell(data: ReportData, row: Slice | None) -> Cell:
    """Return one slice as a cell: its value, or the reason why there is none."""
    if row is None or row.value is None:
        return absent((row.reason if row else None) or "not computed")
    title = f"{show.count(row.n_queries, 'query', 'queries')} in {show.count(row.n_clusters, 'cluster')}"
    return estimate(data.metric(row.metric), row, title=f"{title}; {row.reason}" if row.reason else title)


def ablations_section(data: ReportData) -> Section:
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
        blocks.append(_ablation_matrix(data, corpora[0], [row for row in rows if row.corpus == corpora[0]]))
    losses = [row for row in rows if (_change(row) or 0.0) < -SLIGHT]
    if losses:
        losses.sort(key=lambda row: (_change(row), part_label(row.feature, row.level_name)))
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


def _setting(data: ReportData, row: Slice) -> tuple[str, str]:
    """Return the analysis and the setting: of vectors that were cut, their part, alike for encoders of any width."""
    label = part_label(row.feature, row.level_name)
    width, kept = data.specs[row.encoder].dim, re.search(r"(\d+) components", label)
    if kept and (n := int(kept[1])) and width % n == 0:
        label = label.replace(kept[0], f"1/{width // n} of the components")
    return row.analysis, label


def _ablation_matrix(data: ReportData, corpus: str, rows: Sequence[Slice]) -> Table:
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
        mark: Mark = "muted" if abs(change) < SLIGHT else "warn" if change < 0 else "good"
        made = value(change, show.points(change), title=note, mark=mark)
        return replace(made, shade=str(min(9, int(9 * abs(change) / MUCH)))) if mark == "warn" else made

    columns = [
        numbers(setting[1], partial(cell, setting=setting), group=_heading(setting[0], rows))
        for setting in sorted(settings[:MOST], key=lambda key: (order.index(key[0]), key))
    ]
    of = data.protocol(corpus, rows[0].protocol)
    title = f"{corpus}, {of.title}, {data.metric(rows[0].metric).label}: change in points"
    note = "Grey: less than half a point; settings that change no encoder by so much are left out. All: slices.csv."
    return pivot("ablations-matrix", title, names, texts("Encoder", str), *columns, note=note, matrix=True)


def _heading(analysis: str, rows: Sequence[Slice]) -> str:
    known = headings("ablations").get(analysis, analysis.replace("-", " ").capitalize())
    return known + of_package([row for row in rows if row.analysis == analysis])


def _loss(row: Slice) -> str:
    own, part = detail_of(row), part_label(row.feature, row.level_name)
    interval = show.percent_range(own.get("change_low"), own.get("change_high"))
    heading = headings("ablations").get(row.analysis, row.analysis)
    return f"{heading}: {row.encoder}, {row.corpus}: {show.points(_change(row))} with {part} ({interval})"
