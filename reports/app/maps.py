"""Which maps an address asks for, and the colour of their points."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from starlette.datastructures import QueryParams

from capim.reports.app.filters import QueryFilter, all_of
from capim.reports.app.state import Evaluated, State, Statement, names_in
from capim.store.errors import RequestError, unknown
from capim.store.schema import texts
from capim.store.types import Method, Modality

METHODS = {"pca": "PCA", "umap": "UMAP"}
MODALITIES = {"image": "images", "caption": "captions"}
DIRECTION = {"image": "i2t", "caption": "t2i"}
COLOURS = {"result": "found or missed", "both": "what both find", "language": "language", "none": "nothing"}
MOST_COLOURS = 10
OTHERS, NO_QUERY = "others", "no query"
RESULTS = ("found", "tied", "missed", NO_QUERY)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The maps of an address.

    Attributes:
        corpus: Name; in an address empty: the first.
        modality: Which items.
        encoders: One or two with a single vector per item; empty: the first.
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


def read_map(parameters: QueryParams, state: State) -> tuple[Wanted, list[str]]:
    """The maps of an address, and the encoders that have one.

    Raises:
        RequestError: A name that the store does not have, with the nearest; a wrong value; all faults.
    """
    modality, method = parameters.get("modality") or "caption", parameters.get("method") or "pca"
    colour = parameters.get("colour") or "result"
    faults = [unknown("modality", modality, MODALITIES)] if modality not in MODALITIES else []
    faults += [unknown("method", method, METHODS)] if method not in METHODS else []
    keys = [sealed.key for sealed in state.store.sealed_sets()]
    known = sorted({key.corpus for key in keys})
    if not known:
        raise RequestError("the store has no embeddings; run `capim run` first")
    corpus = parameters.get("corpus") or known[0]
    faults += [unknown("corpus", corpus, known)] if corpus not in known else []
    having = sorted({key.encoder for key in keys if (key.corpus, key.modality) == (corpus, modality)})
    names = names_in(parameters, "encoders")
    faults += [unknown("encoder", name, having) for name in names if name not in having]
    if not (having or faults):
        faults.append(f"corpus {corpus!r} has no embeddings of {MODALITIES[modality]}")
    if colour == "both" and len(names) != 2:
        faults.append("colour=both: choose two encoders")
    if len(names) > 2:
        faults.append(f"encoders={','.join(names)}: two maps at most are side by side")
    if colour not in COLOURS and not colour.startswith(("shows:", "type:")):
        faults.append(unknown("colour", colour, [*COLOURS, "shows:OBJECT", "type:TYPE"]))
    if faults:
        raise RequestError(faults)
    wanted = Wanted(
        corpus=corpus,
        modality=cast(Modality, modality),
        encoders=names or tuple(having[:1]),
        method=cast(Method, method),
        colour=colour,
        protocol=parameters.get("protocol", ""),
    )
    return wanted, having


def evaluated_of(state: State, wanted: Wanted) -> dict[str, Evaluated]:
    """Protocol to its evaluations, of those whose queries are the items of the map and that all encoders have."""
    try:
        every = state.snapshot().evaluated
    except RequestError:  # the store has no results
        return {}
    return {
        protocol: one
        for (corpus, protocol), one in every.items()
        if corpus == wanted.corpus
        and one.direction == DIRECTION[wanted.modality]
        and all(name in one.evaluations for name in wanted.encoders)
    }


def choices_of(state: State, wanted: Wanted) -> list[tuple[str, str]]:
    """What the points can be coloured by: value and text."""
    found = [(key, text) for key, text in COLOURS.items() if key != "language" or wanted.modality == "caption"]
    found = [(key, text) for key, text in found if key != "both" or len(wanted.encoders) == 2]
    for kind, title, modality, column in (
        ("shows", "image shows", "image", "objects"),
        ("type", "type of query", "caption", "query_types"),
    ):
        if kind == "shows" or wanted.modality == "caption":
            lists = state.store.items(wanted.corpus, cast(Modality, modality))[column].to_pylist()
            common = Counter(value for values in lists for value in values or ()).most_common(30)
            found += [(f"{kind}:{value}", f"{title}: {value}") for value, _ in sorted(common)]
    return found


def statement_of(state: State, wanted: Wanted, encoder: str) -> Statement:
    """The position of every item that has a colour, and the name of the colour."""
    key = state.store.key(encoder=encoder, corpus=wanted.corpus, modality=wanted.modality)
    corpus, kind, _, value = key.corpus_fingerprint, *wanted.colour.partition(":")
    if kind in ("result", "both"):
        return _outcomes(state, wanted, encoder)
    table = MODALITIES[wanted.modality]
    if kind == "shows":
        joined = "JOIN images i ON i.corpus_fingerprint = m.corpus_fingerprint AND i.id = " + (
            "m.id" if wanted.modality == "image" else "m.image_id"
        )
        colour = "CASE WHEN list_contains(i.objects, ?) THEN concat('shows ', ?) ELSE 'others' END"
        parameters: tuple[object, ...] = (value, value, corpus)
    elif kind == "type":
        joined, parameters = "", (value, value, corpus)
        colour = "CASE WHEN list_contains(m.query_types, ?) THEN ? ELSE 'others' END"
    else:
        joined, parameters = "", (corpus,)
        colour = "m.language" if kind == "language" else "'items'"
    return Statement(
        sql=f"SELECT m.ord, m.id, {colour} AS colour\nFROM {table} m {joined}\n"
        "WHERE m.corpus_fingerprint = ?\nORDER BY m.ord",
        parameters=parameters,
    )


def _outcomes(state: State, wanted: Wanted, encoder: str) -> Statement:
    evaluated = evaluated_of(state, wanted)
    if not evaluated:
        what = f"{MODALITIES[wanted.modality]} of {wanted.corpus!r}"
        raise RequestError(f"no protocol that {' and '.join(wanted.encoders)} have has the {what} as queries")
    protocol = wanted.protocol or next(iter(evaluated))
    if protocol not in evaluated:
        raise RequestError(unknown("protocol", protocol, evaluated))
    names = sorted(wanted.encoders) if wanted.colour == "both" else [encoder]
    of = evaluated[protocol]
    every = all_of(QueryFilter(corpus=of.corpus, protocol=protocol, encoders=tuple(names)), of)
    found = [f'max("{name} (worst)") = 1' for name in names]
    if len(names) == 1:
        colour = f"""CASE WHEN {found[0]} THEN 'found' WHEN max("{encoder}") > 1 THEN 'missed' ELSE 'tied' END"""
    else:
        colour = (
            f"CASE WHEN {found[0]} THEN CASE WHEN {found[1]} THEN 'both find' ELSE 'only {names[0]}' END\n"
            f"    WHEN {found[1]} THEN 'only {names[1]}' ELSE 'neither finds' END"
        )
    sql = f"""SELECT query_ord AS ord, any_value(query_id) AS id, {colour} AS colour
FROM (
{every.sql}
)
GROUP BY query_ord
ORDER BY query_ord"""  # noqa: S608 - names of the store's encoders, which have no quotes
    return replace(every, sql=sql)


def coloured_of(state: State, wanted: Wanted, encoder: str, n_items: int) -> Coloured:
    """The colour of every item; of more than ten the rare ones are one."""
    rows = state.rows(statement_of(state, wanted, encoder))
    colours = texts(rows["colour"])
    counts = Counter(colours)
    if wanted.colour == "result":
        names = list(RESULTS)
    elif wanted.colour == "both":
        first, second = sorted(wanted.encoders)
        names = ["both find", f"only {first}", f"only {second}", "neither finds", NO_QUERY]
    else:
        names = [name for name, _ in counts.most_common(MOST_COLOURS - 1)]
        names += [OTHERS] if len(counts) > len(names) or len(rows) < n_items else []
        names = sorted(dict.fromkeys(names), key=lambda name: (name == OTHERS, name))
    place = {name: at for at, name in enumerate(names)}
    codes = np.full(n_items, len(names) - 1, np.uint8)
    codes[rows["ord"].to_numpy()] = np.array([place.get(name, len(names) - 1) for name in colours], np.uint8)
    return Coloured(names, codes)
