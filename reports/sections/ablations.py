"""What it would cost to change something: precision, truncation, re-ranking, indexes; from stored embeddings.

An ablation is a slice whose ``detail`` names its cost (``bytes_per_item``, ``seconds``, ``queries_per_second``,
``n`` or the setting itself as ``x``). What has a scale is drawn as a curve over it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import altair as alt

from reports import format as show
from reports.elements import charts
from reports.elements.cells import UNITS, metric_title
from reports.elements.page import Block, Cell, Chart, Column, Section, Table
from reports.rows.report_data import Evidence, Row
from reports.sections.gate import ANALYSIS as REFERENCE
from reports.sections.leaderboard import headlines, retrieval_corpora
from reports.sections.parts import TITLES as SLICES
from reports.sections.parts import anchor, detail_of, order, slice_cell

TITLES = {
    "precision": "Precision of the stored vectors",
    "normalisation": "Normalisation",
    "truncation": "Truncated vectors (Matryoshka)",
    "pca": "Projection onto principal components",
    "pooling": "Pooled multi-vectors",
    "quantisation": "Quantised multi-vectors",
    "forward precision": "Precision of the forward pass",
    "hardware": "Other hardware",
    "two-stage": "Retrieve with one, re-rank with another",
    "fusion": "Fused scores",
    "ann": "Approximate search",
    "temperature": "Temperature and calibration",
    "threshold": "Answering only above a threshold",
}
COSTS = {
    "bytes_per_item": "bytes per item",
    "n": "items re-ranked",
    "seconds_per_query": "seconds per query",
    "pairs_per_query": "pairs scored per query",
    "queries_per_second": "queries per second",
    "p95_seconds": "95th percentile of a batch, seconds",
    "seconds": "seconds for all queries",
    "x": "setting",
}
SHARES = {"tie_share": "tied queries", "recall": "recall of the exact list"}
CURVES = frozenset({"truncation", "pca", "pooling", "two-stage", "ann", "temperature", "threshold"})
COMBINED = frozenset({"two-stage", "fusion", "ann"})  # shown by R@1; the other metrics folded
LOGARITHMIC = 20.0  # times that the largest cost must exceed the smallest


def section(evidence: Evidence) -> Section | None:
    """A curve for what has a scale, a table for what has not; per corpus, protocol and ablation."""
    blocks: list[Block] = []
    for corpus in retrieval_corpora(evidence):
        own = [r for r in evidence.slices if r["corpus"] == corpus and r["protocol"] in headlines(evidence, corpus)[:1]]
        own = [r for r in own if r["analysis"] not in SLICES and r["analysis"] != REFERENCE]
        places = {name: place for place, name in enumerate(TITLES)}
        groups = sorted(
            {(r["protocol"], r["analysis"], r["metric"]) for r in own},
            key=lambda g: (places.get(g[1], len(places)), g[1], g[0].startswith("i2t"), g),
        )
        for protocol, analysis, metric in groups:
            rows = [r for r in own if (r["protocol"], r["analysis"], r["metric"]) == (protocol, analysis, metric)]
            table = _table(evidence, corpus, analysis, protocol, metric, rows)
            if analysis in COMBINED and metric != "R@1":
                blocks.append(dataclasses.replace(table, folded=table.caption))
            else:
                blocks.append(_curve(table, analysis, protocol, metric, rows, evidence.encoder_names()) or table)
    if not blocks:
        return None
    return Section(
        id="ablations",
        title="What a change would cost",
        lead="Computed from the stored embeddings; nothing was encoded again. A change is against the vectors as they "
        "are stored, query by query, in points.",
        blocks=tuple(blocks),
    )


def title_of(analysis: str) -> str:
    """An ablation's name for people; its own name if it is new."""
    return TITLES.get(analysis, analysis.replace("-", " ").capitalize())


def _label(row: Row) -> str:
    return row["level_name"] if row["feature"] in ("", row["level_name"]) else f"{row['feature']} {row['level_name']}"


