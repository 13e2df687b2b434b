"""``/search``: the nearest items to a text, to a picture or to a stored item, by several encoders side by side."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.parser import BytesParser
from email.policy import HTTP
from operator import attrgetter
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from capim.reports.app.state import Answer, State, Values, View, data_uri, names_in, respond, state_of, whole_number
from capim.reports.elements.tables import link
from capim.reports.rows.choice import best_first
from capim.store.current import grouped
from capim.store.errors import RequestError, WorkError, unknown
from capim.store.types import Modality

MODALITIES = {"image": "images", "caption": "captions"}
MOST_HITS = 100
_KEPT = ("corpus", "protocol", "encoders", "text", "modality", "k")  # parameters that stay when a picture is chosen


@dataclass(frozen=True, kw_only=True)
class WantedItems:
    """A search, as its address has it.

    Attributes:
        corpus: Name; in an address empty: the first.
        encoders: Those that search; empty: the first two.
        text: The text of the search, with or without a picture.
        picture: Name of a picture in memory; empty: none.
        like: Kind and position of a stored item, in an address ``image:7``, ``caption:7``; None: a text or a picture.
        modality: The searched items; empty: captions for only a picture, items of its kind for a stored item, else
            images.
        k: Items per encoder.
    """

    corpus: str
    encoders: tuple[str, ...]
    text: str
    picture: str
    like: tuple[Modality, int] | None
    modality: str
    k: int

    @property
    def query(self) -> dict[str, object]:
        """The parameters of an address of this search, without the encoders."""
        like = ":".join(map(str, self.like or ()))
        named = {"corpus": self.corpus, "text": self.text, "picture": self.picture, "like": like}
        return {**named, "modality": self.modality, "k": self.k if self.k != 10 else None}


def read_search(parameters: QueryParams, known: Mapping[str, list[str]]) -> WantedItems:
    """Return the search of an address.

    Args:
        parameters: Of the address.
        known: Corpus to the encoders that have embeddings of it.

    Raises:
        RequestError: A name that the store does not have, with the nearest; a wrong value; all faults.
    """
    if not known:
        raise RequestError("the store has no embeddings yet; run `capim embed` or `capim run` first")
    corpus = parameters.get("corpus") or next(iter(known))
    names = names_in(parameters, "encoders")
    like, modality, k = parameters.get("like", ""), parameters.get("modality", ""), parameters.get("k") or "10"
    having = known.get(corpus, [*names])
    given = [("corpus", corpus, known), ("modality", modality, ("", *MODALITIES))]
    given += [("encoder", name, having) for name in names]
    faults = [unknown(what, name, [*filter(None, of)]) for what, name, of in given if name not in of]
    kind, _, position = like.partition(":")
    if like and (kind not in MODALITIES or whole_number(position) < 0):
        faults.append(f"like={like}: expected image:POSITION or caption:POSITION")
    if not 1 <= whole_number(k) <= MOST_HITS:
        faults.append(f"k={k}: expected a whole number from 1 to {MOST_HITS}")
    text, picture = parameters.get("text", "").strip(), parameters.get("picture", "")
    if like and (text or picture):
        faults.append("a stored item is a query on its own; leave out the text and the picture")
    if faults:
        raise RequestError(faults)
    item = (cast(Modality, kind), int(position)) if like else None
    encoders = names or tuple(having[:2])
    return WantedItems(
        corpus=corpus, encoders=encoders, text=text, picture=picture, like=item, modality=modality, k=int(k)
    )


def search(request: Request) -> Response:
    """Return the form, and a column per encoder; the column of a model that has to be loaded first comes later."""
    state = state_of(request)
    known = encoders_of(state)
    wanted = read_search(request.query_params, known)
    asked = _asked(state, wanted)
    at_once, asks = bool(request.query_params.get("as")), wanted.text or wanted.picture or wanted.like
    columns = [_column(state, wanted, name, at_once=at_once) for name in wanted.encoders if asks]
    values = {
        "wanted": wanted,
        "asked": asked,
        "thumbnail": data_uri(state.picture(wanted.picture)[1]) if wanted.picture else "",
        "columns": columns,
        "protocol": request.query_params.get("protocol", ""),
        "corpora": [(name, name) for name in known],
        "encoders": [(name, name in wanted.encoders) for name in known[wanted.corpus]],
        "modalities": [("", "automatic"), *MODALITIES.items()],
        "numbers": [(k, k) for k in sorted({5, 10, 20, 50, MOST_HITS, wanted.k})],
        "hidden": [(name, value) for name, value in request.query_params.multi_items() if name in _KEPT and value],
        "commands": [_command(wanted, name) for name in wanted.encoders if wanted.text and not wanted.picture],
    }
    return respond(request, View(template="search.html", title="Search", table=_hits(columns), values=values))


def column(request: Request) -> Response:
    """Return the items that one encoder finds; its model is loaded if it is not yet in memory."""
    state = state_of(request)
    wanted = read_search(request.query_params, encoders_of(state))
    _asked(state, wanted)  # there is such an item
    found = _column(state, wanted, wanted.encoders[0], at_once=True)
    return respond(request, View(template="found.html", title="Found", table=_hits([found]), values={"column": found}))


async def upload(request: Request) -> Response:
    """Keep the picture of the form in memory, and go to the search for it."""
    body = await request.body()
    head = f"Content-Type: {request.headers.get('content-type', '')}\r\n\r\n".encode("latin-1")
    parts: dict[str, list[bytes]] = {}
    for part in BytesParser(policy=HTTP).parsebytes(head + body).iter_parts():
        name = part.get_param("name", header="content-disposition")
        parts.setdefault(str(name), []).append(cast(bytes, part.get_payload(decode=True)) or b"")
    image = (parts.get("file") or [b""])[0]
    if not image:
        raise RequestError("choose the file of a picture first")
    thumbnail = await run_in_threadpool(state_of(request).services.thumbnail, image)
    given = {name: ",".join(value.decode("utf-8", "replace") for value in parts.get(name, [])) for name in _KEPT}
    return RedirectResponse(link("/search", picture=state_of(request).keep_picture(image, thumbnail), **given), 303)


def encoders_of(state: State) -> dict[str, list[str]]:
    """Return corpus -> encoders with a sealed set of it, both in the order of the first page, then by name."""
    by_corpus = grouped((sealed.key for sealed in state.store.sealed_sets()), attrgetter("corpus"))
    first: list[str] = []
    snapshot = state.snapshot()
    with suppress(RequestError):  # nothing was evaluated
        first = [*dict.fromkeys(corpus for corpus, _ in snapshot.evaluated), *best_first(snapshot.data)]

    def place(name: str) -> tuple[int, str]:
        return first.index(name) if name in first else len(first), name

    return {name: sorted({key.encoder for key in by_corpus[name]}, key=place) for name in sorted(by_corpus, key=place)}


def _asked(state: State, wanted: WantedItems) -> Values:
    """Return the stored item that is searched for; empty for a text or a picture."""
    if wanted.like is None:
        return {}
    kind, position = wanted.like
    items = state.store.items(wanted.corpus, kind)
    if position >= items.num_rows:
        like = wanted.query["like"]
        raise RequestError(f"like={like}: corpus {wanted.corpus!r} has {items.num_rows} {MODALITIES[kind]}, from 0 on")
    return {"kind": kind, **items.slice(position, 1).to_pylist()[0]}


@dataclass(frozen=True, kw_only=True)
class FoundItems:
    """One encoder's hits, its error (``fault``), or the URL that will return them (``address``)."""

    encoder: str
    address: str = ""
    fault: str = ""
    modality: str = ""
    hits: Sequence[Answer] = ()
    offers: Sequence[Answer] = ()


