"""``/queries``: the single queries of one task, such as those that one encoder misses and another finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from starlette.requests import Request
from starlette.responses import Response

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
from capim.reports.app.rendering import View, link, respond
from capim.reports.app.state import Evaluated, Snapshot, State, state_of
from capim.reports.rows.languages import cross_lingual, judged_language, language_name
from capim.reports.rows.names import named
from capim.reports.rows.report_data import CAUSES
from capim.store.schema import texts

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
