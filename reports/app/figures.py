"""``/``: every encoder on every task, as in a report, of the corpora, encoders and metric that one chooses."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from capim.reports import compare
from capim.reports import format as show
from capim.reports.app.filters import QueryFilter, all_of, read_filter
from capim.reports.app.queries import link_of
from capim.reports.app.state import Evaluated, Snapshot, State, Statement, View, link, names_in, respond, state_of
from capim.reports.elements.page import Table
from capim.reports.elements.tables import (
    ColumnOf,
    axis_of,
    difference_cell,
    numbers,
    pivot,
    result_cell,
    row_words,
    texts,
    value,
)
from capim.reports.rows.names import named
from capim.reports.rows.report_data import ReportData, Row
from capim.reports.rows.snapshot import Snapshot, end_of, state_after
from capim.reports.rows.standing import Task, decision, in_order
from capim.reports.sections.answer import task_cell
from capim.store import EmbeddingStore
from capim.store.errors import RequestError, unknown

HEADLINE = ""  # the headline metric of every task


def page(request: Request) -> Response:
    """The grid; its cells lead to the queries that the encoder misses."""
    snapshot = state_of(request).snapshot()
    corpora = _chosen(request, "corpora", snapshot.data.corpus_names())
    encoders = _chosen(request, "encoders", snapshot.data.encoder_names())
    metric = request.query_params.get("metric", HEADLINE)
    tasks = _tasks(snapshot, corpora, metric)
    found = snapshot.conclusions
    order = [name for name in (in_order(snapshot.data, found) if found else encoders) if name in encoders]
    values = {
        "table": _grid(snapshot.data, tasks, order),
        "links": [[_queries_of(snapshot, task, name) for task in tasks] for name in order],
        "corpora": [(name, name in corpora) for name in snapshot.data.corpus_names()],
        "encoders": [(name, name in encoders) for name in snapshot.data.encoder_names()],
        "metrics": [
            ("", "headline of each task"),
            *((name, snapshot.data.metric(name).label) for name in _metrics(snapshot)),
        ],
        "metric": metric,
    }
    title = "Every encoder on every task"
    return respond(request, View(template="grid.html", title=title, statement=_rows(tasks, order), values=values))


def _chosen(request: Request, name: str, known: list[str]) -> list[str]:
    """The names of a parameter, given once with commas or several times; all where none is given."""
    given = names_in(request.query_params, name)
    if faults := [unknown(name, each, known) for each in given if each not in known]:
        raise RequestError(faults)
    return [each for each in known if each in given] if given else known


def _tasks(snapshot: Snapshot, corpora: list[str], metric: str) -> list[Task]:
    found = snapshot.conclusions
    headline = [task for conclusion in found for task in conclusion.tasks if task.corpus in corpora]
    if metric == HEADLINE:
        return headline
    if metric not in _metrics(snapshot):
        raise RequestError(unknown("metric", metric, _metrics(snapshot)))
    tasks = [task._replace(metric=metric) for task in headline]
    return [task for task in tasks if snapshot.data.ranked(*task[:3])]


def _metrics(snapshot: Snapshot) -> list[str]:
    """The metrics of the headline tasks."""
    protocols = {(task.corpus, task.protocol) for found in snapshot.conclusions for task in found.tasks}
    return sorted({row["metric"] for row in snapshot.data.results if (row["corpus"], row["protocol"]) in protocols})


def _grid(data: ReportData, tasks: list[Task], order: list[str]) -> Table:
    rows: dict[str, list[Row]] = {}
    for task in tasks:
        rows.setdefault(task.metric, []).extend(data.ranked(*task[:3]))
    columns: list[ColumnOf[str]] = [
        texts("Encoder", str),
        *(
            numbers(
                task.title,
                partial(task_cell, data=data, task=task, axis=axis_of(rows[task.metric])),
                group=task.corpus,
                explain=f"{data.metric(task.metric).label}: {task.protocol}",
            )
            for task in tasks
        ),
    ]
    return pivot("grid", "Encoders and tasks", order, *columns)


def _queries_of(snapshot: Snapshot, task: Task, encoder: str) -> str:
    """The address of the queries that an encoder misses in a task; empty where single queries are not stored."""
    evaluated = snapshot.evaluated.get((task.corpus, task.protocol))
    if evaluated is None or encoder not in evaluated.evaluations:
        return ""
    return link("/queries", corpus=task.corpus, protocol=task.protocol, wrong=encoder)


def _rows(tasks: list[Task], order: list[str]) -> Statement:
    """The results in the grid."""
    of_task = " OR ".join("(corpus = ? AND protocol = ? AND metric = ?)" for _ in tasks) or "FALSE"
    return Statement(
        sql=f"""SELECT corpus, protocol, metric, encoder, value, ci_low, ci_high, n_queries, n_clusters
