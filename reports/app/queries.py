"""``/queries``: the single queries of one task, such as those that one encoder misses and another finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

import pyarrow as pa
import pyarrow.compute as pc
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from capim.reports import format as show
from capim.reports.app.filters import (
    PAGE,
    SLICES,
    SORTS,
    QueryFilter,
    all_of,
    count_of,
    focus,
    ranks_of,
    read_filter,
    shown,
    some_of,
)
from capim.reports.app.state import Evaluated, Snapshot, State, Statement, View, link, respond, state_of
from capim.reports.elements.pictures import draw_map, encoded, opened, patch_map
from capim.reports.gallery_pages import token_words
from capim.reports.rows.gallery import RankedList, SelectedQuery
from capim.reports.rows.languages import cross_lingual, judged_language, language_name
from capim.reports.rows.names import named
from capim.reports.rows.report_data import CAUSES
from capim.reports.sections.failures import case_of
from capim.store.errors import RequestError, unknown
from capim.store.exchange.row_files import Judgement, add_judgement
from capim.store.layout import Explanation
from capim.store.schema import texts
from capim.store.types import Corpus

_CHOICES = 200  # of a slice


def page(request: Request) -> Response:
    """A list of queries; further parts of it are added at its end as one scrolls."""
    state = state_of(request)
    snapshot = state.snapshot()
    wanted, evaluated = read_filter(request.query_params, snapshot)
    changed = request.query_params.get("version", snapshot.version) != snapshot.version
    total = count(state, snapshot, wanted, evaluated)
    values = {
        "wanted": wanted,
        "encoders": [(name, name in wanted.wrong, name in wanted.right) for name in evaluated.evaluations],
        "columns": shown(wanted, evaluated),
        "rows": [] if changed else list(_rows(state, snapshot, wanted, evaluated)),
        "changed": changed,
        "sentence": _sentence(wanted, total, count(state, snapshot, _whole(wanted), evaluated)),
        "more": link_of(wanted, page=wanted.page + 1, version=snapshot.version) if total > PAGE * wanted.page else "",
        "reload": link_of(wanted.but()),
        "whole": link_of(_whole(wanted)),
        "languages": len(languages_of(snapshot, evaluated)) > 1,
        "pictures": evaluated.has_images,
        **_choices(snapshot, wanted, evaluated),
    }
    return respond(
        request, View(template="queries.html", title="Queries", statement=all_of(wanted, evaluated), values=values)
    )


def count(state: State, snapshot: Snapshot, wanted: QueryFilter, evaluated: Evaluated) -> int:
    """How many queries a filter has; kept for this version of the store."""
    key = ("count", wanted.but(sort="", encoders=()))
    return snapshot.kept(key, lambda: int(state.rows(count_of(wanted, evaluated))["n"][0].as_py()))


def link_of(wanted: QueryFilter, **more: object) -> str:
    """The address of a list of queries."""
    return link("/queries", **{**wanted.parameters, **more})


def _whole(wanted: QueryFilter) -> QueryFilter:
    return QueryFilter(corpus=wanted.corpus, protocol=wanted.protocol)


def _sentence(wanted: QueryFilter, total: int, every: int) -> str:
    parts = [f"missed by {show.listing(wanted.wrong)}"] if wanted.wrong else []
    parts += [f"found by {show.listing(wanted.right)}"] if wanted.right else []
    among = f"{total:,} of {show.count(every, 'query', 'queries')}"
    return " and ".join([among, *parts] if not parts else [f"{among} {parts[0]}", *parts[1:]])


def _rows(state: State, snapshot: Snapshot, wanted: QueryFilter, evaluated: Evaluated) -> Iterator[dict[str, Any]]:
    """The queries of one page, as the template shows them."""
    shas = snapshot.data.corpora[wanted.corpus].images["sha"]
    first = PAGE * (wanted.page - 1)
    rows = state.rows(some_of(wanted, evaluated, first=first)).to_pylist()
    found = state.rows(ranks_of(evaluated, [row["query_ord"] for row in rows])).to_pylist()
    ranks = {(row["protocol"], row["query_ord"], row["encoder"]): row for row in found}
    for at, row in enumerate(rows, first):
        sha = shas[row["cluster"]].as_py() if evaluated.has_images and len(shas) else None
        yield {
            "id": row["query_id"],
            "text": row["text"] or row["query_id"],
            "language": row["language"],
            "sha": sha,
            "target": link(f"/query/{row['query_id']}", **wanted.but().parameters, at=at, within=row["protocol"]),
            "ranks": [
                rank_cell(ranks.get((row["protocol"], row["query_ord"], name))) for name in shown(wanted, evaluated)
            ],
        }


def rank_cell(row: Mapping[str, Any] | None) -> tuple[str, str, str]:
    """A rank as text, its mark, and what it means in words.

    Examples:
        >>> rank_cell({"rank_best": 7, "rank_worst": 7}), rank_cell({"rank_best": 1, "rank_worst": 3}), rank_cell(None)
        (('7', 'bad', 'missed'), ('1–3', 'warn', 'tied'), ('–', 'muted', 'not evaluated'))
    """
    if row is None:
        return show.ABSENT, "muted", "not evaluated"
    best, worst = int(row["rank_best"]), int(row["rank_worst"])
    text = f"{best:,}" if best == worst else f"{best:,}–{worst:,}"
    if best > 1:
        return text, "bad", "missed"
    return (text, "good", "found") if worst == 1 else (text, "warn", "tied")


def _choices(snapshot: Snapshot, wanted: QueryFilter, evaluated: Evaluated) -> dict[str, Any]:
    """What the boxes of the form offer."""
    groups: dict[str, list[str]] = {}
    key = ("slices", evaluated.corpus, evaluated.direction)
    for value in snapshot.kept(key, lambda: _slices(snapshot, evaluated)):
        kind, _, name = value.partition(":")
        groups.setdefault(SLICES[kind], []).append(name)
    titles = {title: kind for kind, title in SLICES.items()}
    return {
        "corpora": list(dict.fromkeys(corpus for corpus, _ in snapshot.evaluated)),
        "protocols": [(protocol, named(protocol)) for protocol in snapshot.protocols(wanted.corpus)],
        "slices": [(title, [(f"{titles[title]}:{name}", name) for name in names]) for title, names in groups.items()],
        "language_choices": [(code, language_name(code)) for code in languages_of(snapshot, evaluated)],
        "sorts": list(SORTS.items()),
        "focus": focus(wanted, evaluated),
        "names": list(evaluated.evaluations),
    }


def languages_of(snapshot: Snapshot, evaluated: Evaluated) -> list[str]:
    """The languages of the queries of a protocol."""
    parts = cross_lingual(evaluated.protocol.partition("@")[0])
    if language := parts.language if parts else judged_language(evaluated.protocol):
        return [language]
    if evaluated.direction != "t2i" and not evaluated.protocol.endswith("/*/*"):
        return []
    captions = snapshot.data.corpora[evaluated.corpus].captions
    return snapshot.kept(("languages", evaluated.corpus), lambda: sorted(texts(pc.unique(captions["language"]))))


def _slices(snapshot: Snapshot, evaluated: Evaluated) -> list[str]:
    """The slices of the queries of a protocol: what their images show, kinds of query, tags, ambiguous misses."""
    contents, direction = snapshot.data.corpora[evaluated.corpus], evaluated.direction
    if direction == "pairs":
        return [f"tag:{name}" for name in sorted(texts(pc.unique(contents.pairs["category"])))]
    if direction == "quadruples":
        return [f"tag:{name}" for name in _most_frequent(contents.quadruples["tags"])]
    found = [f"shows:{name}" for name in _most_frequent(contents.images["objects"])]
    if direction == "t2i":
        found += [f"type:{name}" for name in _most_frequent(contents.captions["query_types"])]
    causes = {row["feature"] for row in snapshot.data.slices if row["analysis"] == "ambiguous"} & {*CAUSES}
    return [*found, *(f"ambiguous:{cause}" for cause in sorted(causes))]


def _most_frequent(column: pa.ChunkedArray) -> list[str]:
    """The texts that most lists of a column have, by name."""
    counts = Counter(texts(pc.list_flatten(column).drop_null()))
    return sorted(name for name, _ in counts.most_common(_CHOICES))


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


def page(request: Request) -> Response:
    """The tokens of the caption, each with its share of the score and its map."""
    found = _explained(request)
    given = {name: request.query_params[name] for name in ("encoder", "corpus", "caption", "image")}
    tokens = [
        (token_words(token), show.number(float(share), 3), link("/match.png", **given, token=number))
        for number, (token, share) in enumerate(zip(found.tokens, found.shares, strict=True), 1)
    ]
    values = {
        "found": found,
        "score": show.number(found.score, 3),
        "whole": link("/match.png", **given),
        "tokens": tokens,
    }
    statement = Statement(
        sql="""SELECT encoder, modality, item_id, n_vectors, vectors
