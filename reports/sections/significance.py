"""Pairwise significance: a matrix of paired tests per leading metric, and every comparison in full."""

from __future__ import annotations

from functools import partial

from reports import format as show
from reports.elements.cells import described, difference_text, is_fraction, metric_title, range_text, value_text
from reports.elements.page import Block, Cell, Section, Table
from reports.elements.tables import ColumnOf, absent, anchor, numbers, pivot, texts, value
from reports.rows.report_data import ReportData, Row, is_own
from reports.sections.leaderboard import HEADLINES
from tasks.statistics.multiplicity import ALPHA, significance_mark

LEADING = (*((protocol, "R@1") for protocol in HEADLINES), ("winoground", "winoground_group"))


def section(data: ReportData) -> Section:
    """One matrix per corpus and leading metric, those of users' metrics behind, then all pairs."""
    blocks: list[Block] = []
    for corpus in data.corpus_names():
        rows = [r for r in data.comparisons if r["corpus"] == corpus]
        compared = sorted({(r["protocol"], r["metric"]) for r in rows})
        leading = [key for key in LEADING if key in compared] or compared[:1]
        tested = {(r["protocol"], r["metric"]) for r in rows if r["p_adjusted"] is not None}
        leading += [key for key in _of_users(tested) if key not in leading]
        for protocol, metric in leading:
            pairs = [r for r in rows if (r["protocol"], r["metric"]) == (protocol, metric)]
            encoders = {r[side] for r in pairs for side in ("encoder_a", "encoder_b")}
            names = [r["encoder"] for r in data.ranked(corpus, protocol, metric) if r["encoder"] in encoders]
            if len(names) > 1:
                blocks.append(_matrix(data, corpus, protocol, metric, names))
        if rows:
            blocks.append(_pairs(corpus, rows))
    name = next((r["adjustment"] for r in data.comparisons), "")
    adjustment = {"max-t": "step-down max-T", "holm": "Holm", "benjamini-hochberg": "Benjamini–Hochberg"}.get(
        name, name
    )
    lead = (
        f"Paired tests on shared queries: sign-flip permutation test over images, {adjustment} correction over all "
        f"pairs of a metric. ** p < 0.01, * p < {ALPHA}, ns not significant."
    )
    return Section(
        id="significance",
        title="Significant differences",
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


def _matrix(data: ReportData, corpus: str, protocol: str, metric: str, names: list[str]) -> Table:
    def cell(a: str, b: str) -> Cell:
        if a == b:
            return Cell(text="·", mark="muted")
        row = data.comparison(corpus, protocol, metric, a, b)
        if row is None or row["p_adjusted"] is None or row["difference"] is None:
            return absent("not compared" if row is None else row["reason"] or "no test")
        difference, p = difference_text(metric, row["difference"]), row["p_adjusted"]
        return Cell(
            text=significance_mark(p),
            note=difference,
            title=f"{a} minus {b}: {difference}{' points' * is_fraction(metric)}, adjusted p {show.p_value(p)}",
            mark="muted" if p >= ALPHA else "",
        )

    return pivot(
        anchor("significance", corpus, protocol, metric),
        f"{corpus} · {protocol} · {described(data, metric)}: row minus column" + ", points" * is_fraction(metric),
        names,
        texts("Encoder", str),
        *(numbers(b, partial(cell, b=b)) for b in names),
        dense=len(names) > 5,
    )


def _pairs(corpus: str, rows: list[Row]) -> Table:
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

    unit = "Percentage points; for rank metrics, ranks"
    unit += "; for a user's metric, its own unit" if any(is_own(r["metric"]) for r in rows) else ""
    return pivot(
        f"pairs-{corpus}-all",
        f"{corpus} · all comparisons",
        rows,
        texts(
            "Pair",
            lambda r: Cell(text=f"{r['encoder_a']} − {r['encoder_b']}", title=r["reason"] or ""),
            explain="The first minus the second",
        ),
        texts("protocol", lambda r: r["protocol"]),
        texts("metric", lambda r: metric_title(r["metric"])),
        numbers("difference", difference, explain=unit),
        stored("p", "p_sign_flip", explain="Sign-flip permutation test, unadjusted"),
        stored("adjusted p", "p_adjusted", explain=f"{rows[0]['adjustment']} over all pairs of the metric"),
        stored("McNemar p", "p_mcnemar", explain="Exact; only where clusters are single queries"),
        stored("won", "wins", 0, "Queries on which the first does better"),
        stored("tied", "ties", 0),
        stored("lost", "losses", 0),
        stored("d_z", "cohen_dz", 2, "Cohen's d of the paired differences"),
        stored("h", "cohen_h", 2, "Cohen's h of the two proportions"),
        stored("odds ratio", "odds_ratio", 2, "Of the discordant pairs"),
        numbers("detectable", detectable, explain="Smallest true difference detected with 80 % power, same unit"),
        sortable=True,
        dense=True,
        folded=f"All {show.count(len(rows), 'comparison')} on {corpus}",
        note=f"Intervals: paired cluster bootstrap, {show.number(rows[0]['replicates'], 0)} replicates, "
        f"seed {rows[0]['seed']}. An interval holds 0 exactly where the test of that pair alone does not reject.",
    )