FROM results
WHERE ({of_task})
  AND encoder IN ({", ".join("?" for _ in order) or "NULL"})
ORDER BY corpus, protocol, metric, CASE WHEN lower_is_better THEN value ELSE -value END""",  # noqa: S608 - only placeholders are put in
        parameters=(*(part for task in tasks for part in task[:3]), *order),
    )


def page(request: Request) -> Response:
    """Two encoders on one task."""
    state = state_of(request)
    snapshot = state.snapshot()
    wanted, evaluated, a, b = _chosen(request, snapshot)
    comparable = [key for key, each in snapshot.evaluated.items() if len(each.evaluations) > 1]
    found = snapshot.kept(("2x2", wanted), lambda: _quarters(state, wanted, evaluated))
    tied = found["n"] - sum(found[name] for name in ("both", "only_a", "only_b", "neither"))
    both = QueryFilter(corpus=wanted.corpus, protocol=wanted.protocol)
    values = {
        "wanted": wanted,
        "a": a,
        "b": b,
        "names": list(evaluated.evaluations),
        "absent": [name for name in _given(request) if name and name not in evaluated.evaluations],
        "corpora": list(dict.fromkeys(corpus for corpus, _ in comparable)),
        "protocols": [(protocol, named(protocol)) for corpus, protocol in comparable if corpus == wanted.corpus],
        "total": show.count(found["n"], "query", "queries"),
        "ties": show.count(tied, "query", "queries") if tied else "",
        "quarters": {
            "both": (f"{found['both']:,}", link_of(both.but(right=(a, b)))),
            "only_a": (f"{found['only_a']:,}", link_of(both.but(right=(a,), wrong=(b,)))),
            "only_b": (f"{found['only_b']:,}", link_of(both.but(wrong=(a,), right=(b,)))),
            "neither": (f"{found['neither']:,}", link_of(both.but(wrong=(a, b)))),
        },
        "table": _tests(snapshot.data, evaluated, a, b),
        "points": link("/compare/points", **wanted.parameters),
        "queries": link_of(both),
        "worst": found["worst"],
    }
    view = View(template="compare.html", title=f"{a} against {b}", statement=all_of(wanted, evaluated), values=values)
    return respond(request, view)


def points(request: Request) -> Response:
    """Every pair of ranks that occurs, with its number of queries: ``[rank by A, rank by B, queries]``."""
    state = state_of(request)
    wanted, evaluated, a, b = _chosen(request, state.snapshot())
    every = all_of(wanted, evaluated)
    sql = f"""SELECT "{a}" AS a, "{b}" AS b, count(*) AS n
FROM (
{every.sql}
)
WHERE a IS NOT NULL AND b IS NOT NULL
GROUP BY ALL
ORDER BY ALL"""  # noqa: S608 - names of the store's encoders, which have no quotes
    rows = state.rows(replace(every, sql=sql))
    return JSONResponse(list(zip(*(rows[name].to_pylist() for name in ("a", "b", "n")), strict=True)))


def _quarters(state: State, wanted: QueryFilter, evaluated: Evaluated) -> dict[str, int]:
    """Numbers of queries by who finds and who misses them; those that a tie decides are in none of the four."""
    a, b = wanted.encoders
    every = all_of(wanted, evaluated)
    found_a, found_b, missed_a, missed_b = f'"{a} (worst)" = 1', f'"{b} (worst)" = 1', f'"{a}" > 1', f'"{b}" > 1'
    sql = f"""SELECT count(*) AS n,
       count(*) FILTER ({found_a} AND {found_b}) AS both,
       count(*) FILTER ({found_a} AND {missed_b}) AS only_a,
       count(*) FILTER ({missed_a} AND {found_b}) AS only_b,
       count(*) FILTER ({missed_a} AND {missed_b}) AS neither,
       coalesce(greatest(max("{a}"), max("{b}")), 1) AS worst
