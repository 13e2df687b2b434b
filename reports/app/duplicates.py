"""The page of near-duplicates, ``/duplicates``: pairs of stored images side by side, with how they were found."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from capim.reports import format as show
from capim.reports.app.state import PAGE, State, View, faults_of_number, link, names_in, respond, state_of
from capim.store.errors import RequestError, WorkError, unknown
from capim.store.schema import DUPLICATES

WAYS = {"bytes": "equal bytes", "name": "equal file names", "picture": "alike as pictures", "vectors": "close vectors"}
PLACES = {"within": "in one corpus", "between": "of two corpora (training and test)"}
NOTHING = "-"  # in the address: no encoder
AT_ONCE = 20_000  # images, up to which all corpora and the first encoder are compared unasked
_BITS = ("0", "2", "4", "8")
_PREFIXES = ("", "other_")  # prefixes of the columns of a pair


class WantedPairs(NamedTuple):
    """The pairs of an address.

    Attributes:
        corpora: Names; in an address empty: all, or of many images the first.
        encoder: Whose vectors are compared; empty: nobody's. In an address empty: the first, unless of many images.
        threshold: Least cosine, in -1..1.
        bits: Most that may differ of the 64 of two perceptual hashes; None: these are not compared.
        by: A key of ``WAYS``, the only one that is shown; empty: all.
        place: A key of ``PLACES``; empty: both.
        reverse: Whether the least sure pair is first.
        page: From 1.
    """

    corpora: tuple[str, ...]
    encoder: str
    threshold: float
    bits: int | None
    by: str
    place: str
    reverse: bool
    page: int


def read_pairs(parameters: QueryParams, sizes: dict[str, int], encoders: dict[str, list[str]]) -> WantedPairs:
    """The pairs of an address.

    Args:
        parameters: Of the address.
        sizes: Corpus to its number of images.
        encoders: Encoder to the corpora of which it has a vector per image.

    Raises:
        RequestError: A name that the store does not have, with the nearest; a wrong value; all faults.
    """
    if not sizes:
        raise RequestError("the store has no images yet; run `capim embed` or `capim run` first")
    few = sum(sizes.values()) <= AT_ONCE
    corpora = names_in(parameters, "corpora") or tuple(sizes if few else [*sizes][:1])
    faults = [unknown("corpus", name, sizes) for name in corpora if name not in sizes]
    unasked = [name for name, of in encoders.items() if {*corpora} <= {*of}] if few else []
    encoder = parameters.get("encoder") or next(iter(unasked), NOTHING)
    threshold, bits, page = (parameters.get(name, "") for name in ("threshold", "bits", "page"))
    by, place = (parameters.get(name, "") for name in ("by", "pairs"))
    given = [("encoder", encoder, (NOTHING, *encoders)), ("bits", bits, ("", *_BITS))]
    given += [("by", by, ("", *WAYS)), ("pairs", place, ("", *PLACES))]
    faults += [unknown(what, value, [*filter(None, of)]) for what, value, of in given if value not in of]
    try:
        cosine = float(threshold or 0.95)
    except ValueError:
        cosine = 2
    if not -1 <= cosine <= 1:
        faults.append(f"threshold={threshold}: expected a cosine between -1 and 1")
    faults += faults_of_number("page", page)
    if faults:
        raise RequestError(faults)
    return WantedPairs(
        corpora=corpora,
        encoder="" if encoder == NOTHING else encoder,
        threshold=cosine,
        bits=int(bits) if bits else None,
        by=by,
        place=place,
        reverse=parameters.get("order") == "reverse",
        page=int(page or 1),
    )


def duplicates(request: Request) -> Response:
    """The form, and the pairs; why there are none, where they cannot be found."""
    state = state_of(request)
    sizes = {row["name"]: row["n_images"] for row in state.store.corpora().to_pylist() if row["n_images"]}
    encoders: dict[str, list[str]] = {}
    for key in (sealed.key for sealed in state.store.sealed_sets()):
        if (key.modality, key.vectors) == ("image", "single") and key.corpus in sizes:
            encoders.setdefault(key.encoder, []).append(key.corpus)
    wanted, fault = read_pairs(request.query_params, sizes, encoders), ""
    found: list[dict[str, Any]] = []
    try:
        found = state.services.duplicates(
            corpora=wanted.corpora, encoder=wanted.encoder or None, threshold=wanted.threshold, bits=wanted.bits
        )
    except (RequestError, WorkError) as error:
        fault = str(error)
    rows = [row for row in found if wanted.by in ("", row["by"]) and wanted.place in ("", _place(row))]
    rows = rows[::-1] if wanted.reverse else rows
    paired = {(row[f"{side}corpus"], row[f"{side}image"]) for row in rows for side in _PREFIXES}
    n_paired = Counter(corpus for corpus, _ in paired)
    start = PAGE * (wanted.page - 1)
    values = {
        "wanted": wanted,
        "fault": fault,
        "sentence": _sentence(rows),
        "shared": [f"{name}: {n_paired[name]:,} of {show.count(sizes[name], 'image')}" for name in wanted.corpora],
        "pairs": _shown(state, rows[start : start + PAGE], wanted),
        "more": len(rows) > start + PAGE,
        "command": _command(wanted),
        "corpora": [(name, name in wanted.corpora) for name in sizes],
        "encoders": [(NOTHING, "none"), *((name, name) for name in sorted(encoders))],
        "bits": [("", "not compared"), *((bits, f"{bits} of 64 bits differ at most") for bits in _BITS)],
        "ways": [("", "any way"), *WAYS.items()],
        "places": [("", "in one or of two corpora"), *PLACES.items()],
    }
    table = pa.Table.from_pylist(rows, schema=DUPLICATES)
    return respond(request, View(template="duplicates.html", title="Near-duplicates", table=table, values=values))


def _place(row: dict[str, Any]) -> str:
    return "within" if row["corpus"] == row["other_corpus"] else "between"


def _sentence(rows: list[dict[str, Any]]) -> str:
    """How many pairs there are, and how many of them were found in which way."""
    counts = Counter(row["by"] for row in rows)
    ways = [f"{counts[by]:,} by {way}" for by, way in WAYS.items() if counts[by]]
    return show.count(len(rows), "pair") + (f": {show.listing(ways)}" if ways else "")


def _shown(state: State, rows: list[dict[str, Any]], wanted: WantedPairs) -> list[dict[str, Any]]:
    """Pairs as the template shows them, with the pictures of both images."""
    images: dict[tuple[str, str], dict[str, Any]] = {}
    for corpus in wanted.corpora:
        items = state.store.items(corpus, "image")
        ids = {row[f"{side}image"] for row in rows for side in _PREFIXES if row[f"{side}corpus"] == corpus}
        places = pc.index_in(pa.array(sorted(ids), pa.string()), items["id"].combine_chunks())
        for at, item in zip(places.to_pylist(), items.select(["id", "sha"]).take(places).to_pylist(), strict=True):
            like = {"corpus": corpus, "encoders": wanted.encoder, "like": f"image:{at}"}
            images[corpus, item["id"]] = {**item, "corpus": corpus, "like": wanted.encoder and link("/search", **like)}
    return [
        {
            "by": WAYS[row["by"]],
            "cosine": row["cosine"],
            "sides": [images[row[f"{side}corpus"], row[f"{side}image"]] for side in _PREFIXES],
        }
        for row in rows
    ]


def _command(wanted: WantedPairs) -> str:
    """The command that lists the same pairs, in whatever way and place they were found."""
    vectors = f" --encoder {shlex.quote(wanted.encoder)} --threshold {wanted.threshold:g}" if wanted.encoder else ""
    bits = "" if wanted.bits is None else f" --bits {wanted.bits}"
    return f"capim duplicates --corpus {shlex.quote(','.join(wanted.corpora))}{vectors}{bits}"
