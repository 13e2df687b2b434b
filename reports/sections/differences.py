"""Differences between encoders: comparisons in full, for the appendix of a paper and the pages of `capim serve`."""

from __future__ import annotations

from collections.abc import Callable

from capim.reports import format as show
from capim.reports.elements import words
from capim.reports.elements.page import Cell, Table
from capim.reports.elements.tables import ColumnOf, difference_cell, metrics, numbers, pivot, texts, value, verdict_cell
from capim.reports.rows.report_data import ReportData
from capim.reports.rows.standing import intervals_of
from capim.store.schema import Comparison
from capim.store.types import MetricFacts


def pairs(data: ReportData, corpus: str, rows: list[Comparison]) -> Table:
    """Comparisons of a corpus with all that is known of them, folded."""

    def facts(r: Comparison) -> MetricFacts:
        return data.metric(r.metric)

    def known(number: float | None, text: str) -> Cell:
        return value(number, text, mark="muted" if number is None else "")

    def p_value(heading: str, p: Callable[[Comparison], float | None], explain: str) -> ColumnOf[Comparison]:
        return numbers(heading, lambda r: known(p(r), show.p_value(p(r))), explain=explain)

    def queries(heading: str, n: Callable[[Comparison], int | None], explain: str = "") -> ColumnOf[Comparison]:
        return numbers(heading, lambda r: known(n(r), show.number(n(r), 0)), explain=explain)

    def detectable(r: Comparison) -> Cell:
        return known(r.detectable_effect, words.value(facts(r), r.detectable_effect))

    def pair(r: Comparison) -> Cell:
        return Cell(text=f"{r.encoder_a} − {r.encoder_b}", title=r.reason or "")

    unit = "Percentage points; for rank metrics, ranks"
    unit += "; for a user's metric, its own unit" if any(facts(r).has_table for r in rows) else ""
    return pivot(
        f"pairs-{corpus}-all",
        f"{corpus} · all comparisons",
        rows,
        texts("Pair", pair, explain="The first minus the second"),
        texts("task", lambda r: data.titled(corpus, r.protocol)),
        metrics(facts),
        numbers("difference", lambda r: difference_cell(facts(r), r), explain=unit),
        texts("the first is", lambda r: verdict_cell(facts(r), r)),
        texts("family", lambda r: r.family, explain="Headline: pre-declared; exploratory: all others"),
        p_value("p", lambda r: r.p_sign_flip, "Sign-flip permutation test, unadjusted"),
        p_value("adjusted p", lambda r: r.p_adjusted, "Step-down max-T over all pairs of the metric"),
        queries("won", lambda r: r.wins, "Queries on which the first does better"),
        queries("tied", lambda r: r.ties),
        queries("lost", lambda r: r.losses),
        numbers(
            "d_z",
            lambda r: known(r.cohen_dz, show.number(r.cohen_dz, 2)),
            explain="Cohen's d of the paired differences",
        ),
        numbers("detectable", detectable, explain="Smallest true difference detected with 80% power, same unit"),
        folded=f"All {show.count(len(rows), 'comparison')} on {corpus}",
        note=f"Intervals: paired, {intervals_of(rows)}. An interval holds 0 exactly where the test of only that pair "
        "does not reject; “up to … worse” is the end of the interval for all pairs together.",
    )
