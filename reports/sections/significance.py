"""Which differences are real: V29's matrix, from adjusted p of paired tests, and every pair in full."""

from __future__ import annotations

from reports import format as show
from reports.elements.cells import metric_title, range_text, value_text
from reports.elements.page import Block, Cell, Column, Mark, Section, Table
from reports.rows.ranking import pair_of
from reports.rows.report_data import Evidence, Row
from reports.sections.leaderboard import HEADLINES

LEADING = (*((protocol, "R@1") for protocol in HEADLINES), ("winoground", "winoground_group"))


def section(evidence: Evidence) -> Section | None:
    """One matrix per corpus and leading metric, then all pairs."""
    blocks: list[Block] = []
    for corpus in evidence.corpus_names():
        leading = LEADING if any(_compared(evidence, corpus, *pm) for pm in LEADING) else _any(evidence, corpus)
        for protocol, metric in leading:
            names = _compared(evidence, corpus, protocol, metric)
            if len(names) > 1:
                blocks.append(_matrix(evidence, corpus, protocol, metric, names))
        if any(r["corpus"] == corpus for r in evidence.comparisons):
            blocks.append(_pairs(evidence, corpus))
    if not blocks:
        return None
    row = evidence.comparisons[0]
    adjustment = {"holm": "Holm", "benjamini-hochberg": "Benjamini–Hochberg"}.get(row["adjustment"], row["adjustment"])
    return Section(
        id="significance",
        title="Which differences are real",
        lead=f"Paired tests on shared queries: sign-flip permutation over images, {adjustment} over all pairs of a "
        "metric. ** p < 0.01, * p < 0.05, ns not significant.",
        blocks=tuple(blocks),
    )


def _any(evidence: Evidence, corpus: str) -> tuple[tuple[str, str], ...]:
    """Where none of the leading metrics was compared: the first one that was."""
    pairs = sorted({(r["protocol"], r["metric"]) for r in evidence.comparisons if r["corpus"] == corpus})
    return tuple(pairs[:1])


def _compared(evidence: Evidence, corpus: str, protocol: str, metric: str) -> list[str]:
    """Encoders in at least one comparison, best first."""
    rows = [r for r in evidence.comparisons if (r["corpus"], r["protocol"], r["metric"]) == (corpus, protocol, metric)]
    named = {r["encoder_a"] for r in rows} | {r["encoder_b"] for r in rows}
    return [r["encoder"] for r in evidence.ranked(corpus, protocol, metric) if r["encoder"] in named]


def _matrix(evidence: Evidence, corpus: str, protocol: str, metric: str, names: list[str]) -> Table:
    def cell(a: str, b: str) -> Cell:
        if a == b:
            return Cell(text="·", mark="muted")
        found = pair_of(evidence, corpus, protocol, metric, a, b)
        if found is None:
            return Cell(text=show.ABSENT, mark="muted", title="not compared")
        row, sign = found
        if row["p_adjusted"] is None or row["difference"] is None:
            return Cell(text=show.ABSENT, mark="muted", title=row["reason"] or "no test")
        mark: Mark = "muted" if row["p_adjusted"] >= 0.05 else ""
        return Cell(
            text=show.stars(row["p_adjusted"]),
            note=show.points(sign * row["difference"]),
            title=f"{a} minus {b}: {show.points(sign * row['difference'])} points, "
            f"adjusted p {show.p_value(row['p_adjusted'])}",
            mark=mark,
        )

    return Table(
        id=f"significance-{corpus}-{protocol}-{metric}".replace("/", "-").replace("@", ""),
        caption=f"{corpus} · {protocol} · {metric_title(metric)}: row minus column, points",
        columns=(Column(heading="Encoder"), *(Column(heading=name, numeric=True) for name in names)),
        rows=tuple((Cell(text=a), *(cell(a, b) for b in names)) for a in names),
        dense=len(names) > 5,
    )


def _pairs(evidence: Evidence, corpus: str) -> Table:
    rows = [r for r in evidence.comparisons if r["corpus"] == corpus]
    headings = (
        ("Pair", False, "The first minus the second"),
        ("protocol", False, ""),
        ("metric", False, ""),
        ("difference", True, "Percentage points; of ranks, places"),
        ("p", True, "Sign-flip permutation test, raw"),
        ("adjusted p", True, f"{rows[0]['adjustment']} over all pairs of the metric"),
        ("McNemar p", True, "Exact; only where one query is one cluster"),
        ("won", True, "Queries that the first gets better"),
        ("tied", True, ""),
        ("lost", True, ""),
        ("d_z", True, "Cohen's d of the paired differences"),
        ("h", True, "Cohen's h of the two proportions"),
        ("odds ratio", True, "Of the discordant pairs"),
        ("detectable", True, "Smallest true difference seen with 80 % power, in the same unit"),
    )
    return Table(
        id=f"pairs-{corpus}-all",
        caption=f"{corpus} · every comparison",
        columns=tuple(Column(heading=h, numeric=numeric, explain=explain) for h, numeric, explain in headings),
        rows=tuple(_pair_row(r) for r in rows),
        sortable=True,
        dense=True,
        folded=f"All {show.count(len(rows), 'comparison')} on {corpus}",
        note=f"Intervals: paired cluster bootstrap, {show.number(rows[0]['replicates'], 0)} replicates, "
        f"seed {rows[0]['seed']}.",
    )


def _pair_row(r: Row) -> tuple[Cell, ...]:
    def figure(value: float | None, text: str) -> Cell:
        return Cell(text=text, sort=show.exact(value), mark="muted" if value is None else "")

    return (
        Cell(text=f"{r['encoder_a']} − {r['encoder_b']}", title=r["reason"] or ""),
        Cell(text=r["protocol"]),
        Cell(text=metric_title(r["metric"])),
        Cell(
            text=_difference(r["metric"], r["difference"]),
            note=range_text(r["metric"], r["ci_low"], r["ci_high"]),
            sort=show.exact(r["difference"]),
        ),
        figure(r["p_sign_flip"], show.p_value(r["p_sign_flip"])),
        figure(r["p_adjusted"], show.p_value(r["p_adjusted"])),
        figure(r["p_mcnemar"], show.p_value(r["p_mcnemar"])),
        figure(r["wins"], show.number(r["wins"], 0)),
        figure(r["ties"], show.number(r["ties"], 0)),
        figure(r["losses"], show.number(r["losses"], 0)),
        figure(r["cohen_dz"], show.number(r["cohen_dz"], 2)),
        figure(r["cohen_h"], show.number(r["cohen_h"], 2)),
        figure(r["odds_ratio"], show.number(r["odds_ratio"], 2)),
        figure(r["detectable_effect"], value_text(r["metric"], r["detectable_effect"])),
    )


def _difference(metric: str, value: float | None) -> str:
    return show.points(value) if "rank" not in metric else show.number(value)
