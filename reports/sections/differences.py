"""Differences between encoders: a forest plot per headline figure, and every comparison in full."""

from __future__ import annotations

from typing import Any

import altair as alt

from capim.reports import format as show
from capim.reports.elements import charts
from capim.reports.elements.page import Block, Cell, Chart, Mark, Section, Table
from capim.reports.elements.tables import (
    ColumnOf,
    anchor,
    described,
    difference_cell,
    difference_text,
    margin_words,
    numbers,
    pivot,
    range_text,
    row_words,
    texts,
    value,
    value_text,
)
from capim.reports.rows.report_data import ReportData, Row
from capim.reports.rows.standing import claimed, decision_of, headline_tasks
from capim.tasks.metrics.table import RSUM
from capim.tasks.protocols import Protocol

COLOURS = {
    "better": "#009E73",
    "worse": "#D55E00",
    "equivalent": "#0072B2",
    "undecided": "#808890",
    "not tested": "#808890",
}
ADJUSTMENTS = {"max-t": "step-down max-T", "holm": "Holm", "benjamini-hochberg": "Benjamini–Hochberg"}


def section(data: ReportData) -> Section:
    """One forest plot per corpus and headline figure, those of users' metrics behind, then all pairs."""
    blocks: list[Block] = []
    for corpus in data.corpus_names():
        rows = [r for r in data.comparisons if r["corpus"] == corpus]
        compared = sorted({(r["protocol"], r["metric"]) for r in rows})
        planned = [*((task.protocol, task.metric) for task in headline_tasks(data, corpus)), tuple(RSUM)]
        drawn = [key for key in planned if key in compared] or compared[:1]
        tested = {(r["protocol"], r["metric"]) for r in rows if r["p_adjusted"] is not None}
        drawn += [key for key in _of_users(data, tested) if key not in drawn]
        blocks += [chart for key in drawn if (chart := _forest(data, corpus, *key)) is not None]
        if rows:
            blocks.append(_pairs(data, corpus, rows))
    name = next((r["adjustment"] for r in data.comparisons), "")
    lead = (
        "Every encoder minus the best, on the same queries: sign-flip permutation tests over images, with "
        f"{ADJUSTMENTS.get(name, name)} correction over all pairs of a figure. Drawn are the figures that were "
        "declared beforehand, the headline family. All other comparisons, in the folded tables, are exploratory: a "
        "reason to look closer."
    )
    return Section(
        id="differences",
        title="Differences",
        lead=" ".join([lead, *data.larger_families]),
        blocks=tuple(blocks),
    )


def _of_users(data: ReportData, compared: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Users' metrics under the main protocols and all quadruples, or under their first one."""
    found: list[tuple[str, str]] = []
    for metric in sorted({metric for _, metric in compared if data.metric(metric).is_own}):
        protocols = sorted((Protocol.of(p) for p, of in compared if of == metric), key=lambda of: of.id)
        main = [of for of in protocols if of.is_main or of.is_all_quadruples]
        found += [(of.id, metric) for of in sorted(main, key=lambda of: of.place) or protocols[:1]]
    return found


def _forest(data: ReportData, corpus: str, protocol: str, metric: str) -> Chart | None:
    """The difference of every encoder to the one with the best value, with its interval and the margin."""
    names = [r["encoder"] for r in data.ranked(corpus, protocol, metric) if r["value"] is not None]
    rows = [row for name in names[1:] if (row := data.comparison(corpus, protocol, metric, name, names[0])) is not None]
    rows = [row for row in rows if row["difference"] is not None]
    if not rows:
        return None
    facts, of = data.metric(metric), Protocol.of(protocol)
    units = {"percent": "percentage points", "points": "points of 600"}
    fraction = facts.unit == "percent"

    def point(row: Row) -> dict[str, Any]:
        row, found = claimed(row), decision_of(row)
        interval = range_text(facts, row["ci_low"], row["ci_high"])
        return charts.interval_point(
            {**row, "encoder": row["encoder_a"], "value": row["difference"]},
            fraction=fraction,
            unit="percentage points",
            text=difference_text(facts, row["difference"]) + (f" ({interval})" if interval else ""),
            words=row_words(facts, row),
            state=found.state if found else "not tested",
            minus=row["encoder_b"],
        )

    points = [point(row) for row in rows]
    base = alt.Chart(alt.Data(values=points)).encode(
        y=alt.Y("encoder:N", sort=[point["encoder"] for point in points], title=None),
        color=alt.Color(
            "state:N",
            scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())),
            legend=None,
        ),
        tooltip=charts.tooltips("encoder", "text", "words"),
    )
    x = alt.X(
        "ci_low:Q",
        title=f"{facts.label}, {of.title}: minus {names[0]}, {units.get(facts.unit, 'its own unit')}",
        scale=alt.Scale(zero=True),
    )
    margin = (100.0 if fraction else 1.0) * (rows[0]["margin"] or 0.0)
    zero = alt.Chart(alt.Data(values=[{"low": -margin, "high": margin, "zero": 0}]))
    picture = alt.layer(
        zero.mark_rect(opacity=0.15, color="currentColor").encode(x="low:Q", x2="high:Q"),
        zero.mark_rule(opacity=0.5).encode(x="zero:Q"),
        *charts.intervals(base, x, size=80, opacity=1),
        base.mark_text(align="left", dx=10, dy=-9, fontSize=11).encode(
            x="value:Q", text="words:N", color=alt.value("currentColor")
        ),
    ).properties(width=charts.WIDTH, height=max(70, 38 * len(points)))
    within, name = margin_words(facts, rows[0]["margin"]), anchor("differences", corpus, protocol, metric)
    by_encoder = "; ".join(f"{p['encoder']}: {p['text']}, {p['words']}" for p in points)
    return charts.finish(
        picture,
        name=name,
        title=f"{of.titled} · {described(facts)} · {corpus}: every encoder minus {names[0]}",
        alt_text=f"Differences to {names[0]}. {by_encoder}.",
        data=_pairs(data, corpus, rows, id_=anchor("differences", corpus, protocol, metric, "data")),
        note=f"Shaded: less than {within} apart, the margin of equivalence." if within else "",
        right_margin=60,
    )


