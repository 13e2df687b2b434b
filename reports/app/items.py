"""The pages of stored items and their vectors.

``/search``: the nearest items to a text, to a picture or to a stored item, by several encoders side by side; ``/map``:
the items of a corpus as points of a plane, of one encoder or of two with one selection.
"""

from __future__ import annotations

import base64
import io
import math
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from email.parser import BytesParser
from email.policy import HTTP
from importlib.util import find_spec
from operator import attrgetter
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from PIL import Image
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from capim.reports import format as show
from capim.reports.app.filters import QueryFilter, over, select
from capim.reports.app.state import EvaluatedTask, State, Statement, View, data_uri, link, names_in, respond, state_of
from capim.reports.rows.report_data import grouped
from capim.store.errors import RequestError, WorkError, unknown
from capim.store.schema import texts
from capim.store.types import Map, Method, Modality

MODALITIES = {"image": "images", "caption": "captions"}
MOST_HITS = 100
METHODS = {"pca": "PCA", "umap": "UMAP"}
COLOURS = {"result": "found or missed", "both": "what both find", "language": "language", "none": "nothing"}
MOST_COLOURS = 10
OTHERS, NO_QUERY = "others", "no query"
RESULTS = ("found", "tied", "missed", NO_QUERY)
SIDE = 512  # of a picture of a map, in pixels
INK = ("0072b2", "e69f00", "d55e00", "808080", "009e73", "cc79a7", "56b4e9", "b2a300", "7a5cc7", "8c564b")  # as app.css
_KEPT = ("corpus", "encoders", "text", "modality", "k")  # parameters that stay when a picture is chosen


@dataclass(frozen=True, kw_only=True)
class WantedItems:
    """A search, as its address has it.

    Attributes:
        corpus: Name; in an address empty: the first.
        encoders: Those that search; empty: the first two.
        text: What is searched for, with or without a picture.
        picture: Name of a picture or vector in memory; empty: none.
        like: Kind and position of a stored item, in an address ``image:7``, ``caption:7``; None: a text or a picture.
        modality: What is searched; empty: captions for a picture alone, items of its kind for a stored item, else
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
    like, modality, k = parameters.get("like", ""), parameters.get("modality", ""), parameters.get("k") or "10"
    having = known.get(corpus, [*names])
    given = [("corpus", corpus, known), ("modality", modality, ("", *MODALITIES))]
    given += [("encoder", name, having) for name in names]
    faults = [unknown(what, name, [*filter(None, of)]) for what, name, of in given if name not in of]
    kind, _, position = like.partition(":")
    if like and (kind not in MODALITIES or not position.isdecimal()):
        faults.append(f"like={like}: expected image:POSITION or caption:POSITION")
    if not k.isdecimal() or not 1 <= int(k) <= MOST_HITS:
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
    """The form, and a column per encoder; the column of a model that has to be loaded first comes later."""
    state = state_of(request)
    known = encoders_of(state)
    wanted = read_search(request.query_params, known)
    asked = _asked(state, wanted)
    at_once, asks = bool(request.query_params.get("as")), wanted.text or wanted.picture or wanted.like
    columns = [_column(state, wanted, name, at_once=at_once) for name in wanted.encoders if asks]
    values = {
        "wanted": wanted,
        "asked": asked,
        "thumbnail": data_uri(small) if wanted.picture and (small := state.picture(wanted.picture)[1]) else "",
        "columns": columns,
        "corpora": [(name, name) for name in known],
        "encoders": [(name, name in wanted.encoders) for name in known[wanted.corpus]],
        "modalities": [("", "automatic"), *MODALITIES.items()],
        "numbers": [(k, k) for k in sorted({5, 10, 20, 50, MOST_HITS, wanted.k})],
        "hidden": [(name, value) for name, value in request.query_params.multi_items() if name in _KEPT and value],
        "commands": [_command(wanted, name) for name in wanted.encoders if wanted.text and not wanted.picture],
    }
    return respond(request, View(template="search.html", title="Search", table=_hits(columns), values=values))


def column(request: Request) -> Response:
    """The items that one encoder finds; loads its model where that is not yet in memory."""
    state = state_of(request)
    wanted = read_search(request.query_params, encoders_of(state))
    _asked(state, wanted)  # there is such an item
    found = _column(state, wanted, wanted.encoders[0], at_once=True)
    return respond(request, View(template="found.html", title="Found", table=_hits([found]), values={"column": found}))


async def upload(request: Request) -> Response:
    """Keep the picture or vector of the form in memory, and go to the search for it."""
    body = await request.body()
    head = f"Content-Type: {request.headers.get('content-type', '')}\r\n\r\n".encode("latin-1")
    parts: dict[str, list[bytes]] = {}
    for part in BytesParser(policy=HTTP).parsebytes(head + body).iter_parts():
        name = part.get_param("name", header="content-disposition")
        parts.setdefault(str(name), []).append(cast(bytes, part.get_payload(decode=True)) or b"")
    image = (parts.get("file") or [b""])[0]
    if not image:
        raise RequestError("choose the file of a picture or of a vector (.npy) first")
    thumbnail = b"" if is_vector(image) else await run_in_threadpool(state_of(request).services.thumbnail, image)
    given = {name: ",".join(value.decode("utf-8", "replace") for value in parts.get(name, [])) for name in _KEPT}
    given |= {"text": ""} if is_vector(image) else {}  # which is searched for alone
    return RedirectResponse(link("/search", picture=state_of(request).keep_picture(image, thumbnail), **given), 303)


def is_vector(contents: bytes) -> bool:
    """Whether a file is an array of NumPy's, and no picture."""
    return contents.startswith(b"\x93NUMPY")


