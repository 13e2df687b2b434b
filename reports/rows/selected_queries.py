"""Selects the single queries of the gallery from the stored outcomes of ``t2i/all``.

The selection is a fixed rule: the hardest queries that every encoder misses, those that exactly one encoder misses or
finds, those decided by a tie, and near misses. At most one query per image; the same rows give the same selection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

PROTOCOL = "t2i/all"
LIST_LENGTH = 5  # items kept of each ranked list
MOST = 24  # queries per corpus


@dataclass(frozen=True, kw_only=True)
class RankedList:
    """One encoder's ranks of the relevant image, and the first ``LIST_LENGTH`` images (ordinal, score)."""

    encoder: str
    rank_best: int
    rank_worst: int
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, kw_only=True)
class SelectedQuery:
    """One caption of ``t2i/all`` for the gallery, with the reason for its selection.

    Attributes:
        corpus: Corpus name.
        kind: The rule that selected it, such as ``"missed by all"``.
        query_id: Id of the caption.
        caption: Row of the caption in the corpus.
        image: Row of the relevant image in the corpus.
        lists: One per encoder.
    """

    corpus: str
    kind: str
    query_id: str
    caption: int
    image: int
    lists: tuple[RankedList, ...]


def select_queries(
    corpus: str, outcomes: Mapping[str, pa.Table], examples: Mapping[str, Sequence[str]] | None = None
) -> list[SelectedQuery]:
    """The selected queries of one corpus, by kind and caption.

    Args:
        corpus: Its name.
        outcomes: Encoder to its rows of ``schema.OUTCOMES`` under ``t2i/all``, in any order. Encoders whose queries
            differ from those of the first are left out.
        examples: Kind of error to the ids of its example queries in the failure analysis.
    """
    tables = {name: table.sort_by("query_ord") for name, table in sorted(outcomes.items()) if table.num_rows}
    if not tables:
        return []
    first = next(iter(tables.values()))
    queries = first["query_ord"].to_numpy()
    tables = {name: t for name, t in tables.items() if np.array_equal(t["query_ord"].to_numpy(), queries)}
    low = np.stack([t["rank_best"].to_numpy() for t in tables.values()])
    high = np.stack([t["rank_worst"].to_numpy() for t in tables.values()])
    images = first["cluster"].to_numpy()

    candidates = _candidates(low, high)
    for kind, ids in sorted((examples or {}).items()):
        candidates.append((kind, np.flatnonzero(np.isin(first["query_id"].to_numpy(), list(ids)))))
    selected: dict[int, tuple[str, int]] = {}  # image to the kind and row of its query
    for kind, row in _round_robin(candidates):
        if len(selected) < MOST:
            selected.setdefault(int(images[row]), (kind, row))
    order = {kind: i for i, (kind, _) in enumerate(candidates)}
    return [
        SelectedQuery(
            corpus=corpus,
            kind=kind,
            query_id=first["query_id"][row].as_py(),
            caption=int(queries[row]),
            image=image,
            lists=tuple(_ranked_list(name, table, row) for name, table in tables.items()),
        )
        for image, (kind, row) in sorted(selected.items(), key=lambda item: (order[item[1][0]], item[1][1]))
    ]


def _candidates(low: NDArray[np.int32], high: NDArray[np.int32]) -> list[tuple[str, NDArray[np.intp]]]:
    """Per kind (and encoder, for the kinds about a single one) the rows of its queries, hardest first."""
    missed, first = low > 1, high == 1
    by_all: NDArray[np.bool_] = np.logical_and.reduce(missed, axis=0)
    candidates = [("missed by all", _by(low.min(axis=0), by_all))]
    if len(low) > 1:
        for i in range(len(low)):
            others = np.arange(len(low)) != i
            candidates += [
                ("missed by only one", _by(low[i], missed[i] & np.all(first[others], axis=0))),
                ("found by only one", _by(low[others].min(axis=0), first[i] & missed[others].all(axis=0))),
            ]
    tied: NDArray[np.bool_] = np.logical_or.reduce((low == 1) & (high > 1), axis=0)
    near: NDArray[np.bool_] = np.logical_or.reduce((low > 1) & (low <= 10), axis=0)
    candidates.append(("decided by a tie", _by((high - low).max(axis=0), tied)))
    return [*candidates, ("near miss", _by(-low.sum(axis=0), near))]


def _by(weight: NDArray[np.int32], mask: NDArray[np.bool_]) -> NDArray[np.intp]:
    """The rows of a mask, largest weight first, equal weights in order."""
    rows = np.flatnonzero(mask)
    return rows[np.argsort(-weight[rows].astype(np.int64), kind="stable")]


def _round_robin(candidates: Sequence[tuple[str, NDArray[np.intp]]]) -> Iterator[tuple[str, int]]:
    """One row of every list in turn, at most ``MOST`` of each."""
    for depth in range(MOST):
        for kind, rows in candidates:
            if depth < len(rows):
                yield kind, int(rows[depth])


def _ranked_list(encoder: str, table: pa.Table, position: int) -> RankedList:
    row: dict[str, Any] = table.slice(position, 1).to_pylist()[0]
    top = zip((row["top_ords"] or [])[:LIST_LENGTH], (row["top_scores"] or [])[:LIST_LENGTH], strict=True)
    return RankedList(
        encoder=encoder,
        rank_best=row["rank_best"],
        rank_worst=row["rank_worst"],
        top=tuple((int(o), float(s)) for o, s in top),
    )
