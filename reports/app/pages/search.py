"""``/search``: the nearest items to a text, to a picture or to a stored item, by several encoders side by side."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from capim.reports.app.rendering import View, link, respond
from capim.reports.app.state import State, names_in, state_of
from capim.store.errors import RequestError, WorkError, unknown
from capim.store.types import Modality

MOST_HITS = 100
ITEMS = {"image": "images", "caption": "captions"}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A search, as its address has it.

    Attributes:
        corpus: Name; in an address empty: the first.
        encoders: Those that search; empty: the first two.
        text: What is searched for, with or without a picture.
        picture: Name of a picture in memory; empty: none.
        like: ``image:7``, ``caption:7``: the stored item at this position; empty: none.
        modality: What is searched; empty: captions for a picture alone, items of its kind for a stored item, else
            images.
        k: Items per encoder.
    """

    corpus: str
    encoders: tuple[str, ...]
    text: str
    picture: str
    like: str
    modality: str
    k: int

    @property
    def asks(self) -> bool:
        """Whether there is something to search for."""
        return bool(self.text or self.picture or self.like)

    @property
    def query(self) -> dict[str, object]:
        """The parameters of an address of this search, without the encoders."""
        named = {"corpus": self.corpus, "text": self.text, "picture": self.picture, "like": self.like}
        return {**named, "modality": self.modality, "k": self.k if self.k != 10 else None}