def encoders_of(state: State) -> dict[str, list[str]]:
    """Corpus to the encoders with a sealed set of it, by name."""
    by_corpus = grouped((sealed.key for sealed in state.store.sealed_sets()), attrgetter("corpus"))
    return {corpus: sorted({key.encoder for key in keys}) for corpus, keys in sorted(by_corpus.items())}


def _asked(state: State, wanted: WantedItems) -> dict[str, Any]:
    """The stored item that is searched for; empty for a text or a picture."""
    if wanted.like is None:
        return {}
    kind, position = wanted.like
    items = state.store.items(wanted.corpus, kind)
    if position >= items.num_rows:
        like = wanted.query["like"]
        raise RequestError(f"like={like}: corpus {wanted.corpus!r} has {items.num_rows} {MODALITIES[kind]}, from 0 on")
    return {"kind": kind, **items.slice(position, 1).to_pylist()[0]}


def _column(state: State, wanted: WantedItems, encoder: str, *, at_once: bool) -> dict[str, Any]:
    """What one encoder finds, why it cannot, or from where it comes later (``address``)."""
    found: dict[str, Any] = {"encoder": encoder, "address": "", "fault": "", "hits": [], "modality": "", "offers": []}
    try:
        if not (at_once or wanted.like or state.services.loaded(encoder)):
            return {**found, "address": link("/search/column", **wanted.query, encoders=encoder)}
        kind = wanted.modality or (wanted.like[0] if wanted.like else "")
        file = state.picture(wanted.picture)[0] if wanted.picture else None
        vector = file if file and is_vector(file) else None
        done = state.services.search(
            encoder=encoder,
            corpus=wanted.corpus,
            text=wanted.text or None,
            image=None if vector else file,
            vector=vector,
            like=wanted.like,
            modality=cast(Modality, kind) if kind else None,
            k=wanted.k,
        )
    except (RequestError, WorkError) as fault:
        return {**found, "fault": str(fault), "offers": _offers(state, wanted, encoder)}
    ids = pa.array([row["id"] for row in done.rows], pa.string())
    items = state.store.items(wanted.corpus, done.modality)
    hits, names = [], ",".join(wanted.encoders)
    for row, place in zip(done.rows, pc.index_in(ids, items["id"].combine_chunks()).to_pylist(), strict=True):
        more = link("/search", corpus=wanted.corpus, encoders=names, like=f"{done.modality}:{place}")
        hits.append({**row, "more": more})
    return {**found, "modality": done.modality, "hits": hits}


