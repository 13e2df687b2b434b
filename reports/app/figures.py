"""The pages of results.

``/``: the board of a report; ``/runs``: what changed between two runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from textwrap import shorten
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from capim.reports import compare
from capim.reports import format as show
from capim.reports.app import state as app
from capim.reports.app.state import PAGE, PAGES, Answer, State, Statement, Values, View, respond, state_of
from capim.reports.elements.page import Cell, Section, Table
from capim.reports.elements.tables import link, names, numbers, pivot, texts
from capim.reports.render import render_html, values_of
from capim.reports.rows.reading import APART
from capim.reports.rows.snapshot import state_after
from capim.reports.rows.standing import conclusions
from capim.reports.write import report_of
from capim.store import EmbeddingStore
from capim.store.current import grouped
from capim.store.errors import RequestError, unknown
from capim.store.schema import LedgerEntry, Run
from capim.tasks.protocols import Protocol

SECTIONS = ("sure", "languages")  # of a report, on the first page; all others are in the report itself
_RUNS = "SELECT run, name, state, started, finished, command FROM runs ORDER BY started DESC, run DESC"
_FIGURES = """SELECT corpus, protocol, metric, encoder, a.value AS old, b.value AS new, b.value - a.value AS difference
FROM all_results a JOIN all_results b USING (corpus, protocol, metric, encoder)
WHERE concat(a.result, ' ', b.result) IN (SELECT unnest(?))
ORDER BY corpus, protocol, metric, encoder"""
_BOTH = "a JOIN all_outcome_states b ON b.query_id = a.query_id AND b.query_ord = a.query_ord"
_CHANGED = "(a.rank_best <> b.rank_best OR a.rank_worst <> b.rank_worst)"
_COUNTS = f"""SELECT a.evaluation AS old, b.evaluation AS new, count(*) AS n, count(*) FILTER ({_CHANGED}) AS changed,
       count(*) FILTER (b.found AND NOT a.found) AS found, count(*) FILTER (a.found AND NOT b.found) AS lost
FROM all_outcome_states {_BOTH}
WHERE concat(a.evaluation, ' ', b.evaluation) IN (SELECT unnest(?))
GROUP BY a.evaluation, b.evaluation"""  # noqa: S608 - our own text
_QUERIES = f"""SELECT a.query_id, a.query_ord, i.text, a.rank_best AS old_rank,
       a.rank_worst AS old_rank_worst, b.rank_best AS new_rank, b.rank_worst AS new_rank_worst
FROM all_outcomes {_BOTH}
  LEFT JOIN all_items i ON i.corpus_fingerprint = a.corpus_fingerprint AND i.id = a.query_id
    AND i.modality = CASE WHEN a.protocol LIKE 'i2%' THEN 'image' ELSE 'caption' END
WHERE a.evaluation = ? AND b.evaluation = ? AND {_CHANGED}
ORDER BY greatest(a.rank_worst, b.rank_worst) / least(a.rank_worst, b.rank_worst) DESC, a.query_ord"""  # noqa: S608 - our own text


def grid(request: Request) -> Response:
    """Return the page of the current results: the board, with links from its cells to the missed queries."""
    snapshot = state_of(request).snapshot()
    report = snapshot.kept("report", lambda: report_of(snapshot.data, sections=SECTIONS))
    if request.query_params.get("as") == "html":
        return HTMLResponse(
            render_html(report, saved=True), headers={"Content-Disposition": 'attachment; filename="capim.html"'}
        )
    tasks = [task for of in conclusions(snapshot.data).values() for task in of]
    of_task = " OR ".join("(corpus = ? AND protocol = ? AND metric = ?)" for _ in tasks) or "FALSE"
    statement = Statement(
        sql=f"""SELECT corpus, protocol, metric, encoder, value, ci_low, ci_high, n_queries, n_clusters
