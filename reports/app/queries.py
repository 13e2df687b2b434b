"""The pages of single queries.

``/queries``: those of one task, such as what one encoder misses and another finds, with the tests of two encoders;
``/query/ID``: one with the top ten of every encoder side by side; ``/judge``: further right answers; ``/match``: where
a caption matches an image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from operator import itemgetter
from urllib.parse import parse_qsl

import pyarrow as pa
import pyarrow.compute as pc
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from capim.reports import format as show
from capim.reports.app import filters
from capim.reports.app import state as app
from capim.reports.app.filters import QueryFilter, read_filter, shown
from capim.reports.app.state import EvaluatedTask, State, Statement, StoreSnapshot, Values, View, respond, state_of
from capim.reports.elements.pictures import draw_map, encoded, opened, patch_map
from capim.reports.elements.tables import link
from capim.reports.explanations import token_words
from capim.reports.rows.gallery import RankedList, SelectedQuery, relevant_documents
from capim.reports.sections import tests
from capim.reports.sections.failures import case_of
from capim.reports.sections.leaderboard import metrics_of
from capim.store.current import grouped
from capim.store.errors import RequestError, unknown
from capim.store.row_types import rows_in
from capim.store.schema import AMBIGUOUS, CAUSES, Outcome, is_found, is_missed, texts
from capim.store.vectors import Explanation
from capim.tasks.metrics.judgements import Judgement, add_judgement
from capim.tasks.protocols import Protocol, language_name

TOP = 10  # of the list of an encoder
_CHOICES = 200  # of a slice


def listed(request: Request) -> Response:
    """Return a list of queries; further parts of it are added at its end as one scrolls."""
    state = state_of(request)
    snapshot = state.snapshot()
    wanted, evaluated = read_filter(request.query_params, snapshot)
    whole = QueryFilter(corpus=wanted.corpus, protocol=wanted.protocol)
    total, every = (count(state, snapshot, of, evaluated) for of in (wanted, whole))
    changed = request.query_params.get("version", snapshot.version) != snapshot.version
    ways = [
        f"{how} by {show.listing(names)}" for how, names in (("missed", wanted.wrong), ("found", wanted.right)) if names
    ]
    further = link_of(wanted, page=wanted.page + 1, version=snapshot.version)
    values = {
        "wanted": wanted,
        "encoders": [(name, name in wanted.wrong, name in wanted.right) for name in evaluated.evaluations],
        "columns": shown(wanted, evaluated),
        "rows": [] if changed else list(_rows(state, snapshot, wanted, evaluated)),
        "changed": changed,
        "sentence": f"{total:,} of {show.count(every, 'query', 'queries')} {' and '.join(ways)}".rstrip(),
        "more": further if total > app.PAGE * wanted.page else "",
        "reload": link_of(wanted.but()),
        "whole": link_of(whole),
        "languages": len(languages_of(snapshot, evaluated)) > 1,
        "pictures": evaluated.has_images and len(snapshot.data.corpora[wanted.corpus].images["sha"].drop_null()) > 0,
        **_choices(snapshot, wanted, evaluated),
        **_compared(state, snapshot, wanted, evaluated),
    }
    statement = filters.select(wanted, evaluated)
    view = View(template="queries.html", title=app.PAGES["/queries"], statement=statement, values=values)
    return respond(request, view)


def _compared(state: State, snapshot: StoreSnapshot, wanted: QueryFilter, evaluated: EvaluatedTask) -> Values:
    """Return which of two chosen encoders finds what of the filter, and the stored tests of the two."""
    if len(wanted.encoders) != 2:
        return {"agreement": None}
    a, b = wanted.encoders
    every = wanted.but(wrong=(), right=())
    parts = [every.but(right=(a, b)), every.but(right=(a,), wrong=(b,)), every.but(right=(b,), wrong=(a,))]
    parts.append(every.but(wrong=(a, b)))
    counts = [count(state, snapshot, of, evaluated) for of in parts]
    tied = count(state, snapshot, every, evaluated) - sum(counts)  # a query that a tie decides is in none of the four
    data, task = snapshot.data, (wanted.corpus, wanted.protocol)
    tested = [row for metric in metrics_of(data, *task) if (row := data.comparison(*task, metric, a, b)) is not None]
    return {
        "agreement": [(f"{n:,}", link_of(of)) for n, of in zip(counts, parts, strict=True)],
        "ties": show.count(tied, "query", "queries") if tied else "",
        "tests": tests.pairs(data, f"{a} minus {b}: the stored tests", tested) if tested else None,
    }


def count(state: State, snapshot: StoreSnapshot, of: QueryFilter, evaluated: EvaluatedTask) -> int:
    """Return the number of queries in a filter."""
    key = ("count", of.but(sort="", encoders=(), of=filters.focus(of, evaluated)))  # the others change nothing
    return snapshot.kept(key, lambda: int(state.rows(filters.count_of(of, evaluated))["n"][0].as_py()))


def link_of(wanted: QueryFilter, **more: object) -> str:
    """Return the address of a list of queries."""
    return link("/queries", **{**wanted.parameters, **more})


def _rows(state: State, snapshot: StoreSnapshot, wanted: QueryFilter, evaluated: EvaluatedTask) -> Iterator[Values]:
    """Yield the queries of one page, as the template shows them."""
    shas = snapshot.data.corpora[wanted.corpus].images["sha"]
    first = app.PAGE * (wanted.page - 1)
    rows = rows_in(filters.ListedQuery, state.rows(filters.some_of(wanted, evaluated, first=first, most=app.PAGE)))
    found = rows_in(Outcome, state.rows(filters.ranks_of(evaluated, [row.query_id for row in rows])))
    ranks = {(row.protocol, row.query_id, row.encoder): row for row in found}
    names = shown(wanted, evaluated)
    for at, row in enumerate(rows, first):
        image = row.query_ord if evaluated.protocol.queries == "image" else row.cluster
        yield {
            "id": row.query_id,
            "text": row.text or row.query_id,
            "language": row.language,
            "sha": shas[image].as_py() if evaluated.has_images and len(shas) else None,
            "target": link(f"/query/{row.query_id}", **wanted.but().parameters, at=at, within=row.protocol),
            "ranks": [rank_cell(ranks.get((row.protocol, row.query_id, name))) for name in names],
        }


def rank_cell(row: Outcome | None) -> tuple[str, str, str]:
    """Return a rank as text, its mark, and its meaning in words.

    Examples:
        >>> from types import SimpleNamespace as Row
        >>> rank_cell(Row(rank_best=7, rank_worst=7)), rank_cell(Row(rank_best=1, rank_worst=3)), rank_cell(None)
        (('7', 'bad', 'missed'), ('1–3', 'warn', 'tied'), ('–', 'muted', 'not evaluated'))
    """
    if row is None:
        return show.ABSENT, "muted", "not evaluated"
    text = show.ranks(row.rank_best, row.rank_worst)
    if is_missed(row.rank_best):
        return text, "bad", "missed"
    return (text, "good", "found") if is_found(row.rank_worst) else (text, "warn", "tied")


def _choices(snapshot: StoreSnapshot, wanted: QueryFilter, evaluated: EvaluatedTask) -> Values:
    """Return the options of the form's boxes."""
    key = ("slices", evaluated.corpus, evaluated.protocol.id)
    slices = [(value, *value.split(":", 1)) for value in snapshot.kept(key, lambda: _slices(snapshot, evaluated))]
    by_kind = grouped(slices, itemgetter(1))
    return {
        "corpora": [(name, name) for name in dict.fromkeys(corpus for corpus, _ in snapshot.evaluated)],
        "protocols": [(id_, snapshot.data.titled(wanted.corpus, id_)) for id_ in snapshot.protocols(wanted.corpus)],
        "slices": [(filters.SLICES[kind], [(value, name) for value, _, name in of]) for kind, of in by_kind.items()],
        "language_choices": [(code, language_name(code)) for code in languages_of(snapshot, evaluated)],
        "sorts": list(filters.SORTS.items()),
        "focus": filters.focus(wanted, evaluated),
        "first": wanted.encoders[0] if wanted.encoders else "",
        "second": wanted.encoders[1] if len(wanted.encoders) > 1 else "",
        "names": list(evaluated.evaluations),
    }


