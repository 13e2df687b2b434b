"""The pages of results.

``/``: the board of a report; ``/compare``: one encoder against another; ``/runs``: what changed between two runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from textwrap import shorten
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from capim.reports import compare
from capim.reports import format as show
from capim.reports.app import state as app
from capim.reports.app.filters import QueryFilter, over, read_filter, select
from capim.reports.app.queries import count, link_of
from capim.reports.app.state import (
    PAGE,
    Answer,
    EvaluatedTask,
    State,
    Statement,
    StoreSnapshot,
    Values,
    View,
    respond,
    state_of,
)
from capim.reports.elements.page import Cell, Section, Table
from capim.reports.elements.tables import link, names, numbers, only, pivot, texts
from capim.reports.render import render_html, values_of
from capim.reports.rows.report_data import ReportData
from capim.reports.rows.snapshot import state_after
from capim.reports.sections import differences
from capim.reports.write import report_of
from capim.store import EmbeddingStore
from capim.store.current import grouped
from capim.store.errors import RequestError, unknown
from capim.store.schema import Comparison, LedgerEntry, Run
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
    tasks = [task for conclusion in snapshot.conclusions for task in conclusion.tasks]
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


def pair(request: Request) -> Response:
    """Two encoders on one task: who finds what, rank against rank, and the stored tests."""
    state = state_of(request)
    snapshot = state.snapshot()
    wanted, evaluated, a, b = _pair(request, snapshot)
    comparable = [key for key, each in snapshot.evaluated.items() if len(each.evaluations) > 1]
    both = QueryFilter(corpus=wanted.corpus, protocol=wanted.protocol)
    quarters = {
        "both": both.but(right=(a, b)),
        "only_a": both.but(right=(a,), wrong=(b,)),
        "only_b": both.but(wrong=(a,), right=(b,)),
        "neither": both.but(wrong=(a, b)),
    }
    counts = {name: count(state, snapshot, of, evaluated) for name, of in {"all": both, **quarters}.items()}
    tied = counts.pop("all") - sum(counts.values())  # a query that a tie decides is in none of the four
    where = (wanted.corpus, wanted.protocol)
    metrics = sorted({row.metric for row in snapshot.data.of(*where)})
    tested = [row for m in metrics if (row := snapshot.data.comparison(*where, m, a, b)) is not None]
    values = {
        "wanted": wanted,
        "a": a,
        "b": b,
        "names": list(evaluated.evaluations),
        "absent": [name for name in _given(request) if name and name not in evaluated.evaluations],
        "corpora": list(dict.fromkeys(corpus for corpus, _ in comparable)),
        "protocols": [(p, snapshot.data.titled(corpus, p)) for corpus, p in comparable if corpus == wanted.corpus],
        "total": show.count(tied + sum(counts.values()), "query", "queries"),
        "ties": show.count(tied, "query", "queries") if tied else "",
        "quarters": {name: (f"{counts[name]:,}", link_of(of)) for name, of in quarters.items()},
        "table": _tests(snapshot.data, wanted.corpus, tested) if tested else None,
        "points": link("/compare/points", **wanted.parameters),
        "queries": link_of(both),
    }
    view = View(template="compare.html", title=f"{a} against {b}", statement=select(wanted, evaluated), values=values)
    return respond(request, view)


def _tests(data: ReportData, corpus: str, rows: list[Comparison]) -> Table:
    shown = ("metric", "difference", "the first is", "p", "adjusted p")
    title = f"{rows[0].encoder_a} minus {rows[0].encoder_b}: the stored tests"
    return replace(only(differences.pairs(data, corpus, rows), *shown), id="tests", caption=title)


def points(request: Request) -> Response:
    """Every pair of ranks that occurs, with its number of queries: ``[rank by A, rank by B, queries]``."""
    state = state_of(request)
    wanted, evaluated, a, b = _pair(request, state.snapshot())
    ranks = f'"{a}" AS a, "{b}" AS b, count(*) AS n'
    ends = "WHERE a IS NOT NULL AND b IS NOT NULL\nGROUP BY ALL\nORDER BY ALL"
    rows = state.rows(over(select(wanted, evaluated), ranks, ends))
    return JSONResponse(list(zip(*(rows[name].to_pylist() for name in ("a", "b", "n")), strict=True)))


def _pair(request: Request, snapshot: StoreSnapshot) -> tuple[QueryFilter, EvaluatedTask, str, str]:
    """The filter with the two encoders, which ``a`` and ``b`` or ``encoders`` name; else the first two of the grid.

    Another task of the form may not have been evaluated for the encoders that were shown: then others are.
    """
    wanted, evaluated = read_filter(request.query_params, snapshot)
    known = list(evaluated.evaluations)
    if len(known) < 2:
        raise RequestError(f"{wanted.protocol} on {wanted.corpus} was evaluated for {', '.join(known)} only")
    given = _given(request)
    everywhere = {name for each in snapshot.evaluated.values() for name in each.evaluations}
    if faults := [unknown("encoder", name, known) for name in given if name and name not in everywhere]:
        raise RequestError(faults)
    given = [name if name in known else "" for name in given]
    best = [name for found in snapshot.conclusions if found.corpus == wanted.corpus for name in found.order]
    order = [*wanted.encoders, *(name for name in best if name in known), *known]
    a = given[0] or next(name for name in order if name != given[1])
    b = given[1] if given[1] not in ("", a) else next(name for name in order if name != a)
    return QueryFilter(corpus=wanted.corpus, protocol=wanted.protocol, encoders=(a, b)), evaluated, a, b


def _given(request: Request) -> list[str]:
    """The encoders that ``a`` and ``b`` name, empty where they name none."""
    return [request.query_params.get(name, "") for name in ("a", "b")]


def runs(request: Request) -> Response:
    """Return the page of two runs: the choice, the changes between them, and one task's queries with a new rank."""
    state, chosen = state_of(request), request.query_params.get("task", "")
    snapshot = state.snapshot()
    known = snapshot.kept("runs", lambda: _runs(snapshot.reader))
    old, new = _two_runs(request, known)
    values: Values = {
        "runs": [(run, label) for run, label, evaluated in known if evaluated or run in (old, new)],
        "old": old,
        "new": new,
        "sections": (),
        "tasks": None,
        "queries": None,
    }
    statement = Statement(sql=_RUNS)
    if old and new:
        changes = snapshot.last("two runs", (old, new), lambda: _changes(state, old, new))
        statement = Statement(sql=_FIGURES, parameters=(changes.figures,))
        values |= {"sections": changes.sections, "tasks": changes.tasks, "summary": changes.summary}
        values["since"] = next(label.partition(" evaluated")[0] for run, label, _ in known if run == old)
        if chosen:
            pairs = {" ".join(task): pair for task, pair in changes.again.items()}
            if chosen not in pairs:
                raise RequestError(unknown("task", chosen, sorted(pairs)))
            statement = Statement(sql=_QUERIES, parameters=pairs[chosen])
            values |= _changed_queries(request, state, statement)
    view = View(template="runs.html", title="Changes from one run to another", statement=statement, values=values)
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


