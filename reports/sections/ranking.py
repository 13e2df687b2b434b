"""One ranking of the encoders over several corpora, with the ranks that the data leave open."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from capim.reports import format as show
from capim.reports.elements.page import Cell, Section, Table
from capim.reports.elements.tables import ColumnOf, absent, measures, metric_title, numbers, pivot, texts, value
from capim.reports.format import PERCENT
from capim.reports.rows.report_data import ReportData, Row
from capim.reports.rows.standing import headline_tasks, same_photographs

THESE, LIKE_THESE = "these corpora", "corpora like these"
MACRO, BORDA = "macro mean", "borda"


def section(data: ReportData) -> Section:
    """The table of the stored ranking; no block without one."""
    return Section(
        id="ranking",
        title="Ranking over corpora",
        lead="Every corpus counts alike, by its headline. The ranks are those that the tests leave open to an encoder, "
        "for all encoders at once.",
        blocks=(_table(data),) if data.rankings else (),
    )


def _table(data: ReportData) -> Table:
    rows = {(r["encoder"], r["estimand"], r["statistic"]): r for r in data.rankings}
    means = {r["encoder"]: r for r in data.rankings if (r["estimand"], r["statistic"]) == (THESE, MACRO)}
    order = sorted(means, key=lambda name: (means[name]["value"] is None, -(means[name]["value"] or 0.0), name))
    first = means[order[0]]

    def cell(name: str, key: tuple[str, str], made: Callable[[Row], Cell]) -> Cell:
        return made(rows.get((name, *key)) or means[name])

    columns: list[ColumnOf[str]] = [texts("Encoder", str)]
    tested = any(r["rank_low"] is not None for r in data.rankings if r["estimand"] == LIKE_THESE)
    for estimand in (THESE, LIKE_THESE) if tested else (THESE,):
        for statistic, heading, what in (
            (MACRO, "macro mean", "Mean of the headlines"),
            (BORDA, "Borda", "Other encoders that it is above, mean over corpora"),
        ):
            key, group = (estimand, statistic), f"on {estimand}"
            explain = f"Ranks that it can hold by {heading}, on {estimand}"
            columns += [
                numbers(f"Ranks by {heading}", partial(cell, key=key, made=_ranks), group=group, explain=explain),
                numbers(heading, partial(cell, key=key, made=_figure), group=group, explain=f"{what}, percent"),
            ]
    for corpus in json.loads(first["corpora"]):
        name, explain = corpus["corpus"], f"{_plain(data, corpus)}, percent: {corpus['headline']}"
        of_corpus = {encoder: json.loads(row["headlines"]).get(name) for encoder, row in means.items()}
        columns.append(measures(name, of_corpus.get, show.percent, group="headlines", explain=explain))
    ranked = show.count(first["n_encoders"], "encoder")
    return pivot(
        "ranking-corpora",
        f"{ranked} over {show.count(first['n_corpora'], 'corpus', 'corpora')}",
        order,
        *columns,
        note=" ".join(_note(data, first)),
        sortable=True,
    )


def _figure(row: Row) -> Cell:
    if row["value"] is None:
        return absent(row["reason"])
    return value(
        row["value"],
        show.percent(row["value"]),
        note=show.percent_range(row["ci_low"], row["ci_high"]),
        title=row["reason"] or f"{row['interval_method']} interval",
        state="can be first" if row["tied_with_best"] and row["rank"] != 1 else "",
        mark="best" if row["rank"] == 1 else "",
    )


def _ranks(row: Row) -> Cell:
    low, high = row["rank_low"], row["rank_high"]
    if low is None:
        return absent(row["reason"])
    return value(-low - high / 1000, f"{low}" if low == high else f"{low}–{high}", mark="muted")


def _plain(data: ReportData, corpus: Mapping[str, str]) -> str:
    """What a headline is the mean of, in plain words; as it is stored where the report does not show it."""
    tasks = headline_tasks(data, corpus["corpus"])
    titles = [task.title.removesuffix(", mean over languages") for task in tasks]
    return f"{metric_title(tasks[0].metric)}, {show.listing(titles)}" if tasks else corpus["headline"]


def _note(data: ReportData, first: Row) -> Iterator[str]:
    """What the headlines are, what the intervals are, and what is not ranked, as sentences."""
    corpora = json.loads(first["corpora"])
    yield "Headlines: " + "; ".join(f"{corpus['corpus']}: {_plain(data, corpus)}" for corpus in corpora) + "."
    if len({corpus["headline"].split(" under ")[0] for corpus in corpora}) > 1:
        yield "They are different metrics: the macro mean averages percentages; Borda counts only use their order."
    yield (
        f"On these corpora: images are resampled within each corpus, {show.percent(first['level'], 0)}{PERCENT} "
        f"intervals from {show.number(first['replicates'], 0)} replicates (seed {first['seed']}); Borda counts between "
        "their certain wins and losses."
    )
    yield from same_photographs(corpora)
    like_these = next((r for r in data.rankings if r["estimand"] == LIKE_THESE), None)
    if like_these is not None:
        reason = like_these["reason"] if like_these["rank_low"] is None else None
        yield f"On corpora like these: {reason}." if reason else "On corpora like these: Student’s t over the corpora."
    left_out = [
        f"{r['encoder']} ({r['reason'].removeprefix('left out: ')})" for r in data.rankings if r["value"] is None
    ]
    if left_out:
        yield f"Left out: {'; '.join(left_out)}."
    ranked = {name for corpus in corpora for name in (corpus["corpus"], *corpus["copies"])}
    others = [name for name in data.corpus_names() if name not in ranked]
    if others:
        yield f"Not in the ranking, because not all of its encoders have them: {show.listing(tuple(others))}."