FROM (
{every.sql}
)"""  # noqa: S608 - names of the store's encoders, which have no quotes
    [row] = state.rows(replace(every, sql=sql)).to_pylist()
    counted: dict[str, int] = row
    return counted


def _chosen(request: Request, snapshot: Snapshot) -> tuple[QueryFilter, Evaluated, str, str]:
    """The filter with the two encoders, which ``a`` and ``b`` or ``encoders`` name; else the first two of the grid.

    Another task of the form may not have been evaluated for the encoders that were shown: then others are.
    """
    wanted, evaluated = read_filter(request.query_params, snapshot)
    known = list(evaluated.evaluations)
    if len(known) < 2:
        raise RequestError(f"{evaluated.protocol} on {evaluated.corpus} was evaluated for {', '.join(known)} alone")
    given = _given(request)
    everywhere = {name for each in snapshot.evaluated.values() for name in each.evaluations}
    if faults := [unknown("encoder", name, known) for name in given if name and name not in everywhere]:
        raise RequestError(faults)
    given = [name if name in known else "" for name in given]
    best = [name for found in snapshot.conclusions if found.corpus == evaluated.corpus for name in found.order]
    order = [*wanted.encoders, *(name for name in best if name in known), *known]
    a = given[0] or next(name for name in order if name != given[1])
    b = given[1] or next(name for name in order if name != a)
    if a == b:
        b = next(name for name in order if name != a)
    return QueryFilter(corpus=evaluated.corpus, protocol=evaluated.protocol, encoders=(a, b)), evaluated, a, b


def _given(request: Request) -> list[str]:
    """The encoders that ``a`` and ``b`` name, empty where they name none."""
    return [request.query_params.get(name, "") for name in ("a", "b")]


def _tests(data: ReportData, evaluated: Evaluated, a: str, b: str) -> Table | None:
    """The stored comparisons of the two under this protocol; None where there is none."""
    where = (evaluated.corpus, evaluated.protocol)
    metrics = sorted({row["metric"] for row in data.results if (row["corpus"], row["protocol"]) == where})
    rows = {m: row for m in metrics if (row := data.comparison(*where, m, a, b)) is not None}
    if not rows:
        return None

    def figure(name: str) -> Any:
        return lambda metric: result_cell(data, data.row(*where, metric, name))

    def difference(metric: str) -> Any:
        return difference_cell(data.metric(metric), rows[metric])

    def verdict(metric: str) -> Any:
        found = decision(data, *where, metric, a, b)
        mark: Any = {"better": "good", "worse": "bad"}.get(found.state, "") if found else "muted"
        return value(None, row_words(data.metric(metric), rows[metric]), mark=mark)

    return pivot(
        "tests",
        "The stored tests, over the same queries",
        rows,
        texts("Metric", lambda metric: data.metric(metric).label),
        numbers(a, figure(a)),
        numbers(b, figure(b)),
        numbers("difference", difference, explain="with its interval; percentage points where the metric is a share"),
        numbers("p", lambda metric: show.p_value(rows[metric]["p_adjusted"]), explain="adjusted over all pairs"),
        texts(f"{a} is", verdict),
    )


PAGE = 50  # queries that are shown at a time
TITLE = "What changed from one run to another"
_RUNS = "SELECT run, name, state, started, finished, command FROM runs ORDER BY started DESC, run DESC"
_STATE = """SELECT corpus, protocol, metric, encoder, value, evaluation
  FROM results WHERE created <= CAST(? AS TIMESTAMPTZ)
  QUALIFY row_number() OVER (PARTITION BY corpus, protocol, metric, encoder ORDER BY created DESC) = 1"""
_FIGURES = f"""WITH before AS (
  {_STATE}
), after AS (
  {_STATE}
)
SELECT corpus, protocol, metric, encoder, before.value AS old, after.value AS new,
       after.value - before.value AS difference
FROM before JOIN after USING (corpus, protocol, metric, encoder)
WHERE before.value IS DISTINCT FROM after.value
ORDER BY corpus, protocol, metric, encoder"""  # noqa: S608 - our own text
_BOTH = "FROM outcomes a JOIN outcomes b ON b.query_id = a.query_id AND b.query_ord = a.query_ord"
_CHANGED = "(a.rank_best <> b.rank_best OR a.rank_worst <> b.rank_worst)"
_COUNTS = f"""SELECT a.evaluation AS old, b.evaluation AS new, count(*) AS n, count(*) FILTER ({_CHANGED}) AS changed,
       count(*) FILTER (a.rank_worst > 1 AND b.rank_worst = 1) AS found,
       count(*) FILTER (a.rank_worst = 1 AND b.rank_worst > 1) AS lost
{_BOTH}
WHERE concat(a.evaluation, ' ', b.evaluation) IN (SELECT unnest(?))
GROUP BY a.evaluation, b.evaluation"""
_QUERIES = f"""SELECT a.query_id, a.query_ord, i.text, a.rank_best AS old_rank, a.rank_worst AS old_rank_worst,
       b.rank_best AS new_rank, b.rank_worst AS new_rank_worst
{_BOTH}
  LEFT JOIN items i ON i.corpus_fingerprint = a.corpus_fingerprint AND i.id = a.query_id
    AND i.modality = CASE WHEN a.protocol LIKE 'i2t%' THEN 'image' ELSE 'caption' END
