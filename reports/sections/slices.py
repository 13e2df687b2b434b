"""Where the figures come from: parts of the queries, and the kinds of errors.

A slice is one row of ``schema.SLICES``: an analysis, a feature, and a level of it. Three levels named ``with``,
``without`` and ``difference`` make a contrast; any other levels make a table of parts.
"""

from __future__ import annotations

import altair as alt

from reports import format as show
from reports.elements import charts
from reports.elements.cells import heading_groups, metric_title
from reports.elements.page import Block, Cell, Chart, Column, Section, Table
from reports.rows.report_data import Evidence, Row
from reports.sections import parts
from reports.sections.compositional import pair_protocols
from reports.sections.leaderboard import headlines
from reports.sections.parts import CONTRAST, TITLES, order, slice_cell


def section(evidence: Evidence) -> Section | None:
    """Contrasts, then the other slices that are not ablations."""
    blocks: list[Block] = []
    for corpus in evidence.corpus_names():
        own = [r for r in evidence.slices if r["corpus"] == corpus and r["protocol"] in shown(evidence, corpus)]
        contrasts = {(r["analysis"], r["protocol"], r["metric"]) for r in own if r["level_name"] == "difference"}
        for analysis, protocol, metric in sorted(contrasts):
            key = (analysis, protocol, metric)
            rows = [r for r in own if (r["analysis"], r["protocol"], r["metric"]) == key]
            blocks += _contrast_chart(evidence, corpus, analysis, protocol, metric, rows)
        blocks += parts.blocks(evidence, corpus, [r for r in own if r["level_name"] not in CONTRAST])
    if not blocks:
        return None
    return Section(
        id="slices",
        title="Where they fail",
        lead="The same figure over parts of the queries. A difference is with the feature minus without it, in points, "
        "with its interval; its p is adjusted over all features of an encoder.",
        blocks=tuple(blocks),
    )


def shown(evidence: Evidence, corpus: str) -> set[str]:
    """The protocols whose slices are shown: the headlines, or, of a compositional corpus, its own questions."""
    direct = {p for p in evidence.protocols(corpus) if p == "winoground"} | set(pair_protocols(evidence, corpus))
    return direct or set(headlines(evidence, corpus))


def _contrast_chart(
    evidence: Evidence, corpus: str, analysis: str, protocol: str, metric: str, rows: list[Row]
) -> list[Chart]:
    """Differences as points with intervals, one line per feature."""
    by = {(r["encoder"], r["feature"], r["level_name"]): r for r in rows if r["level_name"] in CONTRAST}
    known = [r for r in by.values() if r["level_name"] == "difference" and r["value"] is not None]
    if not known:
        return []
    names = order(evidence, corpus, protocol, metric, known)
    features = sorted({r["feature"] for r in by.values()}, key=lambda f: (min(
        (r["value"] for r in known if r["feature"] == f), default=0.0), f))  # fmt: skip
    points = [
        {
            "encoder": r["encoder"],
            "feature": r["feature"],
            "value": 100 * r["value"],
            "ci_low": 100 * (r["value"] if r["ci_low"] is None else r["ci_low"]),
            "ci_high": 100 * (r["value"] if r["ci_high"] is None else r["ci_high"]),
            "text": f"{show.points(r['value'])} points ({show.percent_range(r['ci_low'], r['ci_high'])})",
        }
        for r in sorted(known, key=lambda r: (r["encoder"], r["feature"]))
    ]
    everyone = evidence.encoder_names()
    base = alt.Chart(charts.values(points)).encode(
        y=alt.Y("feature:N", sort=features, title=None),
        yOffset=alt.YOffset("encoder:N", sort=names),
        color=alt.Color("encoder:N", scale=charts.colours(names, everyone), legend=charts.legend(), sort=names),
        tooltip=[alt.Tooltip(f"{f}:N") for f in ("encoder", "feature", "text")],
    )
    zero = alt.Chart(charts.values([{"zero": 0}])).mark_rule(opacity=0.5).encode(x="zero:Q")
    x = alt.X(
        "ci_low:Q", title=f"{metric_title(metric)}, {protocol}: with minus without, points", scale=alt.Scale(zero=True)
    )
    picture = alt.layer(
        zero,
        base.mark_rule(strokeWidth=2, opacity=0.75).encode(x=x, x2="ci_high:Q"),
        base.mark_point(filled=True, size=55, opacity=1).encode(
            x="value:Q",
            shape=alt.Shape("encoder:N", scale=charts.shapes(names, everyone), legend=charts.legend(), sort=names),
        ),
    ).properties(width=charts.WIDTH, height=max(120, len(features) * (14 + 9 * len(names))))
    title = f"{TITLES.get(analysis, analysis)} · {corpus}"
    name = parts.anchor(analysis, corpus, protocol, metric)
    told = [f"{p['feature']}, {p['encoder']}: {p['text']}" for p in points if p["ci_low"] > 0 or p["ci_high"] < 0]
    chart = charts.finish(
        picture,
        name=name,
        title=title,
        alt_text=f"Differences of {metric} under {protocol} between queries with and without each of "
        f"{show.count(len(features), 'feature')}, for {show.count(len(names), 'encoder')}. "
        + (f"Intervals without zero: {'; '.join(told)}." if told else "Every interval includes zero."),
        data=_contrast_table(f"{name}-data", title, names, features, by),
        note="Left of the line: harder with it.",
    )
    return [chart]


def _contrast_table(
    id_: str, title: str, names: list[str], features: list[str], by: dict[tuple[str, str, str], Row]
) -> Table:
    columns = (
        Column(heading="Feature"),
        Column(heading="queries", numeric=True),
        *(Column(heading=level, group=name, numeric=True) for name in names for level in CONTRAST),
    )

    def size(feature: str) -> Cell:
        row = next((by[name, feature, "with"] for name in names if (name, feature, "with") in by), None)
        return Cell(text=show.number(row["n_queries"], 0) if row is not None else show.ABSENT)

    return Table(
        id=id_,
        caption=f"{title} · percent, with interval; differences in points",
        columns=columns,
        rows=tuple(
            (
                Cell(text=feature),
                size(feature),
                *(slice_cell(by.get((name, feature, level))) for name in names for level in CONTRAST),
            )
            for feature in features
        ),
        groups=heading_groups(columns),
        dense=True,
    )