def read_search(parameters: QueryParams, known: Mapping[str, list[str]]) -> Wanted:
    """The search of an address.

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
    faults = [unknown("corpus", corpus, known)] if corpus not in known else []
    having = known.get(corpus, [])
    faults += [unknown("encoder", name, having) for name in names if corpus in known and name not in having]
    like, modality, k = parameters.get("like", ""), parameters.get("modality", ""), parameters.get("k") or "10"
    kind, _, position = like.partition(":")
    if like and (kind not in ITEMS or not position.isdecimal()):
        faults.append(f"like={like}: expected image:POSITION or caption:POSITION")
    if modality and modality not in ITEMS:
        faults.append(unknown("modality", modality, ITEMS))
    if not k.isdecimal() or not 1 <= int(k) <= MOST_HITS:
        faults.append(f"k={k}: expected a whole number from 1 to {MOST_HITS}")
    text, picture = parameters.get("text", "").strip(), parameters.get("picture", "")
    if like and (text or picture):
        faults.append("a stored item is searched for alone; leave out the text and the picture")
    if faults:
        raise RequestError(faults)
    encoders = names or tuple(having[:2])
    return Wanted(corpus=corpus, encoders=encoders, text=text, picture=picture, like=like, modality=modality, k=int(k))


def page(request: Request) -> Response:
    """The form, and a column per encoder; the column of a model that has to be loaded first comes later."""
    state = state_of(request)
    known = encoders_of(state)
    wanted = read_search(request.query_params, known)
    asked = _asked(state, wanted)
    kept = state_of(request).picture(wanted.picture)[1] if wanted.picture else None
    at_once = bool(request.query_params.get("as"))
    columns = [_column(request, state, wanted, name, at_once=at_once) for name in wanted.encoders if wanted.asks]
    values = {
        "wanted": wanted,
        "asked": asked,
        "thumbnail": f"data:image/jpeg;base64,{base64.b64encode(kept).decode()}" if kept else "",
        "columns": columns,
        "corpora": [(name, name) for name in known],
        "encoders": [(name, name in wanted.encoders) for name in known[wanted.corpus]],
        "modalities": [("", "what fits"), ("image", "images"), ("caption", "captions")],
        "numbers": [(k, k) for k in sorted({5, 10, 20, 50, MOST_HITS, wanted.k})],
        "hidden": [(name, value) for name, value in request.query_params.multi_items() if name in _KEPT and value],
        "commands": [_command(wanted, name) for name in wanted.encoders if wanted.text and not wanted.picture],
    }
    return respond(request, View(template="search.html", title="Search", table=_rows(columns), values=values))


_KEPT = ("corpus", "encoders", "text", "modality", "k")  # parameters that stay when a picture is chosen


def column(request: Request) -> Response:
    """The items that one encoder finds; loads its model where that is not yet in memory."""
    state = state_of(request)
    wanted = read_search(request.query_params, encoders_of(state))
    _asked(state, wanted)  # there is such an item
    found = _column(request, state, wanted, wanted.encoders[0], at_once=True)
    return respond(request, View(template="found.html", title="Found", table=_rows([found]), values={"column": found}))


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
    given = [(name, value.decode("utf-8", "replace")) for name in _KEPT for value in parts.get(name, [])]
    listed: dict[str, object] = {name: ",".join(v for n, v in given if n == name) for name, _ in given}
    return RedirectResponse(link("/search", picture=state_of(request).keep_picture(image, thumbnail), **listed), 303)


def encoders_of(state: State) -> dict[str, list[str]]:
    """Corpus to the encoders with a sealed set of it, by name."""
    found: dict[str, set[str]] = {}
    for sealed in state.store.sealed_sets():
        found.setdefault(sealed.key.corpus, set()).add(sealed.key.encoder)
    return {corpus: sorted(names) for corpus, names in sorted(found.items())}


def _column(request: Request, state: State, wanted: Wanted, encoder: str, *, at_once: bool) -> dict[str, Any]:
    """What one encoder finds, why it cannot, or from where it comes later (``address``)."""
    found: dict[str, Any] = {"encoder": encoder, "address": "", "fault": "", "hits": [], "modality": ""}
    try:
        if not (at_once or wanted.like or state.services.loaded(encoder)):
            return {**found, "address": link("/search/column", **wanted.query, encoders=encoder)}
        kind, _, position = wanted.like.partition(":")
        done = state.services.search(
            encoder=encoder,
            corpus=wanted.corpus,
            text=wanted.text or None,
            image=state_of(request).picture(wanted.picture)[0] if wanted.picture else None,
            like=(cast(Modality, kind), int(position)) if kind else None,
            modality=cast(Modality, wanted.modality or kind) if wanted.modality or kind else None,
            k=wanted.k,
        )
    except (RequestError, WorkError) as fault:
        return {**found, "fault": str(fault)}
    return {**found, "modality": done.modality, "hits": _with_links(state, wanted, done.rows, done.modality)}


def _with_links(state: State, wanted: Wanted, rows: list[dict[str, Any]], modality: Modality) -> list[dict[str, Any]]:
    """The rows, each with the address of the search for items like it."""
    ids = pa.array([row["id"] for row in rows], pa.string())
    positions = pc.index_in(ids, value_set=state.store.items(wanted.corpus, modality)["id"].combine_chunks())
    same: dict[str, object] = {"corpus": wanted.corpus, "encoders": ",".join(wanted.encoders)}
    return [
        {**row, "more": link("/search", **same, like=f"{modality}:{position}")}
        for row, position in zip(rows, positions.to_pylist(), strict=True)
    ]


def _asked(state: State, wanted: Wanted) -> dict[str, Any]:
    """The stored item that is searched for; empty for a text or a picture."""
    if not wanted.like:
        return {}
    kind, _, position = wanted.like.partition(":")
    items = state.store.items(wanted.corpus, cast(Modality, kind))
    if int(position) >= items.num_rows:
        raise RequestError(f"like={wanted.like}: corpus {wanted.corpus!r} has {items.num_rows} {ITEMS[kind]}")
    return {"kind": kind, **items.slice(int(position), 1).to_pylist()[0]}


def _rows(columns: list[dict[str, Any]]) -> pa.Table:
    """What was found, as rows: encoder, rank, score, id, text."""
    found = [
        {"encoder": one["encoder"], **{name: hit.get(name) for name in ("rank", "score", "id", "text")}}
        for one in columns
        for hit in one["hits"]
    ]
    kinds: list[tuple[str, pa.DataType]] = [("encoder", pa.string()), ("rank", pa.int32()), ("score", pa.float32())]
    return pa.Table.from_pylist(found, schema=pa.schema([*kinds, ("id", pa.string()), ("text", pa.string())]))


def _command(wanted: Wanted, encoder: str) -> str:
    """The command that finds the same for a text."""
    modality = f" --modality {wanted.modality}" if wanted.modality else ""
    text, corpus, k = shlex.quote(wanted.text), shlex.quote(wanted.corpus), wanted.k
    return f"capim search {text} --encoder {shlex.quote(encoder)} --corpus {corpus} -k {k}{modality}"
