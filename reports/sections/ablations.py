"""What it would cost to change something: precision, truncation, re-ranking, indexes; from stored embeddings.

An ablation is a slice whose ``detail`` names its cost (``bytes_per_item``, ``seconds``, ``queries_per_second`` or
the setting itself as ``x``); with a cost on two levels or more it is drawn as a curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from reports import charts
from reports import format as show
from reports.cells import metric_title
from reports.evidence import Evidence, Row
from reports.page import Block, Cell, Chart, Column, Section, Table
from reports.sections.gate import ANALYSIS as REFERENCE
from reports.sections.parts import TITLES as SLICES
from reports.sections.parts import anchor, detail_of, slice_cell

TITLES = {
    "precision": "Precision of the stored vectors",
    "normalisation": "Normalisation",
    "temperature": "Temperature and calibration",
    "threshold": "Similarity threshold",
    "truncation": "Truncated vectors (Matryoshka)",
    "pca": "Projection onto principal components",
    "pooling": "Pooled multi-vectors",
    "quantisation": "Quantised multi-vectors",
    "two-stage": "Retrieve with one, re-rank with another",
    "fusion": "Fused scores",
    "ann": "Approximate search",
}
COSTS = {
    "bytes_per_item": "bytes per item",
    "seconds": "seconds for all queries",
    "queries_per_second": "queries per second",
    "x": "setting",
}


def section(evidence: Evidence) -> Section | None:
    """A curve where costs are known, and a table, per ablation."""
    blocks: list[Block] = []
    groups = sorted(
        {
            (r["corpus"], r["analysis"], r["protocol"], r["metric"])
            for r in evidence.slices
            if r["analysis"] not in SLICES and r["analysis"] != REFERENCE
        }
    )
    for corpus, analysis, protocol, metric in groups:
        rows = [
            r
            for r in evidence.slices
            if (r["corpus"], r["analysis"], r["protocol"], r["metric"]) == (corpus, analysis, protocol, metric)
        ]
        table = _table(corpus, analysis, protocol, metric, rows)
        chart = _curve(corpus, analysis, protocol, metric, rows, table)
        blocks.append(chart if chart is not None else table)
    if not blocks:
        return None
    return Section(
        id="ablations",
        title="What a change would cost",
        lead="Computed from the stored embeddings; nothing was encoded again.",
        blocks=tuple(blocks),
    )


def title_of(analysis: str) -> str:
    """An ablation's name for people; its own name if it is new."""
    return TITLES.get(analysis, analysis.replace("-", " ").capitalize())


def _label(row: Row) -> str:
    return row["level_name"] if row["feature"] in ("", row["level_name"]) else f"{row['feature']} {row['level_name']}"


def _table(corpus: str, analysis: str, protocol: str, metric: str, rows: Sequence[Row]) -> Table:
    costs = [key for key in COSTS if any(key in detail_of(r) for r in rows) and key != "x"]
    name = anchor("ablation", analysis, corpus, protocol, metric)
    return Table(
        id=name,
        caption=f"{title_of(analysis)} · {corpus} · {protocol} · {metric_title(metric)}",
        columns=(
            Column(heading="Encoder"),
            Column(heading="setting"),
            Column(heading=metric_title(metric), numeric=True),
            *(Column(heading=COSTS[key], numeric=True) for key in costs),
        ),
        rows=tuple(
            (
                Cell(text=r["encoder"]),
                Cell(text=_label(r)),
                slice_cell(r),
                *(
                    Cell(text=show.significant(detail_of(r).get(key)), sort=show.exact(detail_of(r).get(key)))
                    for key in costs
                ),
            )
            for r in rows
        ),
        sortable=True,
        dense=True,
    )


def _curve(corpus: str, analysis: str, protocol: str, metric: str, rows: Sequence[Row], table: Table) -> Chart | None:
    """The value over the first cost that at least two levels of an encoder have."""
    for key, cost in COSTS.items():
        points = [
            {
                "encoder": r["encoder"],
                "setting": _label(r),
                "cost": float(detail_of(r)[key]),
                "value": 100 * r["value"],
                "low": 100 * (r["value"] if r["low"] is None else r["low"]),
                "high": 100 * (r["value"] if r["high"] is None else r["high"]),
                "text": f"{show.percent(r['value'])} % ({show.percent_range(r['low'], r['high'])})",
            }
            for r in rows
            if r["value"] is not None and isinstance(detail_of(r).get(key), int | float) and detail_of(r)[key] > 0
        ]
        if len({(p["encoder"], p["cost"]) for p in points}) > len({p["encoder"] for p in points}):
            return _chart(corpus, analysis, protocol, metric, points, cost, table)
    return None


def _chart(
    corpus: str, analysis: str, protocol: str, metric: str, points: list[dict[str, Any]], cost: str, table: Table
) -> Chart:
    names = sorted({p["encoder"] for p in points})
    base = alt.Chart(charts.values(points)).encode(
        x=alt.X("cost:Q", title=f"{cost} (logarithmic)", scale=alt.Scale(type="log", nice=False, padding=20)),
        color=alt.Color("encoder:N", scale=charts.colours(names), legend=charts.legend()),
        tooltip=[alt.Tooltip(f"{f}:N") for f in ("encoder", "setting", "text")],
    )
    y = alt.Y("low:Q", title=f"{metric_title(metric)}, {protocol}, percent", scale=alt.Scale(zero=False))
    picture = alt.layer(
        base.mark_line(strokeWidth=1.5, opacity=0.7).encode(y="value:Q"),
        base.mark_rule(strokeWidth=2, opacity=0.6).encode(y=y, y2="high:Q"),
        base.mark_point(filled=True, size=60, opacity=1).encode(
            y="value:Q", shape=alt.Shape("encoder:N", scale=charts.shapes(names), legend=charts.legend())
        ),
    ).properties(width=charts.WIDTH, height=280)
    told = [f"{p['encoder']}, {p['setting']}: {p['text']} at {show.significant(p['cost'])}" for p in points]
    return charts.finish(
        picture,
        name=f"{table.id}-curve",
        title=table.caption,
        alt_text=f"{metric} under {protocol} on {corpus} over {cost}. {'; '.join(told)}.",
        data=table,
    )
