"""Where the figures come from: parts of the queries, and the kinds of errors.

A slice is one row of ``schema.SLICES``: an analysis, a feature, and a level of it. Three levels named ``with``,
``without`` and ``difference`` make a contrast; any other levels make a table of parts.
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from reports import charts
from reports import format as show
from reports.cells import heading_groups, metric_title
from reports.evidence import Evidence, Row
from reports.page import Block, Cell, Chart, Column, Mark, Section, Table

CONTRAST = ("with", "without", "difference")
TITLES = {
    "complexity": "What the caption asks for",
    "category": "What the picture shows",
    "supercategory": "What the picture shows",
    "category-inferred": "What the caption names (inferred from words)",
    "length": "Length of the caption",
    "ordinal": "Position of the caption",
    "errors": "Kinds of errors",
    "tags": "Winoground by tag",
    "hubs": "Hubs",
    "disagreement": "Where encoders disagree",
    "baseline": "Caption-only baseline",
}


def contrasts(evidence: Evidence, corpus: str) -> list[tuple[str, str, str]]:
    """Analysis, protocol and metric of every contrast of a corpus."""
    return sorted(
        {
            (r["analysis"], r["protocol"], r["metric"])
            for r in evidence.slices
            if r["corpus"] == corpus and r["level_name"] == "difference"
        }
    )


def section(evidence: Evidence) -> Section | None:
    """Contrasts, then the other slices that are not ablations."""
    blocks: list[Block] = []
    for corpus in evidence.corpus_names():
        for analysis, protocol, metric in contrasts(evidence, corpus):
            rows = _rows(evidence, corpus, analysis, protocol, metric)
            chart = _contrast_chart(evidence, corpus, analysis, protocol, metric, rows)
            if chart is not None:
                blocks.append(chart)
        for analysis in sorted(TITLES):
            blocks += _parts(evidence, corpus, analysis)
    if not blocks:
        return None
    return Section(
        id="slices",
        title="Where they fail",
        lead="The same figure over parts of the queries. A difference is with the feature minus without it, in points, "
        "with its interval; its p is adjusted over all features of an encoder.",
        blocks=tuple(blocks),
    )


def _rows(evidence: Evidence, corpus: str, analysis: str, protocol: str, metric: str) -> list[Row]:
    return [
        r
        for r in evidence.slices
        if (r["corpus"], r["analysis"], r["protocol"], r["metric"]) == (corpus, analysis, protocol, metric)
    ]


def _order(evidence: Evidence, corpus: str, protocol: str, metric: str, rows: Sequence[Row]) -> list[str]:
    """Encoders in the order of the leaderboard, then those that are not on it."""
    have = {r["encoder"] for r in rows}
    ranked = [r["encoder"] for r in evidence.ranked(corpus, protocol, metric) if r["encoder"] in have]
    return ranked + sorted(have - set(ranked))


def _contrast_chart(
    evidence: Evidence, corpus: str, analysis: str, protocol: str, metric: str, rows: list[Row]
) -> Chart | None:
    """Differences as points with intervals, one line per feature."""
    by = {(r["encoder"], r["feature"], r["level_name"]): r for r in rows if r["level_name"] in CONTRAST}
    known = [r for r in by.values() if r["level_name"] == "difference" and r["value"] is not None]
    if not known:
        return None
    names = _order(evidence, corpus, protocol, metric, known)
    features = sorted({r["feature"] for r in by.values()}, key=lambda f: (min(
        (r["value"] for r in known if r["feature"] == f), default=0.0), f))  # fmt: skip
    points = [
        {
            "encoder": r["encoder"],
            "feature": r["feature"],
            "value": 100 * r["value"],
            "low": 100 * (r["value"] if r["low"] is None else r["low"]),
            "high": 100 * (r["value"] if r["high"] is None else r["high"]),
            "text": f"{show.points(r['value'])} points ({show.percent_range(r['low'], r['high'])})",
        }
        for r in sorted(known, key=lambda r: (r["encoder"], r["feature"]))
    ]
    base = alt.Chart(charts.values(points)).encode(
        y=alt.Y("feature:N", sort=features, title=None),
        yOffset=alt.YOffset("encoder:N", sort=names),
        color=alt.Color("encoder:N", scale=charts.colours(names), legend=charts.legend(), sort=names),
        tooltip=[alt.Tooltip(f"{f}:N") for f in ("encoder", "feature", "text")],
    )
    zero = alt.Chart(charts.values([{"zero": 0}])).mark_rule(opacity=0.5).encode(x="zero:Q")
    x = alt.X(
        "low:Q", title=f"{metric_title(metric)}, {protocol}: with minus without, points", scale=alt.Scale(zero=True)
    )
    picture = alt.layer(
        zero,
        base.mark_rule(strokeWidth=2, opacity=0.75).encode(x=x, x2="high:Q"),
        base.mark_point(filled=True, size=55, opacity=1).encode(
            x="value:Q", shape=alt.Shape("encoder:N", scale=charts.shapes(names), legend=charts.legend(), sort=names)
        ),
    ).properties(width=charts.WIDTH, height=max(120, len(features) * (14 + 9 * len(names))))
    title = f"{TITLES.get(analysis, analysis)} · {corpus}"
    name = f"{analysis}-{corpus}-{protocol}-{metric}".replace("/", "-").replace("@", "")
    told = [f"{p['feature']}, {p['encoder']}: {p['text']}" for p in points if p["low"] > 0 or p["high"] < 0]
    return charts.finish(
        picture,
        id=name,
        title=title,
        alt_text=f"Differences of {metric} under {protocol} between queries with and without each of "
        f"{show.count(len(features), 'feature')}, for {show.count(len(names), 'encoder')}. "
        + (f"Intervals without zero: {'; '.join(told)}." if told else "Every interval includes zero."),
        data=_contrast_table(f"{name}-data", title, names, features, by),
        note="Left of the line: harder with it.",
    )


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


def slice_cell(row: Row | None) -> Cell:
    """One slice as a cell: its value, or the reason why there is none."""
    if row is None or row["value"] is None:
        return Cell(text=show.ABSENT, mark="muted", title=(row or {}).get("reason") or "not computed")
    difference = row["level_name"] == "difference"
    mark: Mark = ""
    stars = ""
    if difference and row["p_adjusted"] is not None:
        mark = "muted" if row["p_adjusted"] >= 0.05 else ""
        stars = f" {show.stars(row['p_adjusted'])}"
    return Cell(
        text=(show.points(row["value"]) + stars) if difference else show.percent(row["value"]),
        note=show.percent_range(row["low"], row["high"]),
        title=f"{show.count(row['n_queries'], 'query', 'queries')} in {show.count(row['n_clusters'], 'cluster')}",
        sort=show.exact(row["value"]),
        mark=mark,
    )


def _parts(evidence: Evidence, corpus: str, analysis: str) -> list[Table]:
    """Tables of the slices that are no contrast, one per protocol and metric."""
    own = [r for r in evidence.slices if r["corpus"] == corpus and r["analysis"] == analysis]
    own = [r for r in own if r["level_name"] not in CONTRAST]
    tables = []
    for protocol, metric in sorted({(r["protocol"], r["metric"]) for r in own}):
        rows = [r for r in own if (r["protocol"], r["metric"]) == (protocol, metric)]
        names = _order(evidence, corpus, protocol, metric, rows)
        by = {(r["encoder"], r["feature"], r["level_name"]): r for r in rows}
        parts = sorted({(r["feature"], r["level_name"]) for r in rows}, key=lambda p: (p[0], _natural(p[1])))
        columns = (
            Column(heading=analysis),
            Column(heading="queries", numeric=True),
            *(Column(heading=name, numeric=True) for name in names),
        )
        tables.append(
            Table(
                id=f"{analysis}-{corpus}-{protocol}-{metric}-parts".replace("/", "-").replace("@", ""),
                caption=f"{TITLES[analysis]} · {corpus} · {protocol} · {metric_title(metric)}, percent",
                columns=columns,
                rows=tuple(
                    (
                        Cell(text=feature if level in ("", feature) else f"{feature} {level}"),
                        Cell(text=show.number(max(by[k]["n_queries"] for k in by if k[1:] == (feature, level)), 0)),
                        *(slice_cell(by.get((name, feature, level))) for name in names),
                    )
                    for feature, level in parts
                ),
            )
        )
    return tables


def _natural(text: str) -> tuple[float, str]:
    """Sort key that puts ``5-9`` before ``10-14``."""
    digits = "".join(c if c.isdigit() else " " for c in text).split()
    return (float(digits[0]) if digits else float("inf"), text)
