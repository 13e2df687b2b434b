"""Ablations computed from stored embeddings: precision, truncation, re-ranking, compression and others.

An ablation is a slice whose ``detail`` names its cost (``bytes_per_item``, ``seconds_per_query``, ``n`` or the setting
itself as ``x``). Ablations over a numeric setting are drawn as curves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import altair as alt

from capim.reports import format as show
from capim.reports.elements import charts
from capim.reports.elements.page import Block, Cell, Chart, Section, Table
from capim.reports.elements.tables import UNITS, ColumnOf, anchor, measures, numbers, pivot, texts, value
from capim.reports.rows.report_data import R1, ReportData, detail_of, of_package
from capim.reports.sections.leaderboard import mains, retrieval_corpora
from capim.reports.sections.slices import encoder_order, part_label, slice_cell
from capim.store.current import grouped
from capim.store.schema import Slice
from capim.tasks.analyses.table import headings, looks_of
from capim.tasks.reference.published import ANALYSIS as REFERENCE

COSTS = {
    "bytes_per_item": "bytes per item",
    "n": "items re-ranked",
    "seconds_per_query": "seconds per query",
    "pairs_per_query": "pairs scored per query",
    "images": "images in the gallery",
    "depth": "re-ranked for the exact result",
    "x": "setting",
}
SHARES = {"tie_share": "tied queries", **{f"equal_at_{n}": f"exact if {n} are re-ranked" for n in (10, 20, 50, 100)}}
TIMED = (
    "Seconds per query: all queries at once, in one process; LanceDB answers queries of several vectors one by one. "
    "Bytes do not count the vectors that re-ranking reads."
)
LOGARITHMIC = 20.0  # ratio of the largest to the smallest cost above which the axis is logarithmic


def section(data: ReportData) -> Section:
    """A curve or a table per corpus, protocol, ablation and metric."""
    blocks: list[Block] = []
    known, elsewhere = headings("ablations"), {*headings("slices"), *headings("failures"), REFERENCE}
    titles = [*known, *sorted({r.analysis for r in data.slices} - known.keys())]  # of packages that are gone, last
    for corpus in retrieval_corpora(data):
        first = mains(data, corpus)[:1]
        of_corpus = (r for r in data.slices if r.corpus == corpus and r.protocol in first)
        shown = (r for r in of_corpus if r.analysis not in elsewhere)
        groups = grouped(shown, lambda r: (r.analysis, r.protocol, r.metric))
        for analysis, protocol, metric in sorted(groups, key=lambda key: (titles.index(key[0]), key)):
            rows, looks = groups[analysis, protocol, metric], looks_of(analysis)
            table = _table(data, corpus, rows)
            if "R@1 first" in looks and metric != R1:
                blocks.append(replace(table, folded=table.caption))
            else:
                blocks.append((_curve(data, table, rows) if "curve" in looks else None) or table)
    return Section(
        id="ablations",
        title="Ablations",
        lead="Computed from the stored embeddings; nothing was encoded again. A change is relative to the vectors as "
        "stored, paired by query, in percentage points.",
        blocks=tuple(blocks),
    )


def _label(row: Slice) -> str:
    return part_label(row.feature, row.level_name)


def _table(data: ReportData, corpus: str, rows: Sequence[Slice]) -> Table:
    """The rows of one analysis, protocol and metric."""
    analysis, protocol, metric = rows[0].analysis, rows[0].protocol, rows[0].metric
    names, label = encoder_order(data, corpus, protocol, metric, rows), data.metric(metric).label
    details = {r.slice: detail_of(r) for r in rows}

    def change(r: Slice) -> Cell:
        own = details[r.slice]
        note = show.percent_range(own.get("change_low"), own.get("change_high"))
        return value(own.get("change"), show.points(own.get("change")), note=note, unit=UNITS[show.points])

    def detail(key: str, heading: str, text: Callable[[float | None], str], explain: str = "") -> ColumnOf[Slice]:
        return measures(heading, lambda r: details[r.slice].get(key), text, explain=explain)

    def queries(r: Slice) -> Cell:
        every = details[r.slice].get("n_all_queries", r.n_queries)
        sampled = f" of {show.number(every, 0)}" if every > r.n_queries else ""
        return Cell(text=show.number(r.n_queries, 0) + sampled, sort=str(r.n_queries))

    columns = [numbers("change", change)] if any(details[r.slice].get("change") is not None for r in rows) else []
    for key, heading in SHARES.items():
        if any(details[r.slice].get(key) for r in rows):
            columns.append(detail(key, heading, show.percent, "Percent"))
    whole = partial(show.number, decimals=0)
    for key, heading in COSTS.items():
        if key != "x" and any(key in details[r.slice] for r in rows):
            columns.append(detail(key, heading, whole if key == "depth" else show.significant))
    fitted = {_label(r): on for r in rows if (on := details[r.slice].get("fitted_on"))}
    notes = [f"A sample of the queries: {text}." for text in {queries(r).text: None for r in rows} if " of " in text]
    notes += [f"Fitted on {next(iter(fitted.values()))}: {', '.join(fitted)}."] if fitted else []
    notes += (
        [TIMED] if any("bytes_per_item" in details[r.slice] and r.seconds_per_query is not None for r in rows) else []
    )
    title = headings("ablations").get(analysis, analysis.replace("-", " ").capitalize()) + of_package(rows)
    return pivot(
        anchor("ablation", analysis, corpus, protocol, metric),
        f"{title} · {corpus} · {data.titled(corpus, protocol)} · {label}",
        sorted(rows, key=lambda r: names.index(r.encoder)),
        texts("Encoder", lambda r: r.encoder),
        texts("setting", _label),
        numbers("queries", queries),
        numbers(label, lambda r: slice_cell(data, r)),
        *columns,
        note=" ".join(notes),
    )


def _curve(data: ReportData, table: Table, rows: Sequence[Slice]) -> Chart | None:
    """The value over the first cost that an encoder has at two settings or more."""
    metric = data.metric(rows[0].metric)
    for cost in COSTS:
        costly = [r for r in rows if r.value is not None and isinstance(detail_of(r).get(cost), int | float)]
        if len({(r.encoder, detail_of(r)[cost]) for r in costly}) > len({r.encoder for r in costly}):
            break
    else:
        return None
    fraction = metric.unit == "percent"

    def point(r: Slice) -> charts.Point:
        cell = slice_cell(data, r)
        more: charts.Point = {"setting": _label(r), "method": r.feature, "cost": float(detail_of(r)[cost])}
        return charts.interval_point(r, fraction=fraction, text=f"{cell.text} ({cell.note})", **more)

    points = [point(r) for r in costly]
    names = list(dict.fromkeys(r.encoder for r in costly))
    ends = [p["cost"] for p in points]
    logarithmic = min(ends) > 0 and max(ends) / min(ends) > LOGARITHMIC
    kind: charts.Point = {"type": "log"} if logarithmic else {"zero": False}
    of = data.protocol(rows[0].corpus, rows[0].protocol)
    y_title = f"{metric.label}{', percent' * fraction}, {of.titled}"
    colour, shape = charts.by_name(names, data.encoder_names())
    x_title, scale = f"{COSTS[cost]}{' (logarithmic)' * logarithmic}", alt.Scale(nice=False, padding=20, **kind)
    x, tooltip = alt.X("cost:Q", title=x_title, scale=scale), charts.tooltips("setting", "text")
    base = alt.Chart(alt.Data(values=points)).encode(x=x, color=colour, tooltip=tooltip)
    y = alt.Y("ci_low:Q", title=y_title, scale=alt.Scale(zero=False))
    line = base.mark_line(strokeWidth=1.5, opacity=0.7).encode(y="value:Q")
    layers = (line, *charts.intervals(base, y, size=60, opacity=0.6, shape=shape))
    by_point = [f"{p[charts.ENCODER]}, {p['setting']}: {p['text']} at {show.significant(p['cost'])}" for p in points]
    return charts.finish(
        alt.layer(*layers).properties(width=charts.WIDTH, height=260),
        name=f"{table.id}-curve",
        title=table.caption,
        alt_text=f"{y_title} over {COSTS[cost]}. {'; '.join(by_point)}.",
        data=replace(table, note=""),
        note=table.note,
    )