def languages_of(snapshot: StoreSnapshot, evaluated: EvaluatedTask) -> list[str]:
    """Return the languages of the queries of a protocol."""
    protocol = evaluated.protocol
    if protocol.language and not protocol.is_combined:
        return [protocol.language]
    if protocol.queries != "caption" and not protocol.is_combined:
        return []
    captions = snapshot.data.corpora[evaluated.corpus].captions
    return snapshot.kept(("languages", evaluated.corpus), lambda: sorted(texts(pc.unique(captions["language"]))))


def _slices(snapshot: StoreSnapshot, evaluated: EvaluatedTask) -> list[str]:
    """Return the slices of a protocol's queries: what their images show, kinds of query, tags, ambiguous misses."""
    contents, queries = snapshot.data.corpora[evaluated.corpus], evaluated.protocol.queries
    if queries == "pairs":
        return [f"tag:{name}" for name in sorted(texts(pc.unique(contents.pairs["category"])))]
    if queries == "quadruples":
        return [f"tag:{name}" for name in _most_frequent(contents.quadruples["tags"])]
    found = [f"shows:{name}" for name in _most_frequent(contents.images["objects"]) if evaluated.has_images]
    if queries == "caption":
        found += [f"type:{name}" for name in _most_frequent(contents.captions["query_types"])]
    causes = {row.feature for row in snapshot.data.slices if row.analysis == AMBIGUOUS} & {*CAUSES}
    return [*found, *(f"ambiguous:{cause}" for cause in sorted(causes))]


