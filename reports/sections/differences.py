"""Differences between encoders: stored tests as a table, for the appendix of a paper and the pages of `capim serve`."""

from __future__ import annotations

from capim.reports import format as show
from capim.reports.elements.page import Cell, Table
from capim.reports.elements.tables import difference_cell, metrics, numbers, pivot, texts, value, verdict_cell
from capim.reports.rows.report_data import ReportData
from capim.reports.rows.standing import claimed
from capim.store.schema import Comparison
from capim.store.types import MetricFacts


def pairs(data: ReportData, caption: str, rows: list[Comparison]) -> Table:
    """Return comparisons of one corpus: the difference with its interval, the test, and the verdict."""

    def facts(r: Comparison) -> MetricFacts:
        return data.metric(r.metric)

    def p_value(p: float | None) -> Cell:
        return value(p, show.p_value(p), mark="muted" if p is None else "")

    def pair(r: Comparison) -> Cell:
        return Cell(text=f"{r.encoder_a} − {r.encoder_b}", title=r.reason or "")

    return pivot(
        "pairs",
        caption,
        map(claimed, rows),
        texts("Pair", pair, explain="The first minus the second"),
        texts("task", lambda r: data.titled(r.corpus, r.protocol)),
        metrics(facts),
        numbers("difference", lambda r: difference_cell(facts(r), r), explain="In the unit of the metric"),
        numbers("p", lambda r: p_value(r.p_sign_flip), explain="Sign-flip permutation test, unadjusted"),
        numbers("adjusted p", lambda r: p_value(r.p_adjusted), explain="Step-down max-T over all pairs of the metric"),
        texts("the first is", lambda r: verdict_cell(facts(r), r)),
        note="The interval of a difference holds for all pairs of a result together; where none does, it has none. "
        "p is adjusted over these pairs.",
    )