def _pairs(data: ReportData, corpus: str, rows: list[Row], *, id_: str = "") -> Table:
    def stored(heading: str, column: str, decimals: int | None = None, explain: str = "") -> ColumnOf[Row]:
        def cell(r: Row) -> Cell:
            text = show.p_value(r[column]) if decimals is None else show.number(r[column], decimals)
            return value(r[column], text, mark="muted" if r[column] is None else "")

        return numbers(heading, cell, explain=explain)

    def detectable(r: Row) -> Cell:
        effect = r["detectable_effect"]
        text = value_text(data.metric(r["metric"]), effect)
        return value(effect, text, mark="muted" if effect is None else "")

    def words(r: Row) -> Cell:
        found = decision_of(r)
        marks: dict[str, Mark] = {"better": "good", "worse": "bad"}
        return Cell(text=row_words(data.metric(r["metric"]), r), mark=marks.get(found.state, "") if found else "muted")

    unit = "Percentage points; for rank metrics, ranks"
    unit += "; for a user's metric, its own unit" if any(data.metric(r["metric"]).is_own for r in rows) else ""
    return pivot(
        id_ or f"pairs-{corpus}-all",
        f"{corpus} · {'differences' if id_ else 'all comparisons'}",
        rows,
        texts(
            "Pair",
            lambda r: Cell(text=f"{r['encoder_a']} − {r['encoder_b']}", title=r["reason"] or ""),
            explain="The first minus the second",
        ),
        texts("task", lambda r: Protocol.of(r["protocol"]).titled),
        texts("metric", lambda r: data.metric(r["metric"]).label),
        numbers("difference", lambda r: difference_cell(data.metric(r["metric"]), r), explain=unit),
        texts("the first is", words),
        texts("family", lambda r: r["family"], explain="Headline: declared beforehand; exploratory: all others"),
        stored("p", "p_sign_flip", explain="Sign-flip permutation test, unadjusted"),
        stored("adjusted p", "p_adjusted", explain=f"{rows[0]['adjustment']} over all pairs of the metric"),
        stored("McNemar p", "p_mcnemar", explain="Exact; only where clusters are single queries"),
        stored("p of equivalence", "p_equivalent", explain="Test that the difference is within the margin, adjusted"),
        stored("won", "wins", 0, "Queries on which the first does better"),
        stored("tied", "ties", 0),
        stored("lost", "losses", 0),
        stored("d_z", "cohen_dz", 2, "Cohen's d of the paired differences"),
        stored("h", "cohen_h", 2, "Cohen's h of the two proportions"),
        stored("odds ratio", "odds_ratio", 2, "Of the discordant pairs"),
        numbers("detectable", detectable, explain="Smallest true difference detected with 80 % power, same unit"),
        sortable=True,
        dense=True,
        folded="" if id_ else f"All {show.count(len(rows), 'comparison')} on {corpus}",
        note=f"Intervals: paired cluster bootstrap, {show.number(rows[0]['replicates'], 0)} replicates, "
        f"seed {rows[0]['seed']}. An interval holds 0 exactly where the test of that pair alone does not reject; "
        "“up to … worse” is the end of the interval that holds for all pairs together, which the charts draw.",
    )
