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
    difference_text,
    is_fraction,
    metric_title,
    numbers,
    pivot,
    range_text,
    texts,
    value,
    value_text,
)
from capim.reports.rows.names import named, plain_title
from capim.reports.rows.report_data import ReportData, Row, is_own
from capim.reports.rows.standing import SUM, claimed, decision_of, headline_tasks
from capim.reports.sections.leaderboard import HEADLINES
from capim.reports.sections.sentence import margin_words, row_words

LEADING = (*((protocol, "R@1") for protocol in HEADLINES), ("winoground", "winoground_group"))
COLOURS = {
    "better": "#009E73",
    "worse": "#D55E00",
    "equivalent": "#0072B2",
    "undecided": "#808890",
    "not tested": "#808890",
}


def section(data: ReportData) -> Section:
    """One forest plot per corpus and headline figure, those of users' metrics behind, then all pairs."""
    blocks: list[Block] = []
    for corpus in data.corpus_names():
        rows = [r for r in data.comparisons if r["corpus"] == corpus]
        compared = sorted({(r["protocol"], r["metric"]) for r in rows})
        planned = [*((task.protocol, task.metric) for task in headline_tasks(data, corpus)), tuple(SUM)]
        leading = [key for key in planned if key in compared] or compared[:1]
        tested = {(r["protocol"], r["metric"]) for r in rows if r["p_adjusted"] is not None}
        leading += [key for key in _of_users(tested) if key not in leading]
        for protocol, metric in leading:
            chart = _forest(data, corpus, protocol, metric)
            blocks += [] if chart is None else [chart]
        if rows:
            blocks.append(_pairs(data, corpus, rows))
    name = next((r["adjustment"] for r in data.comparisons), "")
    adjustment = {"max-t": "step-down max-T", "holm": "Holm", "benjamini-hochberg": "Benjamini–Hochberg"}.get(
        name, name
    )
    lead = (
        "Every encoder minus the best, on the same queries: sign-flip permutation tests over images, with "
        f"{adjustment} correction over all pairs of a figure. Drawn are the figures that were declared beforehand, the "
        "headline family. All other comparisons, in the folded tables, are exploratory: a reason to look closer."
    )
    return Section(
        id="differences",
        title="Differences",
        lead=" ".join([lead, *data.larger_families]),
        blocks=tuple(blocks),
    )


def _of_users(compared: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Users' metrics under the protocols of ``LEADING``, or under their first one."""
    found: list[tuple[str, str]] = []
    for metric in sorted({metric for _, metric in compared if is_own(metric)}):
        protocols = sorted(protocol for protocol, of in compared if of == metric)
        shown = [protocol for protocol, _ in LEADING if protocol in protocols] or protocols[:1]
        found += [(protocol, metric) for protocol in shown]
    return found


def _forest(data: ReportData, corpus: str, protocol: str, metric: str) -> Chart | None:
    """The difference of every encoder to the one with the best value, with its interval and the margin."""
    names = [r["encoder"] for r in data.ranked(corpus, protocol, metric) if r["value"] is not None]
    rows = [row for name in names[1:] if (row := data.comparison(corpus, protocol, metric, name, names[0])) is not None]
    rows = [row for row in rows if row["difference"] is not None]
    if not rows:
        return None
    scale = 100.0 if is_fraction(metric) else 1.0
    points = [_point(claimed(row), scale) for row in rows]
    order = [point["encoder"] for point in points]
    unit = "percentage points" if is_fraction(metric) else "points of 600" if metric == "RSUM" else "its own unit"
    base = alt.Chart(alt.Data(values=points)).encode(
        y=alt.Y("encoder:N", sort=order, title=None),
        color=alt.Color(
            "state:N",
            scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())),
            legend=None,
        ),
        tooltip=charts.tooltips("encoder", "text", "words"),
    )
    x = alt.X(
        "ci_low:Q",
        title=f"{metric_title(metric)}, {plain_title(protocol)}: minus {names[0]}, {unit}",
        scale=alt.Scale(zero=True),
    )
    margin = scale * (rows[0]["margin"] or 0.0)
    zero = alt.Chart(alt.Data(values=[{"low": -margin, "high": margin, "zero": 0}]))
    picture = alt.layer(
        zero.mark_rect(opacity=0.15, color="currentColor").encode(x="low:Q", x2="high:Q"),
        zero.mark_rule(opacity=0.5).encode(x="zero:Q"),
        *charts.intervals(base, x, size=80, opacity=1),
        base.mark_text(align="left", dx=10, dy=-9, fontSize=11).encode(
            x="value:Q", text="words:N", color=alt.value("currentColor")
        ),
    ).properties(width=charts.WIDTH, height=max(70, 38 * len(points)))
    within = margin_words(metric, rows[0]["margin"])
    return charts.finish(
        picture,
        name=anchor("differences", corpus, protocol, metric),
        title=f"{named(protocol)} · {described(data, metric)} · {corpus}: every encoder minus {names[0]}",
        alt_text=f"Differences to {names[0]}. "
        + "; ".join(f"{p['encoder']}: {p['text']}, {p['words']}" for p in points)
        + ".",
        data=_pairs(data, corpus, rows, id_=anchor("differences", corpus, protocol, metric, "data")),
        note=f"Shaded: less than {within} apart, the margin of equivalence." if within else "",
        right_margin=60,
    )


def _point(row: Row, scale: float) -> dict[str, Any]:
    interval = range_text(row["metric"], row["ci_low"], row["ci_high"])
    text = difference_text(row["metric"], row["difference"]) + (f" ({interval})" if interval else "")
    found = decision_of(row)
    return charts.interval_point(
        {**row, "encoder": row["encoder_a"], "value": row["difference"]},
        scale=scale,
        unit="percentage points",
        text=text,
        words=row_words(row),
        state=found.state if found else "not tested",
        minus=row["encoder_b"],
    )


def _pairs(data: ReportData, corpus: str, rows: list[Row], *, id_: str = "") -> Table:
    def stored(heading: str, column: str, decimals: int | None = None, explain: str = "") -> ColumnOf[Row]:
        def cell(r: Row) -> Cell:
            text = show.p_value(r[column]) if decimals is None else show.number(r[column], decimals)
            return value(r[column], text, mark="muted" if r[column] is None else "")

        return numbers(heading, cell, explain=explain)

    def difference(r: Row) -> Cell:
        note = range_text(r["metric"], r["ci_low"], r["ci_high"])
        return value(r["difference"], difference_text(r["metric"], r["difference"]), note=note)

    def detectable(r: Row) -> Cell:
        effect = r["detectable_effect"]
        return value(effect, value_text(r["metric"], effect), mark="muted" if effect is None else "")

    def words(r: Row) -> Cell:
        found = decision_of(r)
        marks: dict[str, Mark] = {"better": "good", "worse": "bad"}
        return Cell(text=row_words(r), mark=marks.get(found.state, "") if found else "muted")

    unit = "Percentage points; for rank metrics, ranks"
    unit += "; for a user's metric, its own unit" if any(is_own(r["metric"]) for r in rows) else ""
    return pivot(
        id_ or f"pairs-{corpus}-all",
        f"{corpus} · {'differences' if id_ else 'all comparisons'}",
        rows,
        texts(
            "Pair",
            lambda r: Cell(text=f"{r['encoder_a']} − {r['encoder_b']}", title=r["reason"] or ""),
            explain="The first minus the second",
        ),
        texts("task", lambda r: named(r["protocol"])),
        texts("metric", lambda r: metric_title(r["metric"])),
        numbers("difference", difference, explain=unit),
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
