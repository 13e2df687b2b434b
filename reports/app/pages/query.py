"""``/query/ID``: one query with the top ten of every encoder side by side; ``/judge``: what is right as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import pyarrow as pa
import pyarrow.compute as pc
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from capim.reports.app.filters import QueryFilter, read_filter, shown, some_of
from capim.reports.app.rendering import View, link, respond
from capim.reports.app.state import Evaluated, Snapshot, State, Statement, state_of
from capim.reports.rows.selected_queries import RankedList, SelectedQuery
from capim.reports.sections.cases import case_of
from capim.store.errors import RequestError
from capim.store.files import Judgement, add_judgement
from capim.store.types import Corpus

TOP = 10


def page(request: Request) -> Response:
    """One query; ``at`` in the address is its place in the list that it was opened from."""
    state = state_of(request)
    snapshot = state.snapshot()
    wanted, evaluated = read_filter(request.query_params, snapshot)
    query_id = request.path_params["id"]
    rows = _outcomes(state, request, wanted, evaluated, query_id)
    first = next(iter(rows.values()))
    contents = snapshot.data.corpora[wanted.corpus]
    protocol, cluster = str(first["protocol"]), int(first["cluster"])
    relevant = relevant_items(contents, protocol, evaluated.direction, query_id, cluster)
    selected = SelectedQuery(
        corpus=wanted.corpus,
        direction=evaluated.direction,
        protocol=protocol,
        kind="",
        query_id=query_id,
        query=int(first["query_ord"]),
        image=relevant[0],
        lists=tuple(_ranked(name, row) for name, row in rows.items()),
        relevant=relevant if evaluated.direction == "t2i" else (),
    )
    case = case_of(snapshot.data, selected, 0)
    own = state.judgements_of(wanted.corpus, evaluated.direction, query_id)
    items = contents.images if evaluated.direction == "t2i" else contents.captions
    searched = evaluated.direction in ("t2i", "i2t")
    answers = []
    for answer, ranked in zip(case.answers, selected.lists, strict=True):
        ids = [str(items["id"][ord_]) for ord_, _ in ranked.top] if searched else [""] * len(answer.hits)
        maps = _maps(snapshot, selected, ranked) if evaluated.direction == "t2i" else ()
        answers.append({"answer": answer, "hits": list(zip(answer.hits, ids, strict=True)), "maps": maps})
    before, after = _neighbours(request, state, wanted, evaluated)
    values = {
        "case": case,
        "answers": answers,
        "own": own,
        "judged": state.judgements is not None and searched,
        "facts": {"corpus": wanted.corpus, "direction": evaluated.direction, "query": query_id},
        "before": before,
        "after": after,
        "listed": link("/queries", **wanted.parameters),
        "back": str(request.url.path) + f"?{request.url.query}",
    }
    evaluations = [one for of in evaluated.evaluations.values() for one in of]
    statement = Statement(
        sql=f"""SELECT encoder, protocol, query_id, rank_best, rank_worst, best_score,
       top_ords[1:{TOP}] AS top_ords, top_scores[1:{TOP}] AS top_scores
FROM outcomes
WHERE evaluation IN ({", ".join("?" for _ in evaluations)}) AND protocol = ? AND query_id = ?
ORDER BY encoder""",  # noqa: S608 - only placeholders are put in
        parameters=(*evaluations, protocol, query_id),
    )
    return respond(request, View(template="query.html", title=case.query, statement=statement, values=values))


async def judge(request: Request) -> Response:
    """Adds an item that is right for a query to the user's file of judgements."""
    state = state_of(request)
    given = dict(parse_qsl((await request.body()).decode("utf-8", "replace")))
    judgement = Judgement(*(given.get(name, "") for name in ("corpus", "direction", "query", "item")))
    await run_in_threadpool(_keep, state, judgement)
    if "HX-Request" in request.headers:
        return HTMLResponse('<b class="own">also right (you)</b>')
    back = given.get("back", "")
    return RedirectResponse(back if back.startswith("/query/") else "/queries", status_code=303)


