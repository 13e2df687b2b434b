"""``/``: every encoder on every task, as in a report, of the corpora, encoders and metric that one chooses."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from capim.reports.app.rendering import View, link, respond
from capim.reports.app.state import Snapshot, Statement, names_in, state_of
from capim.reports.elements.page import Table
from capim.reports.elements.tables import ColumnOf, axis_of, metric_title, numbers, pivot, texts
from capim.reports.rows.report_data import ReportData, Row
from capim.reports.rows.standing import Task, in_order
from capim.reports.sections.answer import task_cell
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
        "metrics": [("", "headline of each task"), *((name, metric_title(name)) for name in _metrics(snapshot))],
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
                explain=f"{metric_title(task.metric)}: {task.protocol}",
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