def _most_frequent(column: pa.ChunkedArray) -> list[str]:
    """Return the texts that most lists of a column have, by name."""
    counts = Counter(texts(pc.list_flatten(column).drop_null()))
    return sorted(name for name, _ in counts.most_common(_CHOICES))


def query(request: Request) -> Response:
    """Return one query; ``at`` in the address is its place in the list that it was opened from."""
    state = state_of(request)
    snapshot = state.snapshot()
    wanted, evaluated = read_filter(request.query_params, snapshot)
    query_id, direction = request.path_params["id"], evaluated.protocol.direction
    rows = _outcomes(state, request, wanted, evaluated, query_id)
    first = next(iter(rows.values()))
    contents = snapshot.data.corpora[wanted.corpus]
    protocol = Protocol.of(first.protocol)
    key = ("relevant", wanted.corpus, protocol.name)
    judged = snapshot.kept(key, lambda: relevant_documents(contents, protocol.name)) if direction == "t2i" else {}
    relevant = judged.get(first.query_ord) or (first.cluster,)  # of a caption without judgements its image
    selected = SelectedQuery(
        corpus=wanted.corpus,
        direction=direction,
        protocol=protocol.id,
        kind="",
        query_id=query_id,
        query=first.query_ord,
        image=relevant[0],
        lists=tuple(RankedList.of(name, row, length=TOP) for name, row in rows.items()),
        relevant=relevant if direction == "t2i" else (),
    )
    case = case_of(snapshot.data, selected, 0)
    asked, items = map(contents.items, protocol.sides)
    # In i2t/symmetric-mean an image is five queries, "ID#0" to "ID#4": a judgement is about the image.
    judged_id = str(asked["id"][selected.query]) if protocol.kind == "retrieval" else query_id
    answers = []
    for answer, ranked in zip(case.answers, selected.lists, strict=True):
        ids = [str(items["id"][ord_]) for ord_, _ in ranked.top] if protocol.is_retrieval else [""] * len(answer.hits)
        maps = tuple(_maps(snapshot, selected, ranked)) if direction == "t2i" else ()
        answers.append({"answer": answer, "hits": list(zip(answer.hits, ids, strict=True)), "maps": maps})
    before, after = _neighbours(request, state, wanted, evaluated)
    values = {
        "case": case,
        "answers": answers,
        "own": state.judgements_of(wanted.corpus, direction, judged_id),
        "judged": state.judgements is not None and bool(case.asked),
        "facts": {"corpus": wanted.corpus, "direction": direction, "query": judged_id},
        "before": before,
        "after": after,
        "listed": link_of(wanted),
        "back": str(request.url.path) + f"?{request.url.query}",
    }
    statement = filters.outcomes_of(evaluated, protocol.id, query_id, top=TOP)
    return respond(request, View(template="query.html", title=case.query, statement=statement, values=values))


async def judge(request: Request) -> Response:
    """Add an item that is right for a query to the user's file of judgements."""
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
        raise RequestError("this judgement cannot be kept: there is no such corpus, or the workspace is not a folder")
    sides = (contents.captions, contents.images)
    queries, items = sides if judgement.direction == "t2i" else sides[::-1]
    for table, name in ((queries, judgement.query_id), (items, judgement.item_id)):
        if pc.index(table["id"], pa.scalar(name)).as_py() < 0:
            raise RequestError(f"{name!r} is not in corpus {judgement.corpus!r}")
    if judgement.item_id not in state.judgements_of(judgement.corpus, judgement.direction, judgement.query_id):
        add_judgement(state.judgements, judgement)


def _outcomes(
    state: State, request: Request, wanted: QueryFilter, evaluated: EvaluatedTask, query_id: str
) -> dict[str, Outcome]:
    """Return encoder -> outcome of one query, in the order of the list.

    Raises:
        RequestError: No encoder has one.
    """
    found = state.store.all(Outcome, evaluation=list(evaluated.every_evaluation), query_id=query_id)
    within = request.query_params.get("within")
    rows = {row.encoder: row for row in found if row.protocol == (within or found[0].protocol)}
    if not rows:
        raise RequestError(f"no encoder has an outcome of query {query_id!r} under {evaluated.protocol.id}")
    order = shown(wanted, evaluated)
    return {name: rows[name] for name in (*order, *sorted({*rows} - {*order})) if name in rows}


