"""Evidence for the recommendation: its tests, the ranks that they allow, and the statements that share a budget."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import permutations

from capim.reports import format as show
from capim.reports.elements import tables, words
from capim.reports.elements.page import Block, Cell, Evidence, Section, Table
from capim.reports.rows import standing
from capim.reports.rows.choice import overall
from capim.reports.rows.report_data import ReportData
from capim.reports.rows.speed import image_rate, speed_ratio
from capim.reports.rows.standing import MEAN, Conclusion, about_corpora, headline_tasks, intervals_of
from capim.store.schema import Ranking

THESE, LIKE_THESE = "these corpora", "corpora like these"


def section(data: ReportData) -> Section:
    """The tests behind the recommendation, and the ranking over corpora as it is stored."""
    lines = evidence(data)
    ranking = [_ranking(data)] if data.rankings else []
    blocks: tuple[Block, ...] = (*([Evidence(lines=lines)] if lines else []), *ranking)
    return Section(id="sure", title="How sure is this?", blocks=blocks, folded=True)


def evidence(data: ReportData) -> tuple[str, ...]:
    """The tests behind the answer, one line for every corpus, and which statements share which budget."""
    found = standing.conclusions(data)
    lines = (line for each in found for line in (_tests(data, each), *words.weights(data, each.tasks)))
    return (*filter(None, lines), *_faster(data), *words.budgets(data), *data.larger_families) if found else ()


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
    """The tests of a corpus: of every task with contenders, the highest minus its closest one; empty without any."""
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


def _ranking(data: ReportData) -> Table:
    rows = {(r.encoder, r.estimand): r for r in data.rankings}
    means = {r.encoder: r for r in data.rankings if r.estimand == THESE}
    order = sorted(means, key=lambda name: (means[name].value is None, -(means[name].value or 0.0), name))
    first = means[order[0]]

    def cell(name: str, estimand: str, made: Callable[[Ranking], Cell]) -> Cell:
        return made(rows.get((name, estimand)) or means[name])

    columns: list[tables.ColumnOf[str]] = [tables.texts("Encoder", str)]
    tested = any(r.rank_low is not None for r in data.rankings if r.estimand == LIKE_THESE)
    for estimand in (THESE, LIKE_THESE) if tested else (THESE,):
        group, explain = f"on {estimand}", f"Ranks that it can hold, on {estimand}"
        ranks, figure = (partial(cell, estimand=estimand, made=made) for made in (_open_ranks, _macro_mean))
        columns.append(tables.numbers("Ranks", ranks, group=group, explain=explain))
        columns.append(tables.numbers("macro mean", figure, group=group, explain="Mean of the headlines, percent"))
    for corpus in json.loads(first.corpora):
        name, explain = corpus["corpus"], f"{_headline(data, corpus)}, percent: {corpus['headline']}"
        of_corpus = {encoder: json.loads(row.headlines).get(name) for encoder, row in means.items()}
        columns.append(tables.measures(name, of_corpus.get, show.percent, group="headlines", explain=explain))
    ranked = show.encoders(first.n_encoders)
    return tables.pivot(
        "ranking-corpora",
        f"{ranked} over {show.corpora(first.n_corpora)}",
        order,
        *columns,
        note=" ".join(_ranking_note(data, first)),
        folded="The ranks over corpora that the tests leave open",
    )


def _macro_mean(row: Ranking) -> Cell:
    if row.value is None:
        return tables.absent(row.reason or "")
    return tables.value(
        row.value,
        show.percent(row.value),
        note=show.percent_range(row.ci_low, row.ci_high),
        title=row.reason or f"{row.interval_method} interval",
        state="can be first" if row.tied_with_best and row.rank != 1 else "",
        mark="best" if row.rank == 1 else "",
    )


def _open_ranks(row: Ranking) -> Cell:
    if row.rank_low is None or row.rank_high is None:
        return tables.absent(row.reason or "")
    return tables.value(-row.rank_low - row.rank_high / 1000, show.ranks(row.rank_low, row.rank_high), mark="muted")


def _headline(data: ReportData, corpus: Mapping[str, str]) -> str:
    """Return the terms of a headline's mean, in plain words; as stored where the report does not show it."""
    tasks = headline_tasks(data, corpus["corpus"])
    titles = [task.title.removesuffix(MEAN) for task in tasks]
    return f"{data.metric(tasks[0].metric).label}, {show.listing(titles)}" if tasks else corpus["headline"]


def _ranking_note(data: ReportData, first: Ranking) -> Iterator[str]:
    """Yield sentences on the headlines, the intervals, and the encoders that are not ranked."""
    corpora = json.loads(first.corpora)
    yield "Headlines: " + "; ".join(f"{corpus['corpus']}: {_headline(data, corpus)}" for corpus in corpora) + "."
    if len({corpus["headline"].split(" under ")[0] for corpus in corpora}) > 1:
        yield "They are different metrics: the macro mean averages percentages."
    yield f"On these corpora: intervals of macro means: {intervals_of([first])}."
    yield from about_corpora(corpora)
    like_these = next((r for r in data.rankings if r.estimand == LIKE_THESE), None)
    if like_these is not None:
        reason = like_these.reason if like_these.rank_low is None else None
        yield f"On corpora like these: {reason or 'Student’s t over the corpora'}."
    unranked = [r for r in data.rankings if r.value is None]
    if unranked:
        reasons = [f"{r.encoder} ({(r.reason or '').removeprefix('not ranked: ')})" for r in unranked]
        yield f"Not ranked: {'; '.join(reasons)}."
    ranked = {name for of in corpora for name in (of["corpus"], *of["copies"], *of.get("not_counted", ()))}
    others = [name for name in data.corpus_names() if name not in ranked]
    if others:
        yield f"Not in the ranking, because not all of its encoders have them: {show.listing(others)}."
