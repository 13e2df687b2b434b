"""Slices: contrasts of queries with and without a feature, then tables of parts.

A slice is one row of ``schema.SLICES``: an analysis, a feature, and a level of it. Three levels named ``with``,
``without`` and ``difference`` make a contrast; any other levels make a table of parts.
"""

from __future__ import annotations

from functools import partial
from operator import itemgetter

import altair as alt

from capim.reports import format as show
from capim.reports.elements import charts
from capim.reports.elements.page import Block, Cell, Chart, Section, Table
from capim.reports.elements.tables import (
    anchor,
    described,
    difference_text,
    is_fraction,
    metric_title,
    numbers,
    pivot,
    range_text,
    texts,
)
from capim.reports.rows.names import named, plain_title
from capim.reports.rows.report_data import LEADING, WITHOUT, ReportData, Row, grouped, is_own
from capim.reports.sections import parts
from capim.reports.sections.compositional import pair_protocols
from capim.reports.sections.leaderboard import headlines
from capim.reports.sections.parts import CONTRAST, order, slice_cell
from capim.tasks.analyses.table import headings


def section(data: ReportData) -> Section:
    """Contrasts, then the other slices that are not ablations."""
    blocks: list[Block] = []
    for corpus in data.corpus_names():
        protocols = shown(data, corpus)
        rows = [r for r in data.slices if r["corpus"] == corpus and r["protocol"] in protocols]
        contrasted = (r for r in rows if r["level_name"] in CONTRAST)
        contrasts = grouped(contrasted, itemgetter("analysis", "protocol", "metric"))
        for analysis, protocol, metric in sorted(contrasts):
            if metric != WITHOUT:
                kept = contrasts.get((analysis, protocol, WITHOUT), []) if metric == LEADING else []
                own = contrasts[analysis, protocol, metric]
                blocks += _contrast_chart(data, corpus, analysis, protocol, metric, own, kept)
        blocks += parts.blocks(data, corpus, [r for r in rows if r["level_name"] not in CONTRAST])
    return Section(
        id="slices",
        title="Slices",
        lead="The same metric over parts of the queries. A difference is the value with the feature minus the value "
        "without it, in percentage points, with its interval; its p is adjusted over all features of an encoder. "
        "Beside R@1 stands the same without ambiguous misses, explained under failures.",
        blocks=tuple(blocks),
    )


def shown(data: ReportData, corpus: str) -> set[str]:
    """The protocols with slices in the report: the compositional ones if a corpus has any, else the headlines."""
    direct = {p for p in data.protocols(corpus) if p == "winoground"} | set(pair_protocols(data, corpus))
    return direct or set(headlines(data, corpus))


def _contrast_chart(
    data: ReportData, corpus: str, analysis: str, protocol: str, metric: str, rows: list[Row], kept: list[Row]
) -> list[Chart]:
    """Differences as points with intervals, one line per feature; ``kept`` are those without ambiguous misses."""
    differences = [r for r in rows if r["level_name"] == "difference" and r["value"] is not None]
    if not differences:
        return []
    names = order(data, corpus, protocol, metric, differences)
    lower_is_better = any(r["lower_is_better"] for r in data.ranked(corpus, protocol, metric))

    def lowest(feature: str) -> tuple[float, str]:
        return min((r["value"] for r in differences if r["feature"] == feature), default=0.0), feature

    features = sorted({r["feature"] for r in rows}, key=lowest)
    points_ = " points" if is_fraction(metric) else ""
    points = [
        charts.interval_point(
            r,
            scale=100.0 if is_fraction(metric) else 1.0,
            unit="percentage points",
            text=f"{difference_text(metric, r['value'])}{points_} ({range_text(metric, r['ci_low'], r['ci_high'])})",
            feature=r["feature"],
        )
        for r in sorted(differences, key=lambda r: (r["encoder"], r["feature"]))
    ]
    everyone, legend = data.encoder_names(), charts.legend()
    base = alt.Chart(alt.Data(values=points)).encode(
        y=alt.Y("feature:N", sort=features, title=None),
        yOffset=alt.YOffset("encoder:N", sort=names),
        color=charts.colour(names, everyone, legend=legend, sort=names),
        tooltip=charts.tooltips("encoder", "feature", "text"),
    )
    x = alt.X(
        "ci_low:Q",
        title=f"{metric_title(metric)}, {plain_title(protocol)}: with minus without{',' * bool(points_)}{points_}",
        scale=alt.Scale(zero=True),
    )
    picture = alt.layer(
        alt.Chart(alt.Data(values=[{"zero": 0}])).mark_rule(opacity=0.5).encode(x="zero:Q"),
        *charts.intervals(base, x, size=55, shape=charts.shape(names, everyone, legend=legend, sort=names)),
    ).properties(width=charts.WIDTH, height=max(120, len(features) * (14 + 9 * len(names))))
    title = f"{headings('slices').get(analysis, analysis)} · {corpus} · {named(protocol)}" + (
        f" · {described(data, metric)}" if is_own(metric) else ""
    )
    name = anchor(analysis, corpus, protocol, metric)
    clear = [f"{p['feature']}, {p['encoder']}: {p['text']}" for p in points if p["ci_low"] > 0 or p["ci_high"] < 0]
    chart = charts.finish(
        picture,
        name=name,
        title=title,
        alt_text=f"Differences of {metric}, {plain_title(protocol)}, between queries with and without each of "
        f"{show.count(len(features), 'feature')}, for {show.count(len(names), 'encoder')}. "
        + (f"Intervals without zero: {'; '.join(clear)}." if clear else "Every interval includes zero."),
        data=_contrast_table(f"{name}-data", title, names, features, rows, kept, percent=is_fraction(metric)),
        note=f"Left of the line: {'lower' if is_own(metric) or lower_is_better else 'harder'} with the feature.",
    )
    return [chart]


def _contrast_table(
    id_: str, title: str, names: list[str], features: list[str], rows: list[Row], kept: list[Row], *, percent: bool
) -> Table:
    by_key = {(r["encoder"], r["feature"], r["level_name"]): r for r in rows}
    by_key |= {(r["encoder"], r["feature"], WITHOUT): r for r in kept if r["level_name"] == "difference"}
    levels = {level: level for level in CONTRAST} | ({WITHOUT: "difference without ambiguous misses"} if kept else {})

    def queries(feature: str) -> str:
        counts = [by_key[name, feature, "with"]["n_queries"] for name in names if (name, feature, "with") in by_key]
        ends = sorted({min(counts), max(counts)}) if counts else []  # encoders truncate different captions
        return "–".join(show.number(count, 0) for count in ends) or show.ABSENT

    def cell(feature: str, name: str, level: str) -> Cell:
        return slice_cell(by_key.get((name, feature, level)))

    return pivot(
        id_,
        f"{title} · percent, with interval; differences in points" if percent else f"{title} · with interval",
        features,
        texts("Feature", str),
        numbers("queries with it", queries),
        *(
            numbers(heading, partial(cell, name=name, level=level), group=name)
            for name in names
            for level, heading in levels.items()
        ),
        dense=True,
    )
