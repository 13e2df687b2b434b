"""``/compare``: one encoder against another: who finds what, rank against rank, and the stored tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from capim.reports import format as show
from capim.reports.app.filters import QueryFilter, all_of, read_filter
from capim.reports.app.pages.queries import link_of
from capim.reports.app.rendering import View, link, respond
from capim.reports.app.state import Evaluated, Snapshot, State, state_of
from capim.reports.elements.page import Table
from capim.reports.elements.tables import (
    difference_text,
    metric_title,
    numbers,
    pivot,
    range_text,
    result_cell,
    texts,
    value,
)
from capim.reports.rows.names import named
from capim.reports.rows.report_data import ReportData
from capim.reports.rows.standing import decision
from capim.reports.sections.sentence import row_words
from capim.store.errors import RequestError, unknown


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
        return lambda metric: result_cell(data.row(*where, metric, name))

    def difference(metric: str) -> Any:
        row = rows[metric]
        note = range_text(metric, row["ci_low"], row["ci_high"])
        return value(row["difference"], difference_text(metric, row["difference"]), note=note)

    def verdict(metric: str) -> Any:
        found = decision(data, *where, metric, a, b)
        mark: Any = {"better": "good", "worse": "bad"}.get(found.state, "") if found else "muted"
        return value(None, row_words(rows[metric]), mark=mark)

    return pivot(
        "tests",
        "The stored tests, over the same queries",
        rows,
        texts("Metric", metric_title),
        numbers(a, figure(a)),
        numbers(b, figure(b)),
        numbers("difference", difference, explain="with its interval; percentage points where the metric is a share"),
        numbers("p", lambda metric: show.p_value(rows[metric]["p_adjusted"]), explain="adjusted over all pairs"),
        texts(f"{a} is", verdict),
    )
