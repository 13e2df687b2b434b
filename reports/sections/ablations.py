"""Ablations computed from stored embeddings: precision, truncation, re-ranking, compression and others.

An ablation is a slice whose ``detail`` names its cost (``bytes_per_item``, ``seconds``, ``n`` or the setting itself as
``x``). Ablations over a numeric setting are drawn as curves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import altair as alt

from capim.reports import format as show
from capim.reports.elements import charts
from capim.reports.elements.page import Block, Cell, Chart, Section, Table
from capim.reports.elements.tables import (
    ColumnOf,
    anchor,
    is_fraction,
    measures,
    metric_title,
    numbers,
    pivot,
    texts,
    value,
)
from capim.reports.rows.names import named
from capim.reports.rows.report_data import ReportData, Row, detail_of, grouped
from capim.reports.sections.frontier import cost_of_compression
from capim.reports.sections.gate import ANALYSIS as REFERENCE
from capim.reports.sections.leaderboard import headlines, retrieval_corpora
from capim.reports.sections.parts import order, part_label, slice_cell
from capim.tasks.analyses.table import headings

COSTS = {
    "bytes_per_item": "bytes per item",
    "n": "items re-ranked",
    "seconds_per_query": "seconds per query",
    "pairs_per_query": "pairs scored per query",
    "images": "images in the gallery",
    "depth": "re-ranked for the exact result",
    "seconds": "seconds for all queries",
    "x": "setting",
}
SHARES = {
    "tie_share": "tied queries",
    **{f"equal_at_{n}": f"exact if {n} are re-ranked" for n in (10, 20, 50, 100)},
}
CURVES = frozenset({"truncation", "pca", "pooling", "two-stage", "distractors", "temperature", "threshold"})
COMBINED = frozenset({"two-stage", "fusion"})  # shown by R@1; the other metrics folded
COMPRESSION = "ann"
LOGARITHMIC = 20.0  # ratio of the largest to the smallest cost above which the axis is logarithmic


def section(data: ReportData) -> Section:
    """A curve or a table per corpus, protocol, ablation and metric."""
    blocks: list[Block] = []
    own = headings("ablations")
    titles = [*own, *sorted({r["analysis"] for r in data.slices} - own.keys())]  # of packages that are gone, last
    for corpus in retrieval_corpora(data):
        shown = (r for r in _of_corpus(data, corpus) if r["analysis"] not in {*headings("slices"), REFERENCE})
        groups = grouped(shown, itemgetter("analysis", "protocol", "metric"))
        for analysis, protocol, metric in sorted(groups, key=lambda key: (titles.index(key[0]), key)):
            rows = groups[analysis, protocol, metric]
            if analysis == COMPRESSION:
                blocks += _compression(data, corpus, protocol, metric, rows)
                continue
            table = _table(data, corpus, analysis, protocol, metric, rows)
            if analysis in COMBINED and metric != "R@1":
                blocks.append(dataclasses.replace(table, folded=table.caption))
            else:
                blocks.append(_curve(table, analysis, protocol, metric, rows, data.encoder_names()) or table)
    return Section(
        id="ablations",
        title="Ablations",
        lead="Computed from the stored embeddings; nothing was encoded again. A change is relative to the vectors as "
        "stored, paired by query, in percentage points.",
        blocks=tuple(blocks),
    )


def _of_corpus(data: ReportData, corpus: str) -> list[Row]:
    """The slices of a corpus under its first headline."""
    leading = headlines(data, corpus)[:1]
    return [r for r in data.slices if r["corpus"] == corpus and r["protocol"] in leading]


def _compression(
    data: ReportData, corpus: str, protocol: str, metric: str, rows: Sequence[Row]
) -> Iterator[Table | Chart]:
    """A chart with its table per encoder."""
    for encoder in order(data, corpus, protocol, metric, rows):
        # the exact search first, then from many bytes to few
        own = sorted(
            (r for r in rows if r["encoder"] == encoder),
            key=lambda r: (r["feature"] != "exact", -detail_of(r).get("bytes_per_item", 0.0)),
        )
        table = _table(data, corpus, COMPRESSION, protocol, metric, own)
        threads = {int(detail_of(r).get("threads") or 1) for r in own}
        missing = [f"{_label(r)}: {r['reason']}" for r in own if r["value"] is None]
        table = dataclasses.replace(
            table,
            id=anchor(table.id, encoder),
            caption=f"{table.caption} · {encoder}",
            note=f"{table.note} Seconds per query: all queries at once, in one process on "
            f"{show.listing([show.count(n, 'thread') for n in sorted(threads)])}; LanceDB answers queries of several "
            "vectors one by one. Bytes do not count the vectors that re-ranking reads. "
            f"{'. '.join(missing)}".strip(),
        )
        yield cost_of_compression(table, own, metric_title(metric)) or table


def rounding_cost(data: ReportData, encoder: str) -> str:
    """What float16 would change of an encoder stored as float32, as measured on the largest corpus; else empty."""
    if data.specs[encoder].storage != "float32":
        return ""
    kinds = {("precision", "stored in", "float16"), ("quantisation", "", "float16")}
    for corpus in retrieval_corpora(data):
        for r in _of_corpus(data, corpus):
            if r["encoder"] == encoder and (r["analysis"], r["feature"], r["level_name"]) in kinds:
                own = detail_of(r)
                span = show.percent_range(own.get("change_low"), own.get("change_high"), 2)
                change = f"{show.points(own.get('change'), 2)} points" + (f" ({span})" if span else "")
                return (
                    f"float16 would change {metric_title(r['metric'])} by {change} on {corpus}, {named(r['protocol'])}"
                )
    return ""


def _count(number: float | None) -> str:
    return show.number(number, 0)


def _label(row: Row) -> str:
    return part_label(row["feature"], row["level_name"])


def _table(data: ReportData, corpus: str, analysis: str, protocol: str, metric: str, rows: Sequence[Row]) -> Table:
    names = order(data, corpus, protocol, metric, rows)
    details = {id(r): detail_of(r) for r in rows}
    title = headings("ablations").get(analysis, analysis.replace("-", " ").capitalize())

    def change(r: Row) -> Cell:
        own = details[id(r)]
        note = show.percent_range(own.get("change_low"), own.get("change_high"))
        return value(own.get("change"), show.points(own.get("change")), note=note)

    def detail(key: str, heading: str, text: Callable[[float | None], str], explain: str = "") -> ColumnOf[Row]:
        return measures(heading, lambda r: details[id(r)].get(key), text, explain=explain)

    def queries(r: Row) -> Cell:
        every = details[id(r)].get("n_all_queries", r["n_queries"])
        sampled = f" of {show.number(every, 0)}" if every > r["n_queries"] else ""
        return Cell(text=show.number(r["n_queries"], 0) + sampled, sort=str(r["n_queries"]))

    fitted = {_label(r): on for r in rows if (on := details[id(r)].get("fitted_on"))}
    notes = [f"A sample of the queries: {text}." for text in {queries(r).text: None for r in rows} if " of " in text]
    notes += [f"Fitted on {next(iter(fitted.values()))}: {', '.join(fitted)}."] if fitted else []
    return pivot(
        anchor("ablation", analysis, corpus, protocol, metric),
        f"{title} · {corpus} · {named(protocol)} · {metric_title(metric)}",
        sorted(rows, key=lambda r: names.index(r["encoder"])),
        texts("Encoder", lambda r: r["encoder"]),
        texts("setting", _label),
        numbers("queries", queries),
        numbers(metric_title(metric), slice_cell),
        *([numbers("change", change)] if any(d.get("change") is not None for d in details.values()) else []),
        *(
            detail(key, heading, show.percent, "Percent")
            for key, heading in SHARES.items()
            if any(d.get(key) for d in details.values())
        ),
        *(
            detail(key, heading, _count if key == "depth" else show.significant)
            for key, heading in COSTS.items()
            if key != "x" and any(key in d for d in details.values())
        ),
        note=" ".join(notes),
        sortable=True,
        dense=True,
    )


def _curve(
    table: Table, analysis: str, protocol: str, metric: str, rows: Sequence[Row], everyone: list[str]
) -> Chart | None:
    """The value over the first cost that an encoder has at two settings or more."""
    if analysis not in CURVES:
        return None
    scale = 100.0 if is_fraction(metric) else 1.0
    for key, cost in COSTS.items():
        points = [
            charts.interval_point(
                r,
                scale=scale,
                text=f"{slice_cell(r).text} ({slice_cell(r).note})",
                setting=_label(r),
                cost=float(detail_of(r)[key]),
            )
            for r in rows
            if r["value"] is not None and isinstance(detail_of(r).get(key), int | float)
        ]
        if len({(p["encoder"], p["cost"]) for p in points}) > len({p["encoder"] for p in points}):
            unit = metric_title(metric) + ", percent" * is_fraction(metric)
            return _chart(table, f"{unit}, {named(protocol)}", points, cost, everyone)
    return None


def _chart(table: Table, y_title: str, points: list[dict[str, Any]], cost: str, everyone: list[str]) -> Chart:
    names = sorted({p["encoder"] for p in points})
    costs = [p["cost"] for p in points]
    logarithmic = min(costs) > 0 and max(costs) / min(costs) > LOGARITHMIC
    fit = {"nice": False, "padding": 20}
    scale = alt.Scale(type="log", **fit) if logarithmic else alt.Scale(zero=False, **fit)
    base = alt.Chart(alt.Data(values=points)).encode(
        x=alt.X("cost:Q", title=f"{cost} (logarithmic)" if logarithmic else cost, scale=scale),
        color=charts.colour(names, everyone, legend=charts.legend()),
        tooltip=charts.tooltips("encoder", "setting", "text"),
    )
    y = alt.Y("ci_low:Q", title=y_title, scale=alt.Scale(zero=False))
    shape = charts.shape(names, everyone, legend=charts.legend())
    picture = alt.layer(
        base.mark_line(strokeWidth=1.5, opacity=0.7).encode(y="value:Q"),
        *charts.intervals(base, y, size=60, opacity=0.6, shape=shape),
    ).properties(width=charts.WIDTH, height=260)
    by_point = [f"{p['encoder']}, {p['setting']}: {p['text']} at {show.significant(p['cost'])}" for p in points]
    return charts.finish(
        picture,
        name=f"{table.id}-curve",
        title=table.caption,
        alt_text=f"{y_title} over {cost}. {'; '.join(by_point)}.",
        data=dataclasses.replace(table, note=""),
        note=table.note,
    )
