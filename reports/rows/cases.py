"""Which single queries are worth looking at, chosen from the stored outcomes of ``t2i/all``.

The choice is a rule and not a taste: the hardest that every encoder misses, those that only one misses or only
one finds, and those decided by a tie. At most one query per image, the same cases from the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

PROTOCOL = "t2i/all"
SHOWN = 5  # how much of each list is kept
MOST = 24  # cases per corpus

MISSED_BY_ALL, ONLY_ONE_MISSES, ONLY_ONE_FINDS, TIED, NEAR = (
    "missed by all",
    "missed by only one",
    "found by only one",
    "decided by a tie",
    "near miss",
)


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What one encoder answered: ranks of the right image, and the best ``SHOWN`` images with their scores."""

    encoder: str
    rank_best: int
    rank_worst: int
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One caption of ``t2i/all`` that was chosen, and why."""

    corpus: str
    kind: str
    query_id: str
    caption: int
    image: int
    answers: tuple[Answered, ...]


def choose(
    corpus: str, outcomes: Mapping[str, pa.Table], examples: Mapping[str, Sequence[str]] | None = None
) -> list[Case]:
    """The cases of one corpus.

    Args:
        corpus: Its name.
        examples: Kind of error to the ids of queries that the failure analysis points at.
        outcomes: Encoder to its rows of ``schema.OUTCOMES`` under ``t2i/all``, in any order. Encoders whose queries
            differ from those of the first are left out.
    """
    tables = {name: table.sort_by("query_ord") for name, table in sorted(outcomes.items()) if table.num_rows}
    if not tables:
        return []
    first = next(iter(tables.values()))
    queries = first["query_ord"].to_numpy()
    tables = {name: t for name, t in tables.items() if np.array_equal(t["query_ord"].to_numpy(), queries)}
    names = list(tables)
    low = np.stack([tables[name]["rank_best"].to_numpy() for name in names])
    high = np.stack([tables[name]["rank_worst"].to_numpy() for name in names])
    images = first["cluster"].to_numpy()

    cases, seen = [], set[int]()
    lists = _candidates(names, low, high)
    for kind, ids in sorted((examples or {}).items()):
        lists.append((kind, np.flatnonzero(np.isin(first["query_id"].to_numpy(), list(ids)))))
    for kind, place in _round_robin(lists):
        if int(images[place]) in seen:
            continue
        seen.add(int(images[place]))
        cases.append(
            Case(
                corpus=corpus,
                kind=kind,
                query_id=first["query_id"][place].as_py(),
                caption=int(queries[place]),
                image=int(images[place]),
                answers=tuple(_answer(name, tables[name], place) for name in names),
            )
        )
        if len(cases) == MOST:
            break
    order = {kind: i for i, (kind, _) in enumerate(lists)}
    return sorted(cases, key=lambda case: (order[case.kind], case.caption))


def _candidates(
    names: Sequence[str], low: NDArray[np.int32], high: NDArray[np.int32]
) -> list[tuple[str, NDArray[np.intp]]]:
    """Per kind (and encoder, where it is about one) the places of its queries, the most telling first."""
    missed, found = low > 1, high == 1
    by_all: NDArray[np.bool_] = np.logical_and.reduce(missed, axis=0)
    lists: list[tuple[str, NDArray[np.intp]]] = [(MISSED_BY_ALL, _by(low.min(axis=0), by_all))]
    if len(names) > 1:
        for i in range(len(names)):
            others = np.delete(np.arange(len(names)), i)
            lists.append((ONLY_ONE_MISSES, _by(low[i], missed[i] & np.logical_and.reduce(found[others], axis=0))))
            lists.append(
                (ONLY_ONE_FINDS, _by(low[others].min(axis=0), found[i] & np.logical_and.reduce(missed[others], axis=0)))
            )
    tied: NDArray[np.bool_] = np.logical_or.reduce((low == 1) & (high > 1), axis=0)
    near: NDArray[np.bool_] = np.logical_or.reduce((low > 1) & (low <= 10), axis=0)
    lists += [(TIED, _by((high - low).max(axis=0), tied)), (NEAR, _by(-low.sum(axis=0), near))]
    return lists


def _by(weight: NDArray[np.int32], where: NDArray[np.bool_]) -> NDArray[np.intp]:
    """The places where a mask holds, largest weight first, equal weights in order."""
    places = np.flatnonzero(where)
    return places[np.argsort(-weight[places].astype(np.int64), kind="stable")]


def _round_robin(lists: Sequence[tuple[str, NDArray[np.intp]]]) -> Iterator[tuple[str, int]]:
    """One of every list in turn, until all are spent or long enough for any choice."""
    for depth in range(MOST):
        for kind, places in lists:
            if depth < len(places):
                yield kind, int(places[depth])


def _answer(encoder: str, table: pa.Table, place: int) -> Answered:
    row: dict[str, Any] = table.slice(place, 1).to_pylist()[0]
    top = zip((row["top_ords"] or [])[:SHOWN], (row["top_scores"] or [])[:SHOWN], strict=True)
    return Answered(
        encoder=encoder,
        rank_best=row["rank_best"],
        rank_worst=row["rank_worst"],
        top=tuple((int(o), float(s)) for o, s in top),
    )