FROM embeddings
WHERE corpus = ? AND encoder = ? AND (modality, item_id) IN (('caption', ?), ('image', ?))""",
        parameters=(given["corpus"], given["encoder"], found.caption_id, found.image_id),
    )
    return respond(request, View(template="match.html", title="Where it matches", statement=statement, values=values))


def picture(request: Request) -> Response:
    """The image under a veil that is open where the caption matches, or one token of it (``token``, from 1)."""
    found = _explained(request)
    token = request.query_params.get("token", "")
    if token and not (token.isdecimal() and 1 <= int(token) <= len(found.tokens)):
        raise RequestError(f"token={token}: expected a number from 1 to {len(found.tokens)}")
    values = found.similarities[int(token) - 1] if token else patch_map(found)
    thumbnail = state_of(request).store.thumbnails([found.sha]).get(found.sha)
    return Response(encoded(draw_map(opened(thumbnail), found, values)), media_type="image/png")


def _explained(request: Request) -> Explanation:
    state = state_of(request)
    snapshot = state.snapshot()
    given = request.query_params
    contents = snapshot.data.corpora.get(given.get("corpus", ""))
    spec = snapshot.data.specs.get(given.get("encoder", ""))
    if contents is None:
        raise RequestError(unknown("corpus", given.get("corpus", ""), list(snapshot.data.corpora)))
    if spec is None:
        raise RequestError(unknown("encoder", given.get("encoder", ""), list(snapshot.data.specs)))
    places = []
    for name, table in (("caption", contents.captions), ("image", contents.images)):
        text = given.get(name, "")
        if not text.isdecimal() or int(text) >= table.num_rows:
            raise RequestError(f"{name}={text}: expected a position from 0 to {table.num_rows - 1}")
        places.append(int(text))
    caption, image = places
    [found] = state.services.explain(encoder=spec.fingerprint, corpus=contents.fingerprint, pairs=[(caption, image)])
    return found