WHERE a.evaluation = ? AND b.evaluation = ? AND {_CHANGED}
ORDER BY greatest(a.rank_worst, b.rank_worst) / least(a.rank_worst, b.rank_worst) DESC, a.query_ord"""


class Evaluated(NamedTuple):
    """A task of one encoder that was evaluated anew between the runs."""

    corpus: str
    protocol: str
    encoder: str

    @property
    def name(self) -> str:
        """As in the address."""
        return " ".join(self)


def page(request: Request) -> Response:
    """The choice of two runs, what changed between them, and the queries of one task whose rank changed."""
    state, chosen = state_of(request), request.query_params.get("task", "")
    runs = state.store.sql(_RUNS).to_pylist()
    old, new = _chosen(request, state.store, [row["run"] for row in runs])
    values: dict[str, Any] = {
        "runs": [(r["run"], f"{r['started']:%Y-%m-%d %H:%M} {r['name']}, {r['state']}: {r['run']}") for r in runs],
        "old": old,
        "new": new,
        "sections": (),
        "thumbnails": {},
        "tasks": [],
        "queries": None,
    }
    statement = Statement(sql=_RUNS)
    if old and new:
        before, after = state_after(state.store, old), state_after(state.store, new)
        ends = tuple(f"{end_of(state.store, run)}" for run in (old, new))
        statement = Statement(sql=_FIGURES, parameters=ends)
        anew = evaluated_anew(before, after)
        values |= {"sections": compare.compare(before, after).sections, "tasks": _counted(state, anew, old, new)}
        if chosen:
            pairs = {task.name: pair for task, pair in anew.items()}
            if chosen not in pairs:
                raise RequestError(unknown("task", chosen, sorted(pairs)))
            statement = Statement(sql=_QUERIES, parameters=pairs[chosen])
            values |= _queries(request, state, statement) | {"chosen": chosen}
    return respond(request, View(template="runs.html", title=TITLE, statement=statement, values=values))


def _chosen(request: Request, store: EmbeddingStore, runs: list[str]) -> tuple[str, str]:
    """The runs of the address; where it has none, the newest that wrote figures and the one before."""
    written = store.counts("results", "run")
    newest = [run for run in runs if run in written]
    new = request.query_params.get("new") or (newest[0] if newest else "")
    before = newest[newest.index(new) + 1 :] if new in newest else []
    return request.query_params.get("old") or (before[0] if before else ""), new


def evaluated_anew(before: Snapshot, after: Snapshot) -> dict[Evaluated, tuple[str, str]]:
    """The tasks that both states have with other evaluations, and these: of the old one and of the new one."""
    return {
        Evaluated(corpus, protocol, encoder): (row["evaluation"], new["evaluation"])
        for (corpus, protocol, metric, encoder), row in sorted(before.results.items())
        if (new := after.results.get((corpus, protocol, metric, encoder))) is not None
        and row["evaluation"] != new["evaluation"]
    }


def _counted(state: State, anew: dict[Evaluated, tuple[str, str]], old: str, new: str) -> list[dict[str, Any]]:
    """Of each task the queries that changed, with the address of their list; tasks without stored queries left out."""
    pairs = [" ".join(pair) for pair in anew.values()]
    statement = Statement(sql=_COUNTS, parameters=(pairs,))
    counts = {(row["old"], row["new"]): row for row in state.rows(statement).to_pylist()} if pairs else {}
    return [
        {**task._asdict(), **counts[pair], "address": link("/runs", old=old, new=new, task=task.name) + "#queries"}
        for task, pair in anew.items()
        if pair in counts
    ]


def _queries(request: Request, state: State, statement: Statement) -> dict[str, Any]:
    text = request.query_params.get("page", "1")
    if not text.isdecimal() or not 1 <= int(text) < 10**9:
        raise RequestError(f"page={text}: expected a whole number from 1")
    limited = (*statement.parameters, PAGE + 1, PAGE * (int(text) - 1))
    rows = state.rows(Statement(sql=f"{statement.sql}\nLIMIT ? OFFSET ?", parameters=limited)).to_pylist()
    return {"queries": rows[:PAGE], "number": int(text), "more": len(rows) > PAGE}