def _changes(state: State, old: str, new: str) -> _Changes:
    store = state.snapshot().reader
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


def _runs(store: EmbeddingStore) -> list[tuple[str, str, bool]]:
    """Every run, newest first: in words, and whether it evaluated, so that it made results or found them stored."""
    results = store.all(LedgerEntry, kind="result")
    protocols = {row.key: row.subject.protocol or "" for row in results}
    made, used = grouped(results, lambda row: row.run), {each.run: each.keys for each in store.runs()}
    found = []
    for row in sorted(store.all(Run), key=lambda row: (row.started, row.run), reverse=True):
        own = [each.key for each in made.get(row.run, ())]
        keys = protocols.keys() & {*own, *used[row.run]}
        n = sum(name != "*" and not Protocol.of(name).is_combined for name in {protocols[key] for key in keys})
        did = f"evaluated {show.count(n, 'protocol') if n else 'nothing'}{', all stored before' * (n > 0 and not own)}"
        label = f"{row.started:%Y-%m-%d %H:%M:%S} {did} ({row.state}): {shorten(row.command, 80)}"
        found.append((row.run, label, n > 0))
    return found


def _two_runs(request: Request, known: Sequence[tuple[str, str, bool]]) -> tuple[str, str]:
    """The runs of the address; where it has none, the newest that evaluated and the last that did before it."""
    new = request.query_params.get("new") or next((run for run, _, evaluated in known if evaluated), "")
    runs = [run for run, *_ in known]
    before = known[runs.index(new) + 1 :] if new in runs else []
    return request.query_params.get("old") or next((run for run, _, evaluated in before if evaluated), ""), new


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


def _changed_queries(request: Request, state: State, statement: Statement) -> Values:
    text = request.query_params.get("page") or "1"
    if faults := app.faults_of_number("page", text):
        raise RequestError(faults)
    limited = (*statement.parameters, PAGE + 1, PAGE * (int(text) - 1))
    rows = state.rows(Statement(sql=f"{statement.sql}\nLIMIT ? OFFSET ?", parameters=limited)).to_pylist()

    def now(row: Answer) -> Cell:
        better = row["new_rank_worst"] < row["old_rank_worst"]
        return Cell(text=show.ranks(row["new_rank"], row["new_rank_worst"]), mark="good" if better else "bad")

    table = pivot(
        "changed-queries",
        f"{request.query_params['task']}: queries with another rank, largest change first",
        rows[:PAGE],
        texts("Query", lambda row: row["query_id"]),
        texts("text", lambda row: row["text"] or ""),
        numbers("rank before", lambda row: show.ranks(row["old_rank"], row["old_rank_worst"])),
        numbers("rank now", now),
    )
    return {"queries": table, "number": int(text), "more": len(rows) > PAGE}
