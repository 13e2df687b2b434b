"""Differences between encoders: a forest plot per headline figure, and every comparison in full."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import altair as alt

from capim.reports import format as show
from capim.reports.elements import charts, words
from capim.reports.elements.page import Block, Cell, Chart, Section, Table
from capim.reports.elements.tables import (
    ColumnOf,
    anchor,
    difference_cell,
    metrics,
    numbers,
    pivot,
    texts,
    value,
    verdict_cell,
)
from capim.reports.rows.report_data import ReportData
from capim.reports.rows.standing import claimed, contenders, decision_of, headline_tasks, intervals_of, planned_of
from capim.store.schema import Comparison
from capim.store.types import MetricFacts
from capim.tasks.metrics.table import RSUM
from capim.tasks.protocols import Protocol

_BLUE, _VERMILION, _GREEN, *_, _GREY = charts.PALETTE
COLOURS = {"better": _GREEN, "worse": _VERMILION, "equivalent": _BLUE, "undecided": _GREY, "not tested": _GREY}
STATISTICS = {  # column of a comparison to its heading, its decimals (None: a p-value), and an explanation
    "p_sign_flip": ("p", None, "Sign-flip permutation test, unadjusted"),
    "p_adjusted": ("adjusted p", None, "Step-down max-T over all pairs of the metric"),
    "wins": ("won", 0, "Queries on which the first does better"),
    "ties": ("tied", 0, ""),
    "losses": ("lost", 0, ""),
    "cohen_dz": ("d_z", 2, "Cohen's d of the paired differences"),
}
MOST_FAR = 3  # encoders that are drawn however far off they are


def section(data: ReportData) -> Section:
    """One forest plot per corpus and headline figure, those of users' metrics behind, then all pairs."""
    blocks: list[Block] = []
    for corpus in data.corpus_names():
        rows = [r for r in data.comparisons if r.corpus == corpus]
        compared = sorted({(r.protocol, r.metric) for r in rows})
        planned = [*(task[1:3] for task in headline_tasks(data, corpus)), *({RSUM} & planned_of(data, corpus))]
        drawn = [key for key in planned if key in compared] or compared[:1]
        tested = {(r.protocol, r.metric) for r in rows if r.p_adjusted is not None}
        drawn += [key for key in _of_users(data, tested) if key not in drawn]
        blocks += [chart for key in drawn if (chart := _forest(data, corpus, *key)) is not None]
        if rows:
            blocks.append(pairs(data, corpus, rows))
    lead = (
        "Every encoder minus the best, on the same queries: sign-flip permutation tests over images, with "
        "step-down max-T correction over all pairs of a figure. The charts show the pre-declared "
        "metrics, the headline family. All other comparisons, in the folded tables, are exploratory: a reason to look "
        "closer."
    )
    return Section(
        id="differences", title="Differences", lead=" ".join([lead, *data.larger_families]), blocks=tuple(blocks)
    )


