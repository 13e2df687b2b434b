"""Evidence for the recommendation: its tests, the ranks that they allow, and the statements that share a budget."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import permutations

from capim.reports import format as show
from capim.reports.elements import words
from capim.reports.elements.page import Evidence, Section
from capim.reports.rows import standing
from capim.reports.rows.choice import overall
from capim.reports.rows.report_data import ReportData
from capim.reports.rows.speed import image_rate, speed_ratio
from capim.reports.rows.standing import Conclusion, about_corpora


def section(data: ReportData) -> Section:
    """Return the tests behind the recommendation."""
    lines = evidence(data)
    return Section(id="sure", title="How sure is this?", blocks=(Evidence(lines=lines),) * bool(lines), folded=True)


def evidence(data: ReportData) -> tuple[str, ...]:
    """Return the tests behind the answer, one line for every corpus, and which statements share which budget."""
    found = standing.conclusions(data)
    lines = (line for each in found for line in (_tests(data, each), *words.weights(data, each.tasks)))
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


def _tests(data: ReportData, conclusion: Conclusion) -> str:
    """Return the tests of a corpus: for every task with contenders, the highest minus its closest; or nothing."""
    said: dict[str, list[str]] = {}
    compared = []
    for task in conclusion.tasks:
        best, *others = [row.encoder for row in standing.contenders(data, *task[:3])] or [""]
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
        interval = words.interval(metric, standing.claimed(row))
        alike = row.wins == row.losses == 0
        p = "the same on every query" if alike else f"adjusted p {show.p_value(row.p_adjusted)}"
        inner = [interval, p, words.verdict(metric, row)]
        text = f"{task.title} {words.difference(metric, row.difference)} ({', '.join(filter(None, inner))})"
        said.setdefault(f"{best} minus {rival}", []).append(text)
    pairs = (f"{pair}: {', '.join(of)}" for pair, of in said.items())
    return f"{conclusion.corpus}, {'; '.join(pairs)}. {words.settled(compared)}".rstrip() if said else ""


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