def _keep(state: State, judgement: Judgement) -> None:
    contents = state.snapshot().data.corpora.get(judgement.corpus)
    if state.judgements is None or contents is None or judgement.direction not in ("t2i", "i2t"):
        raise RequestError("this judgement cannot be kept: no such corpus, or the workspace is no folder")
    sides = (contents.captions, contents.images)
    queries, items = sides if judgement.direction == "t2i" else sides[::-1]
    for table, name in ((queries, judgement.query_id), (items, judgement.item_id)):
        if pc.index(table["id"], pa.scalar(name)).as_py() < 0:
            raise RequestError(f"{name!r} is not in corpus {judgement.corpus!r}")
    if judgement.item_id not in state.judgements_of(judgement.corpus, judgement.direction, judgement.query_id):
        add_judgement(state.judgements, judgement)


def relevant_items(contents: Corpus, protocol: str, direction: str, query_id: str, cluster: int) -> tuple[int, ...]:
    """Positions of the relevant images of a caption; for other queries that of their image.

    By the ground truth that the protocol names, if the corpus has one of that name; else the image of the caption.
    """
    name = protocol.split("/")[1] if "/" in protocol else ""
    judged = contents.relevance.filter(
        (pc.field("ground_truth") == name) & (pc.field("query_id") == query_id) & (pc.field("direction") == direction)
    )
    kept = judged.filter(pc.field("grade") > 0).sort_by([("grade", "descending")])
    if direction != "t2i" or not kept.num_rows:
        return (cluster,)
    return tuple(pc.index(contents.images["id"], item).as_py() for item in kept["item_id"])


def _outcomes(
    state: State, request: Request, wanted: QueryFilter, evaluated: Evaluated, query_id: str
) -> dict[str, dict[str, Any]]:
    """Encoder to its outcome of one query, in the order of the list.

    Raises:
        RequestError: No encoder has one.
    """
    evaluations = [one for of in evaluated.evaluations.values() for one in of]
    found = state.store.rows("outcomes", evaluation=evaluations, query_id=query_id)
    within = request.query_params.get("within")
    rows = {row["encoder"]: row for row in found.to_pylist() if within in (None, "", row["protocol"])}
    if not rows:
        raise RequestError(f"no encoder has an outcome of query {query_id!r} under {evaluated.protocol}")
    order = shown(wanted, evaluated)
    return {name: rows[name] for name in (*order, *sorted({*rows} - {*order})) if name in rows}


def _ranked(name: str, row: Mapping[str, Any]) -> RankedList:
    top = zip((row["top_ords"] or [])[:TOP], (row["top_scores"] or [])[:TOP], strict=True)
    return RankedList(
        encoder=name,
        rank_best=row["rank_best"],
        rank_worst=row["rank_worst"],
        top=tuple(top),
        scores=tuple(row["scores"] or ()),
    )


def _neighbours(request: Request, state: State, wanted: QueryFilter, evaluated: Evaluated) -> tuple[str, str]:
    """The addresses of the previous and the next query of the list; empty at its ends, and without a list."""
    at = request.query_params.get("at", "")
    if not at.isdecimal():
        return "", ""
    place = int(at)
    first = max(0, place - 1)
    found = dict(enumerate(state.rows(some_of(wanted, evaluated, first=first, most=3)).to_pylist(), first))

    def target(of: int) -> str:
        row = found.get(of)
        if row is None:
            return ""
        return link(f"/query/{row['query_id']}", **wanted.parameters, at=of, within=row["protocol"])

    return target(place - 1), target(place + 1)


def _maps(snapshot: Snapshot, query: SelectedQuery, ranked: RankedList) -> tuple[tuple[str, str, str], ...]:
    """Title, picture and page of the maps of where a caption matches the first image and the relevant one."""
    spec = snapshot.data.specs.get(ranked.encoder)
    sealed = {(s.key.encoder, s.key.corpus, s.key.modality) for s in snapshot.data.sets}
    if spec is None or spec.vectors == "single" or (ranked.encoder, query.corpus, "image") not in sealed:
        return ()
    found = []
    places = {"first": ranked.top[0][0] if ranked.top else None, "relevant": query.image}
    for title, image in places.items():
        if image is not None and (title == "relevant" or image != query.image):
            facts = {"encoder": ranked.encoder, "corpus": query.corpus, "caption": query.query, "image": image}
            found.append((title, link("/match.png", **facts), link("/match", **facts)))
    return tuple(found)
