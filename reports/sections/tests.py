"""The tests: every headline result with its intervals, drawn alike, best first; and those behind the recommendation.

These are lines, with the ranks that they allow and the statements that share a budget. All tests of pairs are a table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import permutations

from capim.reports import format as show
from capim.reports.elements import words
from capim.reports.elements.drawings import Marked, forest
from capim.reports.elements.page import Cell, Chart, Evidence, Kind, Section, Table
from capim.reports.elements.tables import anchor, difference_cell, metrics, numbers, pivot, texts, value, verdict_cell
from capim.reports.rows import standing
from capim.reports.rows.choice import overall
from capim.reports.rows.report_data import ReportData, ends
from capim.reports.rows.speed import image_rate, speed_ratio
from capim.reports.rows.standing import Task, about_corpora, claimed, contenders, stand
from capim.store.schema import Comparison, Result
from capim.store.types import MetricFacts

MOST = 12  # encoders of one chart
NOTE = (
    "Filled: the highest value, or equivalent to it; open: the tests cannot tell which of the two is better; grey: "
    "worse. Encoders not shown above chance are left out. All comparisons are in comparisons.csv."
)
SIGNIFICANT = {"**": 0.01, "*": 0.05}
STARS = "The row's encoder minus the column's. ** p < 0.01, * p < 0.05, ns not significant, adjusted for all pairs."


def sure_section(data: ReportData) -> Section:
    """Return the tests behind the recommendation."""
    lines = evidence(data)
    return Section(id="sure", title="How sure is this?", blocks=(Evidence(lines=lines),) * bool(lines), folded=True)


def evidence(data: ReportData) -> tuple[str, ...]:
    """Return the tests behind the answer, one line for every corpus, and which statements share which budget."""
    found = standing.conclusions(data)
    lines = (line for tasks in found.values() for line in (_tests(data, tasks), *words.weights(data, tasks)))
    if not found:
        return ()
    return (*filter(None, lines), *_ranks(data), *_faster(data), *words.budgets(data), *data.larger_families)


def _faster(data: ReportData) -> list[str]:
    """Return which of the two first encodes images how many times as fast; none where the ratios do not show it."""
    names = [each.encoder for each in overall(data).order][:2]
    known = {each: speed for each, speed in image_rate(data).items() if each in names}
    ratios = ((a, b, speed_ratio(known[a], known[b])) for a, b in permutations(known, 2))
    return [
        f"{a} encodes images {show.number(ratio.value, 2)} times as fast as {b} (95{show.PERCENT} interval "
        f"{show.span(ratio.low, ratio.high, 2)}, over {ratio.n_corpora} corpora)."
        for a, b, ratio in ratios
        if ratio is not None and ratio.low > 1
    ]


def _tests(data: ReportData, tasks: list[Task]) -> str:
    """Return the tests of a corpus: for every task with contenders, the highest minus its closest; or nothing."""
    said: dict[str, list[str]] = {}
    compared = []
    for task in tasks:
        best, *others = [row.encoder for row in contenders(data, *task[:3])] or [""]
        if not best:
            continue
        states = {name: found.state for name in others if (found := standing.decision(data, *task[:3], name, best))}
        rival = next((name for name, state in states.items() if state == "undecided"), next(iter(states), ""))
        metric, row = data.metric(task.metric), data.comparison(*task[:3], best, rival)
        if row is None or row.difference is None:
            figure = words.figure(metric, data.row(*task[:3], best))
            said.setdefault(best, []).append(f"{figure} on {task.title}")
            continue
        compared.append((metric, row))
        interval = words.interval(metric, claimed(row))
        alike = row.wins == row.losses == 0
        p = "the same on every query" if alike else f"adjusted p {show.p_value(row.p_adjusted)}"
        inner = [interval, p, words.verdict(metric, row)]
        text = f"{task.title} {words.difference(metric, row.difference)} ({', '.join(filter(None, inner))})"
        said.setdefault(f"{best} minus {rival}", []).append(text)
    pairs = (f"{pair}: {', '.join(of)}" for pair, of in said.items())
    return f"{tasks[0].corpus}, {'; '.join(pairs)}. {words.settled(compared)}".rstrip() if said else ""


def _ranks(data: ReportData) -> Iterator[str]:
    """Yield the ranks over corpora that the tests leave open, and which corpora count; nothing without a ranking."""
    for estimand in sorted({row.estimand for row in data.rankings}, reverse=True):
        rows = sorted(
            (row for row in data.rankings if row.estimand == estimand and row.value is not None),
            key=lambda row: (row.rank_low or 0, row.rank_high or 0, row.encoder),
        )
        named = [f"{row.encoder} {show.ranks(row.rank_low, row.rank_high or 0)}" for row in rows if row.rank_low]
        reasons = dict.fromkeys(row.reason or "" for row in rows if not row.rank_low)
        if said := ", ".join(named) or "; ".join(filter(None, reasons)):
            yield f"Ranks on {estimand}: {said}."
    if data.rankings:
        yield from about_corpora(json.loads(data.rankings[0].corpora))


def section(data: ReportData) -> Section:
    """Return one chart for every headline result with two contenders or more, with the grid of their pairs."""
    blocks = [made for task in standing.headline_tasks(data) for made in (of_task(data, task), grid(data, task))]
    return Section(id="tests", title="Tests", lead=NOTE, blocks=tuple(filter(None, blocks)))


def grid(data: ReportData, task: Task) -> Table | None:
    """Return the differences of all pairs of a task with their significance; None of fewer than three encoders."""
    names = [row.encoder for row in contenders(data, *task[:3])[:MOST]]
    metric = data.metric(task.metric)

    def against(rival: str) -> Callable[[str], str | Cell]:
        def cell(name: str) -> str | Cell:
            row = data.comparison(*task[:3], name, rival)
            if row is None:
                return show.ABSENT
            found = next((sign for sign, level in SIGNIFICANT.items() if (row.p_adjusted or 0.0) < level), "ns")
            stars = "" if row.p_adjusted is None else f" {found}"
            return Cell(text=f"{words.difference(metric, row.difference)}{stars}", title=words.verdict(metric, row))

        return cell

    title = f"{task.corpus}, {task.title}"
    columns = [numbers(name, against(name)) for name in names]
    place = anchor("pairs", task.corpus, task.protocol, task.metric)
    made = pivot(place, title, names, texts("Encoder", str), *columns, folded=f"All pairs: {title}", note=STARS)
    return made if len(names) > 2 else None


def of_task(data: ReportData, task: Task) -> Chart | None:
    """Return the encoders of a task that are not at chance, best first; None of fewer than two."""
    rows = contenders(data, *task[:3])[:MOST]
    if len(rows) < 2:
        return None
    metric = data.metric(task.metric)
    marked = [marked_result(data, row, stand(data, *task[:3], row.encoder)[0]) for row in rows]
    title = f"{task.corpus}, {task.title}"
    unit = f"{metric.label}{', percent' * (metric.unit == 'percent')}"
    pairs = zip(marked, rows, strict=True)
    named = [(f"{each.name} {each.text}", words.interval(metric, row)) for each, row in pairs]
    said = "; ".join(f"{name} ({ends})" if ends else name for name, ends in named)
    return Chart(
        id=anchor("test", task.corpus, task.protocol, task.metric),
        title=title,
        alt=f"{unit}. {said}.",
        svg=forest(marked, metric.label),
    )


def marked_result(data: ReportData, row: Result, kind: Kind) -> Marked:
    """Return a result to be drawn: in percent, or in the unit of its metric."""
    metric, exact = data.metric(row.metric), row.value or 0.0
    scale = 100.0 if metric.unit == "percent" else 1.0
    low, high = (scale * end for end in ends(exact, row.ci_low, row.ci_high))
    return Marked(row.encoder, kind, scale * exact, low, high, words.value(metric, exact))


def pairs(data: ReportData, caption: str, rows: list[Comparison]) -> Table:
    """Return comparisons of one corpus, for papers and `capim serve`: difference with interval, test, verdict."""

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
