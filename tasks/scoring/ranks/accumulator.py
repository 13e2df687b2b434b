"""Rows of the score matrix in, outcomes out: all tasks of one direction are answered from the same rows.

A gallery that is a run of items is a view of the rows. Of other galleries (captions of one ordinal, all but the sixth)
the best items are nearly always among the best few hundred of all items, which are selected once for all galleries;
where they are not, the columns of the gallery are gathered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from store.ragged import positions_within
from store.schema import TOP
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.tasks import RetrievalTask
from tasks.scoring.ranks.ranking import RelevantScores, ranks_of, relevant_scores, unjudged_share
from tasks.scoring.ranks.top_k import TopK, top_k

_LARGE_GALLERY = 12  # times the length of a list: the best of a smaller gallery are too rarely among the best of all
_SURPLUS = 1.5  # times as many of all items as would hold the list if the gallery were spread evenly
_ROWS_BYTES = 1 << 24
BUDGET_SHARE = 32  # rows of scores and what ranking them allocates stay below the memory budget by this factor


class ScoreRows(NamedTuple):
    """Scores of the queries ``start``, ``start + 1`` … (ords) with every item, float32, shape ``(n_rows, n_items)``."""

    start: int
    scores: Tensor


def rows_of_table(
    table: NDArray[np.float32], memory_bytes: int, divisors: NDArray[np.float32] | None = None
) -> Iterator[ScoreRows]:
    """A score table, a few rows at a time; every column is divided by its divisor, if there are any."""
    step = max(1, min(memory_bytes // BUDGET_SHARE, _ROWS_BYTES) // (4 * table.shape[1]))
    for start in range(0, len(table), step):
        part = np.ascontiguousarray(table[start : start + step])
        yield ScoreRows(start, torch.from_numpy(part if divisors is None else part / divisors))


def retrieval_outcomes(
    score_rows: Iterable[ScoreRows], tasks: Sequence[RetrievalTask], *, top: int = TOP
) -> dict[str, Outcomes]:
    """Protocol id -> outcomes of all tasks of one direction, in the order of the tasks, with lists of length ``top``.

    The rows together hold every query of the tasks, with every item of the corpus.
    """
    accumulator = OutcomeAccumulator(tasks, top=top)
    for rows in score_rows:
        accumulator.add(rows)
    return accumulator.outcomes()


class OutcomeAccumulator:
    """Fills in the outcomes of all tasks of one direction, a few rows of scores at a time.

    Rows may come in any order, and from several threads at once; every query comes once.
    """

    def __init__(self, tasks: Sequence[RetrievalTask], *, top: int = TOP) -> None:
        self._top = top
        self._columns = [_TaskColumns(task, top) for task in tasks]
        self._galleries = _galleries_of(tasks)

    def add(self, rows: ScoreRows) -> None:
        """Fill in the outcomes of these rows' queries; the scores may be overwritten afterwards."""
        stop = rows.start + len(rows.scores)
        searched = [(g, queries) for g in self._galleries if (queries := g.queries_between(rows.start, stop))]
        best_of_all = _best_of_all(rows.scores, [gallery for gallery, _ in searched], self._top)
        for gallery, queries in searched:
            wanted = _rows_to_search(np.concatenate([part.ords for part in queries]).astype(np.int64) - rows.start)
            self._fill(rows.start, _search(rows.scores, wanted, gallery, best_of_all, self._top), queries)

    def outcomes(self) -> dict[str, Outcomes]:
        """Protocol id -> outcomes, in the order of the tasks, once every query was added."""
        return {columns.task.protocol.id: columns.outcomes() for columns in self._columns}

    def _fill(self, start: int, searched: _Searched, queries: Sequence[_Queries]) -> None:
        """The columns of all tasks of which queries searched this gallery."""
        n_items = searched.scores.shape[1]
        best_ords = searched.best.positions + searched.first
        pairs, entries = [], []
        for part in queries:
            columns = self._columns[part.task]
            at = np.searchsorted(searched.rows, part.ords - start)
            columns.top_ords[part.rows, : best_ords.shape[1]] = best_ords[at]
            columns.top_scores[part.rows, : best_ords.shape[1]] = searched.best.scores[at]
            query, entry = columns.relevant_of(part.rows)
            pairs.append(at[query] * n_items + columns.task.relevant[entry] - searched.first)
            entries.append(entry)
        # protocols share most of their relevant pairs: each pair is looked up once
        distinct, back = np.unique(np.concatenate(pairs), return_inverse=True)
        relevant = relevant_scores(
            searched.scores, *np.divmod(distinct, n_items), searched.longest, members=searched.members
        )
        ends = np.cumsum([len(entry) for entry in entries])
        for part, entry, chosen in zip(queries, entries, np.split(back, ends[:-1]), strict=True):
            target = self._columns[part.task].relevant
            target.scores[entry], target.n_above[entry], target.n_tied[entry] = relevant.take(chosen)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Queries:
    """The queries of one task that search one gallery, ordered by ord."""

    task: int  # position among the tasks
    rows: NDArray[np.int64]  # positions among the queries of the task
    ords: NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Gallery:
    """One gallery and all queries that search it."""

    items: NDArray[np.int32]
    queries: tuple[_Queries, ...]

    @property
    def is_run(self) -> bool:
        """Whether the gallery is a run of items without gaps."""
        return bool(self.items[-1] - self.items[0] + 1 == len(self.items))

    def is_large(self, top: int) -> bool:
        """Whether its best items are usually among the best of all."""
        return len(self.items) >= _LARGE_GALLERY * top

    def members(self, n_items: int) -> NDArray[np.bool_]:
        """Which items are in the gallery, shape ``(n_items,)``."""
        members = np.zeros(n_items, dtype=np.bool_)
        members[self.items] = True
        return members

    def queries_between(self, start: int, stop: int) -> list[_Queries]:
        """The queries with ords in ``[start, stop)``, per task; tasks without any are left out."""
        found = []
        for queries in self.queries:
            part = slice(*np.searchsorted(queries.ords, (start, stop)))
            if part.start < part.stop:
                found.append(_Queries(task=queries.task, rows=queries.rows[part], ords=queries.ords[part]))
        return found