FROM results
WHERE {of_task}
ORDER BY corpus, protocol, metric, CASE WHEN lower_is_better THEN value ELSE -value END, encoder""",  # noqa: S608 - only placeholders are put in
        parameters=tuple(part for task in tasks for part in task[:3]),
    )
    values = values_of(report)
    return respond(request, View(template="grid.html", title=report.title, statement=statement, values=values))


def runs(request: Request) -> Response:
    """Return the page of two runs: the choice, the changes between them, and one task's queries with a new rank."""
    state, chosen = state_of(request), request.query_params.get("task", "")
    snapshot = state.snapshot()
    known = snapshot.kept("runs", lambda: _runs(snapshot.reader))
    old, new = _two_runs(request, known)
    values: Values = {
        "runs": [(each.run, each.label) for each in known if each.evaluated or each.run in (old, new)],
        "old": old,
        "new": new,
        "sections": (),
        "tasks": None,
        "queries": None,
    }
    statement = Statement(sql=_RUNS)
    if old and new:
        changes = snapshot.last("two runs", (old, new), lambda: _changes(state, snapshot.reader, old, new))
        statement = Statement(sql=_FIGURES, parameters=(changes.figures,))
        values |= {"sections": changes.sections, "tasks": changes.tasks, "summary": changes.summary}
        labels = {each.run: each.label for each in known}
        values["since"] = labels.get(old, old).partition(" evaluated")[0]
        if chosen:
            tasks = {" ".join(task): task for task in changes.again}
            if chosen not in tasks:
                raise RequestError(unknown("task", chosen, sorted(tasks)))
            statement = Statement(sql=_QUERIES, parameters=changes.again[tasks[chosen]])
            values |= _changed_queries(request, state, statement, tasks[chosen])
    view = View(template="runs.html", title=PAGES["/runs"], statement=statement, values=values)
    return respond(request, view)


class _Changes(NamedTuple):
    """The changes between two runs.

    ``summary``: the numbers of results, in a sentence; ``figures``: the keys of both results of each changed
    value; ``again``: corpus, protocol and encoder to the evaluations of both, where these differ.
    """

    summary: str
    figures: list[str]
    sections: tuple[Section, ...]
    again: dict[tuple[str, str, str], tuple[str, str]]
    tasks: Table


def _changes(state: State, store: EmbeddingStore, old: str, new: str) -> _Changes:
    before, after = state_after(store, old), state_after(store, new)
    shared = [(key, row, after.results[key]) for key, row in sorted(before.results.items()) if key in after.results]
    figures = [f"{row.result} {now.result}" for _, row, now in shared if row.value != now.value]
    again = {
        (key[0], key[1], key[3]): (row.evaluation, now.evaluation)
        for key, row, now in shared
        if row.evaluation != now.evaluation
    }
    report = compare.compare(before, after)
    n = dict(report.facts)
    summary = f"{n['Changed']} of {n['Figures in both']} shared figures changed: {n['Significant']} significantly"
    summary += f", {n['Worse']} of these for the worse."
    if n["Changed"] == "0":
        summary = f"None of {n['Figures in both']} shared figures differs."
    return _Changes(summary, figures, report.sections, again, _counted(state, again, old, new))


class _Known(NamedTuple):
    """A run in words, and whether it evaluated, so that it made results or found them stored."""

    run: str
    label: str
    evaluated: bool
    started: datetime
    finished: datetime


def _runs(store: EmbeddingStore) -> list[_Known]:
    """Return every run, newest first."""
    results = store.all(LedgerEntry, kind="result")
    protocols = {row.key: row.subject.protocol or "" for row in results}
    made, used = grouped(results, lambda row: row.run), {each.run: each.keys for each in store.runs()}
    found = []
    for row in sorted(store.all(Run), key=lambda row: (row.started, row.run), reverse=True):
        own = [each.key for each in made.get(row.run, ())]
        keys = protocols.keys() & {*own, *used.get(row.run, ())}  # a run may have begun since they were read
        n = sum(name != "*" and not Protocol.of(name).is_combined for name in {protocols[key] for key in keys})
        did = f"evaluated {show.count(n, 'protocol') if n else 'nothing'}{', all stored before' * (n > 0 and not own)}"
        label = f"{row.started:%Y-%m-%d %H:%M:%S} {did} ({row.state}): {shorten(row.command, 80)}"
        found.append(_Known(row.run, label, n > 0, row.started, row.finished or row.started))
    return found


