"""``/runs``: two runs; which figures changed from one to the other, and then which queries."""

from __future__ import annotations

from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from capim.reports import compare
from capim.reports.app.rendering import View, link, respond
from capim.reports.app.state import State, Statement, state_of
from capim.reports.rows.snapshot import Snapshot, end_of, state_after
from capim.store import EmbeddingStore
from capim.store.errors import RequestError, unknown

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