def _table(evidence: Evidence, corpus: str, analysis: str, protocol: str, metric: str, rows: Sequence[Row]) -> Table:
    details = {id(r): detail_of(r) for r in rows}
    costs = [key for key in COSTS if key != "x" and any(key in d for d in details.values())]
    changed = any(d.get("change") is not None for d in details.values())
    shares = [key for key in SHARES if any(d.get(key) for d in details.values())]
    names = order(evidence, corpus, protocol, metric, rows)
    return Table(
        id=anchor("ablation", analysis, corpus, protocol, metric),
        caption=f"{title_of(analysis)} · {corpus} · {protocol} · {metric_title(metric)}",
        columns=(
            Column(heading="Encoder"),
            Column(heading="setting"),
            Column(heading=metric_title(metric), numeric=True),
            *((Column(heading="change", numeric=True),) if changed else ()),
            *(Column(heading=SHARES[key], numeric=True, explain="Percent") for key in shares),
            *(Column(heading=COSTS[key], numeric=True) for key in costs),
        ),
        rows=tuple(
            (
                Cell(text=r["encoder"]),
                Cell(text=_label(r)),
                slice_cell(r),
                *((_change(details[id(r)]),) if changed else ()),
                *(_share(details[id(r)].get(key)) for key in shares),
                *(_cost(details[id(r)].get(key)) for key in costs),
            )
            for r in sorted(rows, key=lambda r: names.index(r["encoder"]))
        ),
        sortable=True,
        dense=True,
    )


def _change(detail: dict[str, Any]) -> Cell:
    value = detail.get("change")
    return Cell(
        text=show.points(value),
        note=show.percent_range(detail.get("change_low"), detail.get("change_high")),
        sort=show.exact(value),
    )


def _share(value: float | None) -> Cell:
    return Cell(text=show.percent(value), sort=show.exact(value))


def _cost(value: float | None) -> Cell:
    return Cell(text=show.significant(value), sort=show.exact(value))


def _curve(
    table: Table, analysis: str, protocol: str, metric: str, rows: Sequence[Row], everyone: list[str]
) -> Chart | None:
    """The value over the first cost that at least two levels of an encoder have."""
    if analysis not in CURVES:
        return None
    scale = 1.0 if metric in UNITS else 100.0
    for key, cost in COSTS.items():
        points = [
            {
                "encoder": r["encoder"],
                "setting": _label(r),
                "cost": float(detail_of(r)[key]),
                "value": scale * r["value"],
                "ci_low": scale * (r["value"] if r["ci_low"] is None else r["ci_low"]),
                "ci_high": scale * (r["value"] if r["ci_high"] is None else r["ci_high"]),
                "text": f"{slice_cell(r).text} ({slice_cell(r).note})",
            }
            for r in rows
            if r["value"] is not None and isinstance(detail_of(r).get(key), int | float)
        ]
        if len({(p["encoder"], p["cost"]) for p in points}) > len({p["encoder"] for p in points}):
            unit = metric_title(metric) if metric in UNITS else f"{metric_title(metric)}, percent"
            return _chart(table, f"{unit}, {protocol}", points, cost, everyone)
    return None


def _chart(table: Table, value: str, points: list[dict[str, Any]], cost: str, everyone: list[str]) -> Chart:
    names = sorted({p["encoder"] for p in points})
    costs = [p["cost"] for p in points]
    wide = min(costs) > 0 and max(costs) / min(costs) > LOGARITHMIC
    base = alt.Chart(charts.values(points)).encode(
        x=alt.X(
            "cost:Q",
            title=f"{cost} (logarithmic)" if wide else cost,
            scale=alt.Scale(type="log", nice=False, padding=20)
            if wide
            else alt.Scale(zero=False, nice=False, padding=20),
        ),
        color=alt.Color("encoder:N", scale=charts.colours(names, everyone), legend=charts.legend()),
        tooltip=[alt.Tooltip(f"{f}:N") for f in ("encoder", "setting", "text")],
    )
    y = alt.Y("ci_low:Q", title=value, scale=alt.Scale(zero=False))
    picture = alt.layer(
        base.mark_line(strokeWidth=1.5, opacity=0.7).encode(y="value:Q"),
        base.mark_rule(strokeWidth=2, opacity=0.6).encode(y=y, y2="ci_high:Q"),
        base.mark_point(filled=True, size=60, opacity=1).encode(
            y="value:Q", shape=alt.Shape("encoder:N", scale=charts.shapes(names, everyone), legend=charts.legend())
        ),
    ).properties(width=charts.WIDTH, height=260)
    told = [f"{p['encoder']}, {p['setting']}: {p['text']} at {show.significant(p['cost'])}" for p in points]
    return charts.finish(
        picture,
        name=f"{table.id}-curve",
        title=table.caption,
        alt_text=f"{value} over {cost}. {'; '.join(told)}.",
        data=table,
    )
