"""The first screen below the answer: every encoder on every task, with what the tests say of it."""

from __future__ import annotations

from functools import partial

from capim.reports import format as show
from capim.reports.elements.page import Cell, Evidence, Mark, Section, Table
from capim.reports.elements.tables import ColumnOf, absent, axis_of, metric_title, numbers, pivot, result_cell, texts
from capim.reports.rows.languages import DIRECTIONS, language_name, languages, translators
from capim.reports.rows.names import DIRECTION_TITLES, named
from capim.reports.rows.report_data import ReportData, Row
from capim.reports.rows.standing import (
    Conclusion,
    Task,
    chance_of,
    conclusions,
    decision,
    in_order,
    language_cells,
    values,
)
from capim.reports.sections.leaderboard import cost_columns
from capim.reports.sections.sentence import answer, state_words

OPEN_LANGUAGES = 8  # more are folded
MEAN = ", mean over languages"  # of the title of a task: stands with the corpus in the grid


def section(data: ReportData) -> Section:
    """The grid of encoders and tasks, and the tests behind the answer."""
    found = conclusions(data)
    blocks = (_grid(data, found, in_order(data, found)), Evidence(lines=answer(data)[1:])) if found else ()
    return Section(id="answer", title="Every encoder on every task", lead="", blocks=blocks)


def in_languages(data: ReportData) -> Section:
    """Every encoder in every language, which the means of the grid could hide."""
    found = conclusions(data)
    corpora = [corpus for corpus in data.corpus_names() if found and languages(data, corpus)]
    blocks = tuple(_languages(data, corpus, in_order(data, found)) for corpus in corpora)
    return Section(id="languages", title="Every language", lead="", blocks=blocks)


def _grid(data: ReportData, found: list[Conclusion], order: list[str]) -> Table:
    """Every encoder on every headline task, with what the tests say of it against the highest."""
    tasks = [task for conclusion in found for task in conclusion.tasks]
    rows: dict[str, list[Row]] = {}
    for task in tasks:
        rows.setdefault(task.metric, []).extend(data.ranked(*task[:3]))
    axes = {metric: axis_of(of) for metric, of in rows.items()}
    columns: list[ColumnOf[str]] = [
        texts("Encoder", str),
        *(
            numbers(
                direction,
                partial(task_cell, data=data, task=task, axis=axes[task.metric]),
                group=f"{task.corpus}{mean}",
                explain=f"{metric_title(task.metric)}, percent: {named(task.protocol)}",
            )
            for task in tasks
            for direction, mean, _ in [task.title.partition(MEAN)]
        ),
        *cost_columns(data, found[0].corpus),
    ]
    titles = {t.protocol: t.title for t in tasks}
    ids = "; ".join(f"{title} ({id_})" for id_, title in titles.items() if id_ not in title)
    return pivot(
        "answer-grid",
        "Encoders and tasks",
        order,
        *columns,
        sortable=True,
        note=f"Percent with interval: {show.listing([metric_title(metric) for metric in axes])}. Below: how it "
        f"compares with the highest of its column, in points. Bars of a metric share an axis; "
        f"dotted: chance. Ids: {ids}.",
    )


def task_cell(name: str, *, data: ReportData, task: Task, axis: tuple[float, float]) -> Cell:
    """The result of an encoder on a task, with its state against the best and whether it hides results at chance."""
    row = data.row(*task[:3], name)
    if row is None or row["value"] is None:
        return result_cell(row)
    best, chance = next(iter(values(data, task))), chance_of(row)
    words = "highest" if name == best else state_words(data, task, name, best, short=True, unit=False)
    hidden = _hidden(data, task, name) if task.protocol.endswith("/*/*") else ""
    found = decision(data, *task[:3], name, best)
    worse = found is not None and found.state == "worse"
    mark: Mark = "bad" if chance or worse else "best" if name == best else ""
    return result_cell(row, mark=mark, axis=axis, state="; ".join(filter(None, (chance, words, hidden))))


def _hidden(data: ReportData, task: Task, name: str) -> str:
    """The languages whose results a mean hides although they are not better than chance."""
    direction, codes = task.protocol.split("/")[0], languages(data, task.corpus)
    weak = [code for code in codes if any(map(chance_of, language_cells(data, task.corpus, name, code, direction)))]
    return f"{len(weak)} of {show.count(len(codes), 'language')} at chance" if weak else ""


def _languages(data: ReportData, corpus: str, order: list[str]) -> Table:
    """R@1 of every encoder in every language and direction: the lowest of its translators."""
    codes = languages(data, corpus)
    encoders = [name for name in order if name in data.encoder_names(corpus)]
    lowest = {
        (code, name, direction): min(found, key=lambda r: (r["value"], r["protocol"]))
        for direction in DIRECTIONS
        for name in encoders
        for code in codes
        if (found := language_cells(data, corpus, name, code, direction))
    }
    axis = axis_of([*lowest.values()])

    def cell(code: str, *, name: str, direction: str) -> Cell:
        row = lowest.get((code, name, direction))
        weak = chance_of(row)
        return result_cell(row, axis=axis, state=weak, mark="bad" if weak else "") if row else absent("not evaluated")

    several = len(translators(data, corpus)) > 1
    return pivot(
        f"answer-languages-{corpus}",
        f"{corpus} · R@1, percent" + (", the lowest of its translators" if several else ""),
        codes,
        texts("Language", lambda code: Cell(text=language_name(code), title=code)),
        *(
            numbers(name, partial(cell, name=name, direction=direction), group=DIRECTION_TITLES[direction])
            for direction in DIRECTIONS
            if any(key[2] == direction for key in lowest)
            for name in encoders
        ),
        sortable=True,
        dense=True,
        folded=f"All {len(codes)} languages of {corpus}" if len(codes) > OPEN_LANGUAGES else "",
    )
