"""``/map``: the items of a corpus as points of a plane, of one encoder or of two with one selection."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image
from starlette.requests import Request
from starlette.responses import Response

from capim.reports import format as show
from capim.reports.app.maps import (
    METHODS,
    MODALITIES,
    Coloured,
    Wanted,
    choices_of,
    coloured_of,
    evaluated_of,
    read_map,
    statement_of,
)
from capim.reports.app.rendering import View, link, respond
from capim.reports.app.state import Evaluated, State, state_of
from capim.store.errors import RequestError, WorkError
from capim.store.types import Map

SIDE = 512  # of a picture of a map, in pixels
INK = ("0072b2", "e69f00", "d55e00", "808080", "009e73", "cc79a7", "56b4e9", "b2a300", "7a5cc7", "8c564b")  # as app.css


def page(request: Request) -> Response:
    """The form, and a place for each map, which comes when it is computed."""
    state = state_of(request)
    wanted, having = read_map(request.query_params, state)
    at_once = bool(request.query_params.get("as"))
    places = [link("/map/figure", **wanted.query, encoders=",".join(_first(wanted, name))) for name in wanted.encoders]
    evaluated = evaluated_of(state, wanted)
    values = {
        "wanted": wanted,
        "figures": [_figure(state, wanted, name) for name in wanted.encoders] if at_once else [],
        "places": list(zip(wanted.encoders, places, strict=True)),
        "corpora": [(name, name) for name in sorted({each.key.corpus for each in state.store.sealed_sets()})],
        "encoders": [(name, name in wanted.encoders) for name in having],
        "modalities": list(MODALITIES.items()),
        "methods": [(name, title) for name, title in METHODS.items() if name != "umap" or find_spec("umap")],
        "colours": choices_of(state, wanted),
        "protocols": [("", "the first"), *((one.protocol, one.protocol) for one in evaluated.values())],
        "queries": _queries(wanted, evaluated),
    }
    try:
        statement = statement_of(state, wanted, wanted.encoders[0])
    except RequestError:  # the figure says why it has no colours
        statement = None
    table = _rows(state, wanted) if request.query_params.get("as") == "csv" else None
    view = View(template="map.html", title="Map", statement=statement, table=table, values=values)
    return respond(request, view)


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


def _first(wanted: Wanted, name: str) -> list[str]:
    """The encoders of an address, one of them first."""
    return [name, *(other for other in wanted.encoders if other != name)]


def _queries(wanted: Wanted, evaluated: Mapping[str, Evaluated]) -> str:
    """The address of the queries of a selection, which is still to be added."""
    protocol = wanted.protocol or next(iter(evaluated), "")
    if not protocol:
        return ""
    encoders = ",".join(wanted.encoders)
    return link("/queries", corpus=wanted.corpus, protocol=protocol, encoders=encoders, items=f"{wanted.modality}:")


def _figure(state: State, wanted: Wanted, encoder: str) -> dict[str, Any]:
    """What the template of one map reads; the reason where it cannot be made."""
    try:
        found = state.services.map(
            encoder=encoder, corpus=wanted.corpus, modality=wanted.modality, method=wanted.method
        )
        coloured = coloured_of(state, wanted, encoder, len(found.plane.points))
    except (RequestError, WorkError) as fault:
        return {"encoder": encoder, "fault": str(fault)}
    key = state.store.key(encoder=encoder, corpus=wanted.corpus, modality=wanted.modality)
    x, y = _placed(found.plane.points)
    counts = np.bincount(coloured.codes, minlength=len(coloured.names)).tolist()
    shown = enumerate(zip(coloured.names, counts, strict=True))
    legend = [(f"c{at}", name, show.number(n, 0)) for at, (name, n) in shown if n]
    return {
        "encoder": encoder,
        "fault": "",
        "legend": legend,
        "x": _packed(x),
        "y": _packed(y),
        "codes": _packed(coloured.codes),
        "picture": _picture(x, y, coloured),
        "about": ("Every item is at the mean of its vectors. " if key.vectors == "multi" else "") + _about(found),
        "n": show.number(len(x), 0),
    }


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
    return f"data:image/png;base64,{base64.b64encode(target.getvalue()).decode()}"


def _about(found: Map) -> str:
    """How much of the neighbourhood and of the variance the plane keeps, in words."""
    kept, shares = found.kept, found.plane.shares
    text = ""
    if not math.isnan(shares[0]):
        text = f"The axes have {show.percent(shares[0])} % and {show.percent(shares[1])} % of the variance. "
    if not kept.n_sampled:
        return f"{text}There are too few items to say how much of their neighbourhood the map keeps."
    over = f"over {show.number(kept.n_sampled, 0)} items"
    return (
        f"{text}Of the {kept.nearest} nearest items of an item, the map keeps {show.percent(kept.share)} % on average; "
        f"trustworthiness {show.number(kept.trustworthiness, 3)} ({over})."
    )


def _rows(state: State, wanted: Wanted) -> pa.Table:
    """Every item with its point and its colour, of every encoder."""
    items = state.store.items(wanted.corpus, wanted.modality)
    columns: dict[str, Any] = {"ord": np.arange(items.num_rows, dtype=np.int32), "id": items["id"]}
    for name in wanted.encoders:
        found = state.services.map(encoder=name, corpus=wanted.corpus, modality=wanted.modality, method=wanted.method)
        coloured = coloured_of(state, wanted, name, items.num_rows)
        columns |= {f"{name} x": found.plane.points[:, 0], f"{name} y": found.plane.points[:, 1]}
        columns[f"{name} colour"] = np.array(coloured.names, object)[coloured.codes]
    return pa.table(columns)