def _of_users(data: ReportData, compared: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Users' metrics under the main protocols and all quadruples, or under their first one."""
    found: list[tuple[str, str]] = []
    for metric in sorted({metric for _, metric in compared if data.metric(metric).has_table}):
        protocols = sorted((Protocol.of(p) for p, of in compared if of == metric), key=lambda of: of.id)
        main = [of for of in protocols if of.is_main or of.is_all_quadruples]
        found += [(of.id, metric) for of in sorted(main, key=lambda of: of.place) or protocols[:1]]
    return found


def _forest(data: ReportData, corpus: str, protocol: str, metric: str) -> Chart | None:
    """The difference of every contender to the highest, with its interval and the margin, on the axis of contenders.

    Of the encoders that a test shows to be worse, those are drawn that are not much further off than the contenders;
    the note names the others.
    """
    names = [row.encoder for row in contenders(data, corpus, protocol, metric)]
    rows = [row for name in names[1:] if (row := data.comparison(corpus, protocol, metric, name, names[0])) is not None]
    rows = [row for row in rows if row.difference is not None]
    if not rows:
        return None
    every, rows = rows, _near(rows)
    facts, of = data.metric(metric), data.protocol(corpus, protocol)
    units = {"percent": "percentage points", "points": "points of 600"}
    fraction = facts.unit == "percent"

    def point(row: Comparison) -> charts.Point:
        row, found = claimed(row), decision_of(row)
        return charts.interval_point(
            row,
            fraction=fraction,
            unit="percentage points",
            text=show.bracketed(words.difference(facts, row.difference), words.interval(facts, row)),
            words=words.verdict(facts, row),
            state=found.state if found else "not tested",
            minus=row.encoder_b,
        )

    points = [point(row) for row in rows]
    states = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    x_title = f"{facts.label}, {of.title}: minus {names[0]}, {units.get(facts.unit, 'its own unit')}"
    x = alt.X("ci_low:Q", title=x_title, scale=alt.Scale(zero=True))
    picture = charts.strips(
        points,
        x,
        height=max(70, 38 * len(points)),
        opacity=1,
        within=(100.0 if fraction else 1.0) * (rows[0].margin or 0.0),
        words="words",
        color=alt.Color("state:N", scale=states, legend=None),
        tooltip=charts.tooltips("text", "words"),
    )
    within, name = words.margin(facts, rows[0].margin), anchor("differences", corpus, protocol, metric)
    far = [f"{r.encoder_a} ({words.difference(facts, r.difference)})" for r in every if r not in rows]
    shaded = f"Shaded: less than {within} apart, the margin of equivalence." if within else ""
    folded = f"Further off, by a test: {show.some(far, most=6)}." if far else ""
    by_encoder = "; ".join(f"{r.encoder_a}: {p['text']}, {p['words']}" for r, p in zip(rows, points, strict=True))
    return charts.finish(
        picture,
        name=name,
        title=f"{of.titled} · {words.described(facts)} · {corpus}: every encoder minus {names[0]}",
        alt_text=f"Differences to {names[0]}. {by_encoder}.",
        data=pairs(data, corpus, every, id_=f"{name}-data"),
        note=" ".join(filter(None, (shaded, folded, words.not_drawn(data, corpus, protocol, metric)))),
        right_margin=60,
    )


def _near(rows: list[Comparison]) -> list[Comparison]:
    """The contenders, then the worse ones as far as twice the reach of the contenders' intervals; at least three."""
    open_ = [row for row in rows if (found := decision_of(row)) is None or found.state != "worse"]
    ends = [abs(end) for row in map(claimed, open_) for end in (row.ci_low, row.ci_high) if end is not None]
    reach = 2 * max([*ends, 2 * (rows[0].margin or 0.0)])
    return [row for at, row in enumerate(rows) if row in open_ or at < MOST_FAR or abs(row.difference or 0.0) <= reach]


def pairs(data: ReportData, corpus: str, rows: list[Comparison], *, id_: str = "") -> Table:
    """Comparisons of a corpus with all that is known of them; folded unless they have an ``id_`` of their own."""

    def facts(r: Comparison) -> MetricFacts:
        return data.metric(r.metric)

    def stored(column: str, text: Callable[[Comparison], str]) -> Callable[[Comparison], Cell]:
        def unit(r: Comparison) -> str:
            return words.unit(facts(r), difference=True) if column == "detectable_effect" else ""

        return lambda r: value(
            getattr(r, column), text(r), mark="muted" if getattr(r, column) is None else "", unit=unit(r)
        )

    def statistic(column: str, heading: str, decimals: int | None, explain: str) -> ColumnOf[Comparison]:
        as_text = show.p_value if decimals is None else partial(show.number, decimals=decimals)
        return numbers(heading, stored(column, lambda r: as_text(getattr(r, column))), explain=explain)

    def pair(r: Comparison) -> Cell:
        return Cell(text=f"{r.encoder_a} − {r.encoder_b}", title=r.reason or "")

    unit = "Percentage points; for rank metrics, ranks"
    unit += "; for a user's metric, its own unit" if any(facts(r).has_table for r in rows) else ""
    detectable = stored("detectable_effect", lambda r: words.value(facts(r), r.detectable_effect))
    return pivot(
        id_ or f"pairs-{corpus}-all",
        f"{corpus} · {'differences' if id_ else 'all comparisons'}",
        rows,
        texts("Pair", pair, explain="The first minus the second"),
        texts("task", lambda r: data.titled(corpus, r.protocol)),
        metrics(facts),
        numbers("difference", lambda r: difference_cell(facts(r), r), explain=unit),
        texts("the first is", lambda r: verdict_cell(facts(r), r)),
        texts("family", lambda r: r.family, explain="Headline: pre-declared; exploratory: all others"),
        *(statistic(column, *shown) for column, shown in STATISTICS.items()),
        numbers("detectable", detectable, explain="Smallest true difference detected with 80 % power, same unit"),
        folded="" if id_ else f"All {show.count(len(rows), 'comparison')} on {corpus}",
        note=f"Intervals: paired, {intervals_of(rows)}. An interval holds 0 exactly where the test of that pair alone "
        "does not reject; “up to … worse” is the end of the interval for all pairs together, which the charts draw.",
    )