def _galleries_of(tasks: Sequence[RetrievalTask]) -> list[_Gallery]:
    """Every gallery with its queries; equal galleries of different tasks are one."""
    found: dict[bytes, tuple[NDArray[np.int32], list[_Queries]]] = {}
    for number, task in enumerate(tasks):
        for index, items in enumerate(task.galleries):
            rows = np.flatnonzero(task.gallery_of == index)
            rows = rows[np.argsort(task.queries[rows], kind="stable")]
            queries = _Queries(task=number, rows=rows, ords=task.queries[rows])
            found.setdefault(items.tobytes(), (items, []))[1].append(queries)
    return [_Gallery(items=items, queries=tuple(queries)) for items, queries in found.values()]


class _TaskColumns:
    """The outcome columns of one task while they fill up."""

    def __init__(self, task: RetrievalTask, top: int) -> None:
        n, n_relevant = len(task.queries), len(task.relevant)
        self.task = task
        self.sizes = np.array([len(gallery) for gallery in task.galleries], dtype=np.int32)
        width = min(top, int(self.sizes.max()))
        self.top_ords = np.full((n, width), -1, dtype=np.int32)
        self.top_scores = np.full((n, width), np.nan, dtype=np.float32)
        self.relevant = RelevantScores(
            np.empty(n_relevant, np.float32), np.empty(n_relevant, np.int64), np.empty(n_relevant, np.int64)
        )

    def relevant_of(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Each relevant item of some queries: its query, as a position in ``rows``, and its entry of ``relevant``."""
        counts = self.task.n_relevant[rows]
        query = np.repeat(np.arange(len(rows)), counts)
        return query, self.task.offsets[rows][query] + positions_within(counts)

    def outcomes(self) -> Outcomes:
        """The finished columns."""
        task = self.task
        return Outcomes(
            protocol=task.protocol,
            query_ids=task.query_ids,
            query_ords=task.queries,
            clusters=task.clusters,
            n_relevant=task.n_relevant.astype(np.int32),
            n_gallery=self.sizes[task.gallery_of],
            weights=task.weights,
            top_ords=self.top_ords,
            top_scores=self.top_scores,
            unjudged=unjudged_share(task, self.top_ords, self.top_scores),
            **ranks_of(self.relevant, task.offsets, task.grades)._asdict(),
        )


class _Searched(NamedTuple):
    """Some queries and one gallery."""

    scores: Tensor  # shape (n_queries, n_items), items from `first` on
    first: int
    members: NDArray[np.bool_] | None  # which of these items are in the gallery; None: all
    rows: NDArray[np.int64]  # positions of the queries among the rows of scores
    best: TopK
    longest: TopK  # the longest lists at hand, over the gallery or over all items, to count in


def _search(
    scores: Tensor, rows: NDArray[np.int64], gallery: _Gallery, best_of_all: TopK | None, top: int
) -> _Searched:
    """The best items of one gallery for some rows of scores."""
    items = gallery.items
    if gallery.is_run:
        first = int(items[0])
        own = _take_rows(scores[:, first : first + len(items)], rows)
        if best_of_all is not None and len(items) == scores.shape[1]:
            return _Searched(own, first, None, rows, best_of_all.of(rows, top), best_of_all.of(rows))
        best = top_k(own, top)
        return _Searched(own, first, None, rows, best, best)
    own, members, k = _take_rows(scores, rows), gallery.members(scores.shape[1]), min(top, len(items))
    if best_of_all is not None and gallery.is_large(top):
        longest = best_of_all.of(rows)
        best, complete = longest.among(members, k)
    else:
        longest = best = TopK(np.empty((len(rows), k), np.float32), np.empty((len(rows), k), np.int64))
        complete = np.zeros(len(rows), dtype=np.bool_)
    if not complete.all():
        columns = torch.from_numpy(items).to(scores.device)
        short = torch.from_numpy(np.flatnonzero(~complete)).to(scores.device)
        found = top_k(own.index_select(0, short).index_select(1, columns), k)
        best.scores[~complete], best.positions[~complete] = found.scores, items[found.positions]
    return _Searched(own, 0, members, rows, best, longest)


def _best_of_all(scores: Tensor, galleries: Sequence[_Gallery], top: int) -> TopK | None:
    """Best lists over all items, long enough for the large galleries that are no runs; None if there are none."""
    sizes = [len(gallery.items) for gallery in galleries if not gallery.is_run and gallery.is_large(top)]
    if not sizes:
        return None
    return top_k(scores, int(_SURPLUS * top * scores.shape[1] / min(sizes)))


def _rows_to_search(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The distinct rows, ascending; with the rows between them where these are the fewer, so that no copy is needed."""
    rows = np.unique(rows)
    span = int(rows[-1] - rows[0]) + 1
    return np.arange(rows[0], rows[-1] + 1) if 2 * len(rows) >= span else rows


def _take_rows(scores: Tensor, rows: NDArray[np.int64]) -> Tensor:
    if rows[-1] - rows[0] + 1 == len(rows):
        return scores[int(rows[0]) : int(rows[-1]) + 1]
    return scores.index_select(0, torch.from_numpy(rows).to(scores.device))