def _two_runs(request: Request, known: Sequence[_Known]) -> tuple[str, str]:
    """Return the runs of the address; else the newest that evaluated, and the last one of the night before.

    Runs less than ``APART`` apart are of one night, as on the board; of only one night the last run before is taken.
    """
    evaluated = [each for each in known if each.evaluated]
    new = request.query_params.get("new") or next((each.run for each in evaluated), "")
    at = next((at for at, each in enumerate(known) if each.run == new), len(known))
    rest = [*known[at : at + 1], *(each for each in known[at + 1 :] if each.evaluated)]
    earlier = [before.run for after, before in pairwise(rest) if after.started - before.finished > APART]
    last = [each.run for each in rest[1:]]
    return request.query_params.get("old") or next(iter([*earlier, *last]), ""), new


def _counted(state: State, again: dict[tuple[str, str, str], tuple[str, str]], old: str, new: str) -> Table:
    """Return the number of changed queries by task, with the URL of their list; tasks need stored queries."""
    statement = Statement(sql=_COUNTS, parameters=([" ".join(pair) for pair in again.values()],))
    counts = {(row["old"], row["new"]): row for row in state.rows(statement).to_pylist()} if again else {}

    def changed(of: tuple[tuple[str, str, str], Answer]) -> Cell:
        place = link("/runs", old=old, new=new, task=" ".join(of[0])) + "#queries"
        return Cell(text=f"{of[1]['changed']}", link=place if of[1]["changed"] else "")

    return pivot(
        "again",
        "Tasks that were evaluated again: queries of the later run against the earlier one",
        [(task, counts[pair]) for task, pair in again.items() if pair in counts],
        *names(lambda of: (of[0][2], *of[0][:2])),
        numbers("queries", lambda of: f"{of[1]['n']}"),
        numbers("another rank", changed),
        numbers("newly found", lambda of: f"{of[1]['found']}"),
        numbers("newly missed", lambda of: f"{of[1]['lost']}"),
        note="Found: the best relevant item is first, without a tie.",
    )


def _changed_queries(request: Request, state: State, statement: Statement, task: tuple[str, str, str]) -> Values:
    text = request.query_params.get("page") or "1"
    if faults := app.faults_of_number("page", text):
        raise RequestError(faults)
    limited = (*statement.parameters, PAGE + 1, PAGE * (int(text) - 1))
    rows = state.rows(Statement(sql=f"{statement.sql}\nLIMIT ? OFFSET ?", parameters=limited)).to_pylist()

    corpus, protocol, encoder = task
    known = state.snapshot().evaluated.get((corpus, protocol))
    is_current = known is not None and encoder in known.evaluations

    def named(row: Answer) -> Cell:
        place = link(f"/query/{row['query_id']}", corpus=corpus, protocol=protocol, encoders=encoder)
        return Cell(text=row["query_id"], link=place if is_current else "")

    def now(row: Answer) -> Cell:
        better = row["new_rank_worst"] < row["old_rank_worst"]
        return Cell(text=show.ranks(row["new_rank"], row["new_rank_worst"]), mark="good" if better else "bad")

    table = pivot(
        "changed-queries",
        f"{' '.join(task)}: queries with another rank, largest change first",
        rows[:PAGE],
        texts("Query", named),
        texts("text", lambda row: row["text"] or ""),
        numbers("rank before", lambda row: show.ranks(row["old_rank"], row["old_rank_worst"])),
        numbers("rank now", now),
    )
    return {"queries": table, "number": int(text), "more": len(rows) > PAGE}