_OFFERED = 8  # stored items that a search can start from where no model can encode what was asked for


def _offers(state: State, wanted: WantedItems, encoder: str) -> list[dict[str, Any]]:
    """Images spread over the corpus, each with the address of the search for more like it."""
    items = state.store.items(wanted.corpus, "image")
    places = sorted({at * items.num_rows // _OFFERED for at in range(_OFFERED)} & {*range(items.num_rows)})
    return [
        {**row, "more": link("/search", corpus=wanted.corpus, encoders=encoder, like=f"image:{at}")}
        for at, row in zip(places, items.take(places).to_pylist(), strict=True)
    ]


def _hits(columns: list[dict[str, Any]]) -> pa.Table:
    """What was found, as rows: encoder, rank, score, id, text."""
    found = [{**hit, "encoder": one["encoder"]} for one in columns for hit in one["hits"]]
    kinds: dict[str, pa.DataType] = {"encoder": pa.string(), "rank": pa.int32(), "score": pa.float32()}
    return pa.Table.from_pylist(found, schema=pa.schema(kinds | {"id": pa.string(), "text": pa.string()}))


def _command(wanted: WantedItems, encoder: str) -> str:
    """The command that finds the same for a text."""
    modality = f" --modality {wanted.modality}" if wanted.modality else ""
    text, corpus, k = shlex.quote(wanted.text), shlex.quote(wanted.corpus), wanted.k
    return f"capim search {text} --encoder {shlex.quote(encoder)} --corpus {corpus} -k {k}{modality}"


@dataclass(frozen=True, kw_only=True)
class WantedMaps:
    """The maps of an address.

    Attributes:
        corpus: Name; in an address empty: the first.
        modality: Which items.
        encoders: One or two with embeddings of these; empty: the first.
        method: How the plane was found.
        colour: A key of ``COLOURS``, or ``shows:OBJECT``, ``type:TYPE``.
        protocol: Whose outcomes ``result`` and ``both`` are about; empty: the first whose queries are these items.
    """

    corpus: str
    modality: Modality
    encoders: tuple[str, ...]
    method: Method
    colour: str
    protocol: str

    @property
    def query(self) -> dict[str, object]:
        """The parameters of an address, without the encoders."""
        return {name: getattr(self, name) for name in ("corpus", "modality", "method", "colour", "protocol")}


class Coloured(NamedTuple):
    """The colour of every item: the names of the colours, and their numbers, uint8, shape ``(n_items,)``."""

    names: list[str]
    codes: NDArray[np.uint8]


def read_map(parameters: QueryParams, state: State) -> tuple[WantedMaps, list[str]]:
    """The maps of an address, and the encoders that have one.

    Raises:
        RequestError: A name that the store does not have, with the nearest; a wrong value; all faults.
    """
    modality, method = parameters.get("modality") or "caption", parameters.get("method") or "pca"
    colour = parameters.get("colour") or "result"
    keys = [sealed.key for sealed in state.store.sealed_sets()]
    known = sorted({key.corpus for key in keys})
    if not known:
        raise RequestError("the store has no embeddings; run `capim run` first")
    corpus = parameters.get("corpus") or known[0]
    having = sorted({key.encoder for key in keys if (key.corpus, key.modality) == (corpus, modality)})
    names = names_in(parameters, "encoders")
    given = [("modality", modality, MODALITIES), ("method", method, METHODS), ("corpus", corpus, known)]
    given += [("encoder", name, having) for name in names]
    faults = [unknown(what, name, choices) for what, name, choices in given if name not in choices]
    if not (having or faults):
        faults.append(f"corpus {corpus!r} has no embeddings of {MODALITIES[modality]}")
    if colour == "both" and len(names) != 2:
        faults.append("colour=both: choose two encoders")
    if len(names) > 2:
        faults.append(f"encoders={','.join(names)}: choose at most two")
    if colour not in COLOURS and not colour.startswith(("shows:", "type:")):
        faults.append(unknown("colour", colour, [*COLOURS, "shows:OBJECT", "type:TYPE"]))
    if faults:
        raise RequestError(faults)
    wanted = WantedMaps(
        corpus=corpus,
        modality=cast(Modality, modality),
        encoders=names or tuple(having[:1]),
        method=cast(Method, method),
        colour=colour,
        protocol=parameters.get("protocol", ""),
    )
    return wanted, having


def maps(request: Request) -> Response:
    """The form, and a place for each map, which comes when it is computed."""
    state = state_of(request)
    wanted, having = read_map(request.query_params, state)
    form, evaluated = request.query_params.get("as"), _evaluated(state, wanted)
    ordered = {name: dict.fromkeys((name, *wanted.encoders)) for name in wanted.encoders}
    places = [(name, link("/map/figure", **wanted.query, encoders=",".join(of))) for name, of in ordered.items()]
    protocol, queries = wanted.protocol or next(iter(evaluated), ""), ""
    if protocol:
        chosen = {"corpus": wanted.corpus, "protocol": protocol, "encoders": ",".join(wanted.encoders)}
        queries = link("/queries", **chosen, items=f"{wanted.modality}:")  # of a selection, which is still to be added
    values = {
        "wanted": wanted,
        "figures": [_figure(state, wanted, name) for name in wanted.encoders] if form else [],
        "places": places,
        "corpora": [(name, name) for name in encoders_of(state)],
        "encoders": [(name, name in wanted.encoders) for name in having],
        "modalities": list(MODALITIES.items()),
        "methods": [(name, title) for name, title in METHODS.items() if name != "umap" or find_spec("umap")],
        "colours": _colours(state, wanted),
        "protocols": [("", "first protocol"), *((name, name) for name in evaluated)],
        "queries": queries,
    }
    try:
        statement = _statement(state, wanted, wanted.encoders[0])
    except RequestError:  # the figure says why it has no colours
        statement = None
    table = _points(state, wanted) if form == "csv" else None
    return respond(request, View(template="map.html", title="Map", statement=statement, table=table, values=values))


def figure(request: Request) -> Response:
    """One map: its points, the legend, and how much of the neighbourhood they keep."""
    wanted, _ = read_map(request.query_params, state_of(request))
    found = _figure(state_of(request), wanted, wanted.encoders[0])
    return respond(request, View(template="plane.html", title="Map", values={"figure": found, "wanted": wanted}))


def item(request: Request) -> Response:
    """One item of the corpus: its text, or its picture."""
    state = state_of(request)
    wanted, _ = read_map(request.query_params, state)
    position = request.query_params.get("item", "")
    items = state.store.items(wanted.corpus, wanted.modality)
    if not position.isdecimal() or int(position) >= items.num_rows:
        raise RequestError(f"item={position}: corpus {wanted.corpus!r} has {items.num_rows}, counted from 0")
    row = items.slice(int(position), 1).to_pylist()[0]
    like = link("/search", corpus=wanted.corpus, like=f"{wanted.modality}:{position}")
    return respond(request, View(template="item.html", title="Item", values={"item": row, "like": like}))


def _evaluated(state: State, wanted: WantedMaps) -> dict[str, EvaluatedTask]:
    """Protocol to its evaluations, of those whose queries are the items of the map and that all encoders have."""
    try:
        every = state.snapshot().evaluated
    except RequestError:  # the store has no results
        return {}
    direction = {"image": "i2t", "caption": "t2i"}[wanted.modality]
    return {
        protocol: one
        for (corpus, protocol), one in every.items()
        if (corpus, one.protocol.direction) == (wanted.corpus, direction)
        and all(name in one.evaluations for name in wanted.encoders)
    }


def _colours(state: State, wanted: WantedMaps) -> list[tuple[str, str]]:
    """What the points can be coloured by: value and text."""
    captions = wanted.modality == "caption"
    fits = {"language": captions, "both": len(wanted.encoders) == 2}
    found = [(key, text) for key, text in COLOURS.items() if fits.get(key, True)]
    columns: list[tuple[str, str, Modality, str]] = [("shows", "image shows", "image", "objects")]
    columns += [("type", "type of query", "caption", "query_types")] if captions else []
    for kind, title, modality, name in columns:
        lists = state.store.items(wanted.corpus, modality)[name].to_pylist()
        common = Counter(value for values in lists for value in values or ()).most_common(30)
        found += [(f"{kind}:{value}", f"{title}: {value}") for value, _ in sorted(common)]
    return found


def _statement(state: State, wanted: WantedMaps, encoder: str) -> Statement:
    """The position of every item that has a colour, and the name of the colour."""
    kind, _, value = wanted.colour.partition(":")
    if kind in ("result", "both"):
        return _outcomes(state, wanted, encoder)
    corpus = state.store.key(encoder=encoder, corpus=wanted.corpus, modality=wanted.modality).corpus_fingerprint
    joined, parameters = "", [value, value, corpus]
    if kind == "shows":
        image = "m.id" if wanted.modality == "image" else "m.image_id"
        joined = f"JOIN images i ON i.corpus_fingerprint = m.corpus_fingerprint AND i.id = {image}"
        colour = "CASE WHEN list_contains(i.objects, ?) THEN concat('shows ', ?) ELSE 'others' END"
    elif kind == "type":
        colour = "CASE WHEN list_contains(m.query_types, ?) THEN ? ELSE 'others' END"
    else:
        colour, parameters = "m.language" if kind == "language" else "'items'", [corpus]
    return Statement(
        sql=f"SELECT m.ord, m.id, {colour} AS colour\nFROM {MODALITIES[wanted.modality]} m {joined}\n"
        "WHERE m.corpus_fingerprint = ?\nORDER BY m.ord",
        parameters=tuple(parameters),
    )


def _outcomes(state: State, wanted: WantedMaps, encoder: str) -> Statement:
    evaluated = _evaluated(state, wanted)
    if not evaluated:
        what = f"{MODALITIES[wanted.modality]} of {wanted.corpus!r}"
        raise RequestError(f"no protocol that {' and '.join(wanted.encoders)} share uses the {what} as queries")
    protocol = wanted.protocol or next(iter(evaluated))
    if protocol not in evaluated:
        raise RequestError(unknown("protocol", protocol, evaluated))
    names = tuple(sorted(wanted.encoders)) if wanted.colour == "both" else (encoder,)
    of = evaluated[protocol]
    found = [f'max("{name} (worst)") = 1' for name in names]
    if len(names) == 1:
        colour = f"""CASE WHEN {found[0]} THEN 'found' WHEN max("{encoder}") > 1 THEN 'missed' ELSE 'tied' END"""
    else:
        colour = (
            f"CASE WHEN {found[0]} THEN CASE WHEN {found[1]} THEN 'both find' ELSE 'only {names[0]}' END\n"
            f"    WHEN {found[1]} THEN 'only {names[1]}' ELSE 'neither finds' END"
        )
    every = select(QueryFilter(corpus=of.corpus, protocol=protocol, encoders=names), of)
    columns = f"query_ord AS ord, any_value(query_id) AS id, {colour} AS colour"
    return over(every, columns, "GROUP BY query_ord\nORDER BY query_ord")


def coloured_of(state: State, wanted: WantedMaps, encoder: str, n_items: int) -> Coloured:
    """The colour of every item; of more than ten the rare ones are one."""
    rows = state.rows(_statement(state, wanted, encoder))
    colours = texts(rows["colour"])
    if wanted.colour == "result":
        names = list(RESULTS)
    elif wanted.colour == "both":
        first, second = sorted(wanted.encoders)
        names = ["both find", f"only {first}", f"only {second}", "neither finds", NO_QUERY]
    else:
        counts = Counter(colours)
        names = [name for name, _ in counts.most_common(MOST_COLOURS - 1)]
        names += [OTHERS] if len(counts) > len(names) or len(rows) < n_items else []
        names = sorted(dict.fromkeys(names), key=lambda name: (name == OTHERS, name))
    place = {name: at for at, name in enumerate(names)}
    codes = np.full(n_items, len(names) - 1, np.uint8)
    codes[rows["ord"].to_numpy()] = np.array([place.get(name, len(names) - 1) for name in colours], np.uint8)
    return Coloured(names, codes)


def _figure(state: State, wanted: WantedMaps, encoder: str) -> dict[str, Any]:
    """What the template of one map reads; the reason where it cannot be made."""
    try:
        found = _map(state, wanted, encoder)
        coloured = coloured_of(state, wanted, encoder, len(found.plane.points))
    except (RequestError, WorkError) as fault:
        return {"encoder": encoder, "fault": str(fault)}
    key = state.store.key(encoder=encoder, corpus=wanted.corpus, modality=wanted.modality)
    x, y = _placed(found.plane.points)
    counts = np.bincount(coloured.codes, minlength=len(coloured.names)).tolist()
    named = enumerate(zip(coloured.names, counts, strict=True))
    return {
        "encoder": encoder,
        "fault": "",
        "legend": [(f"c{at}", name, show.number(n, 0)) for at, (name, n) in named if n],
        **{name: _packed(values) for name, values in (("x", x), ("y", y), ("codes", coloured.codes))},
        "picture": _picture(x, y, coloured),
        "about": ("Every item is placed at the mean of its vectors. " if key.vectors == "multi" else "")
        + _about(found),
        "n": show.number(len(x), 0),
    }


def _map(state: State, wanted: WantedMaps, encoder: str) -> Map:
    return state.services.map(encoder=encoder, corpus=wanted.corpus, modality=wanted.modality, method=wanted.method)


def _placed(points: NDArray[np.float32]) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """The points in a square, with one scale for both axes: 0 to 65535 from left to right and from top to bottom."""
    low, high = points.min(axis=0), points.max(axis=0)
    scale = 65535 / max(float((high - low).max()), 1e-12)
    placed = ((points - (low + high) / 2) * scale + 32767.5).clip(0, 65535)
    return placed[:, 0].astype(np.uint16), (65535 - placed[:, 1]).astype(np.uint16)


def _packed(values: NDArray[Any]) -> str:
    return base64.b64encode(values.astype(values.dtype.newbyteorder("<")).tobytes()).decode()


def _picture(x: NDArray[np.uint16], y: NDArray[np.uint16], coloured: Coloured) -> str:
    """The points as a PNG, for a saved page, which has no script."""
    ink = np.array([[*bytes.fromhex(colour)] for colour in INK], np.uint8)
    pixels = np.zeros((SIDE, SIDE, 4), np.uint8)
    column, row = (np.minimum(values // (65536 // SIDE), SIDE - 2).astype(np.int64) for values in (x, y))
    for down, right in ((0, 0), (0, 1), (1, 0), (1, 1)):
        pixels[row + down, column + right, :3] = ink[coloured.codes]
        pixels[row + down, column + right, 3] = 255
    target = io.BytesIO()
    Image.fromarray(pixels).save(target, "PNG", optimize=True)
    return data_uri(target.getvalue())


def _about(found: Map) -> str:
    """How much of the neighbourhood and of the variance the plane keeps, in words."""
    kept, shares = found.kept, found.plane.shares
    text = ""
    if not math.isnan(shares[0]):
        text = f"The axes have {show.percent(shares[0])} % and {show.percent(shares[1])} % of the variance. "
    if not kept.n_sampled:
        return f"{text}There are too few items to tell how much of their neighbourhood the map preserves."
    return (
        f"{text}Of the {kept.nearest} nearest items of an item, the map keeps {show.percent(kept.share)} % on average; "
        f"trustworthiness {show.number(kept.trustworthiness, 3)} (over {show.number(kept.n_sampled, 0)} items)."
    )


def _points(state: State, wanted: WantedMaps) -> pa.Table:
    """Every item with its point and its colour, of every encoder."""
    items = state.store.items(wanted.corpus, wanted.modality)
    columns: dict[str, Any] = {"ord": np.arange(items.num_rows, dtype=np.int32), "id": items["id"]}
    for name in wanted.encoders:
        points = _map(state, wanted, name).plane.points
        coloured = coloured_of(state, wanted, name, items.num_rows)
        columns |= {f"{name} x": points[:, 0], f"{name} y": points[:, 1]}
        columns[f"{name} colour"] = np.array(coloured.names, object)[coloured.codes]
    return pa.table(columns)