def _column(state: State, wanted: WantedItems, encoder: str, *, at_once: bool) -> FoundItems:
    try:
        if not (at_once or wanted.like or state.services.loaded(encoder)):
            return FoundItems(encoder=encoder, address=link("/search/column", **wanted.query, encoders=encoder))
        kind = wanted.modality or (wanted.like[0] if wanted.like else "")
        done = state.services.search(
            encoder=encoder,
            corpus=wanted.corpus,
            text=wanted.text or None,
            image=state.picture(wanted.picture)[0] if wanted.picture else None,
            like=wanted.like,
            modality=cast(Modality, kind) if kind else None,
            k=wanted.k,
        )
    except (RequestError, WorkError) as fault:
        return FoundItems(encoder=encoder, fault=str(fault), offers=_offers(state, wanted, encoder))
    ids = pa.array([row["id"] for row in done.rows], pa.string())
    items = state.store.items(wanted.corpus, done.modality)
    hits, names = [], ",".join(wanted.encoders)
    for row, place in zip(done.rows, pc.index_in(ids, items["id"].combine_chunks()).to_pylist(), strict=True):
        more = link("/search", corpus=wanted.corpus, encoders=names, like=f"{done.modality}:{place}")
        hits.append({**row, "more": more})
    return FoundItems(encoder=encoder, modality=done.modality, hits=hits)


_OFFERED = 8  # stored items that a search can start from where no model can encode the query


def _offers(state: State, wanted: WantedItems, encoder: str) -> list[Answer]:
    """Return images spread over the corpus, each with the address of the search for more like it."""
    items = state.store.items(wanted.corpus, "image")
    places = sorted({at * items.num_rows // _OFFERED for at in range(_OFFERED)} & {*range(items.num_rows)})
    return [
        {**row, "more": link("/search", corpus=wanted.corpus, encoders=encoder, like=f"image:{at}")}
        for at, row in zip(places, items.take(places).to_pylist(), strict=True)
    ]


def _hits(columns: list[FoundItems]) -> pa.Table:
    """Return the hits as rows: encoder, rank, score, id, text."""
    found = [{**hit, "encoder": one.encoder} for one in columns for hit in one.hits]
    kinds: dict[str, pa.DataType] = {"encoder": pa.string(), "rank": pa.int32(), "score": pa.float32()}
    return pa.Table.from_pylist(found, schema=pa.schema(kinds | {"id": pa.string(), "text": pa.string()}))


def _command(wanted: WantedItems, encoder: str) -> str:
    """Return the command that finds the same for a text."""
    modality = f" --modality {wanted.modality}" if wanted.modality else ""
    text, corpus, k = shlex.quote(wanted.text), shlex.quote(wanted.corpus), wanted.k
    return f"capim search {text} --encoder {shlex.quote(encoder)} --corpus {corpus} -k {k}{modality}"