def _neighbours(request: Request, state: State, wanted: QueryFilter, evaluated: EvaluatedTask) -> tuple[str, str]:
    """Return the addresses of the previous and the next query of the list; empty at its ends, and without a list."""
    place = app.whole_number(request.query_params.get("at", ""))
    if place < 0:
        return "", ""
    first = max(0, place - 1)
    listed = state.rows(filters.some_of(wanted, evaluated, first=first, most=3))
    found = dict(enumerate(rows_in(filters.ListedQuery, listed), first))

    def target(of: int) -> str:
        row = found.get(of)
        return link(f"/query/{row.query_id}", **wanted.parameters, at=of, within=row.protocol) if row else ""

    return target(place - 1), target(place + 1)


def _maps(snapshot: StoreSnapshot, query: SelectedQuery, ranked: RankedList) -> Iterator[tuple[str, str, str]]:
    """Yield title, picture and page of the maps of where a caption matches the first and the relevant image."""
    sealed = {(s.key.encoder, s.key.corpus, s.key.modality, s.key.vectors) for s in snapshot.data.sets}
    if (ranked.encoder, query.corpus, "image", "multi") not in sealed:
        return
    facts = {"encoder": ranked.encoder, "corpus": query.corpus, "caption": query.query}
    first = ranked.top[0][0] if ranked.top else query.image
    for title, image in (("first", first), ("relevant", query.image)):
        if title == "relevant" or image != query.image:
            yield title, link("/match.png", **facts, image=image), link("/match", **facts, image=image)


def match(request: Request) -> Response:
    """Return the tokens of a caption, each with its share of the score and its map."""
    found = _explained(request)
    given = {name: request.query_params[name] for name in ("encoder", "corpus", "caption", "image")}
    saved = request.query_params.get("as") == "html"  # one file, with its maps inside

    def place(token: str = "") -> str:
        return app.data_uri(_drawn(request, found, token)) if saved else link("/match.png", **given, token=token)

    tokens = [
        (token_words(token), show.number(float(share), 3), place(str(number)))
        for number, (token, share) in enumerate(zip(found.tokens, found.shares, strict=True), 1)
    ]
    statement = Statement(
        sql="""SELECT encoder, modality, item_id, n_vectors, vectors
FROM embeddings
WHERE corpus = ? AND encoder = ? AND (modality, item_id) IN (('caption', ?), ('image', ?))""",
        parameters=(given["corpus"], given["encoder"], found.caption_id, found.image_id),
    )
    values = {"found": found, "score": show.number(found.score, 3), "whole": place(), "tokens": tokens}
    return respond(request, View(template="match.html", title="Where it matches", statement=statement, values=values))


def match_picture(request: Request) -> Response:
    """Return the image under a veil that is open where the caption matches, or one token of it (``token``, from 1)."""
    found = _explained(request)
    return Response(_drawn(request, found, request.query_params.get("token", "")), media_type="image/png")


def _drawn(request: Request, found: Explanation, token: str) -> bytes:
    """Return the map of one token, or of all where it is empty, as a PNG."""
    if token and not 1 <= app.whole_number(token) <= len(found.tokens):
        raise RequestError(f"token={token}: expected a number from 1 to {len(found.tokens)}")
    values = found.similarities[int(token) - 1] if token else patch_map(found)
    thumbnail = state_of(request).store.thumbnails([found.sha]).get(found.sha)
    return encoded(draw_map(opened(thumbnail), found, values))


def _explained(request: Request) -> Explanation:
    """Return where the caption of an address matches its image.

    Raises:
        RequestError: A name that the store does not have, or a position outside the corpus.
    """
    state = state_of(request)
    data, given = state.snapshot().data, request.query_params
    for name, known in (("corpus", data.corpora), ("encoder", data.specs)):
        if given.get(name, "") not in known:
            raise RequestError(unknown(name, given.get(name, ""), list(known)))
    contents, spec = data.corpora[given["corpus"]], data.specs[given["encoder"]]
    for name, table in (("caption", contents.captions), ("image", contents.images)):
        text = given.get(name, "")
        if not 0 <= app.whole_number(text) < table.num_rows:
            raise RequestError(f"{name}={text}: expected a position from 0 to {table.num_rows - 1}")
    pair = int(given["caption"]), int(given["image"])
    [found] = state.services.explain(encoder=spec.fingerprint, corpus=contents.fingerprint, pairs=[pair])
    return found
