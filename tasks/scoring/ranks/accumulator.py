"""Blocks of the score matrix in, outcomes out: all tasks of one direction are answered from the same blocks.

A block holds some queries and a window of the items. Ranks are counts, which add up over windows, and best lists merge:
the outcomes are the same however the matrix was cut, in whatever order its blocks come, and in how many processes.

A gallery that is a run of items is a view of the rows. Of other galleries (captions of one ordinal, all but the sixth)
the best items are nearly always among the best few hundred of all items, which are selected once for all galleries;
where they are not, the columns of the gallery are gathered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capim.store.schema import TOP
from capim.store.values import positions_within
from capim.tasks.scoring.outcomes import Outcomes
from capim.tasks.scoring.protocols.builders import RetrievalTask, query_columns
from capim.tasks.scoring.ranks.galleries import Gallery, Queries, galleries_of
from capim.tasks.scoring.ranks.ranking import RelevantScores, competitors, ranks_of, unjudged_share
from capim.tasks.scoring.ranks.top_k import TopK, merged, top_k
from capim.tasks.scoring.resources import DEFAULT_MEMORY_BYTES

_SURPLUS = 1.5  # times as many of all items as would hold the list if the gallery were spread evenly
_ROWS_BYTES = 1 << 24
BUDGET_SHARE = 32  # rows of scores and what ranking them allocates stay below the memory budget by this factor


class ScoreRows(NamedTuple):
    """Scores of the queries ``start``, ``start + 1`` … with the items ``first``, ``first + 1`` … (ords), float32."""

    start: int
    scores: Tensor
    first: int = 0


class PartOutcomes(NamedTuple):
    """What some windows of the items add to the outcomes of one task; arrays as in :class:`_TaskColumns`."""

    scores: NDArray[np.float32]  # of every relevant item; NaN where it is in another part
    n_above: NDArray[np.int64]
    n_tied: NDArray[np.int64]
    top_ords: NDArray[np.int32]
    top_scores: NDArray[np.float32]


def rows_of_table(
    table: NDArray[np.float32],
    divisors: NDArray[np.float32] | None = None,
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    queries_from: int = 0,
    items_from: int = 0,
) -> Iterator[ScoreRows]:
    """A score table, a few rows at a time; every column is divided by its divisor, if there are any.

    ``queries_from`` and ``items_from`` are the ords of its first row and column.
    """
    step = max(1, min(memory_bytes // BUDGET_SHARE, _ROWS_BYTES) // (4 * table.shape[1]))
    for start in range(0, len(table), step):
        part = np.ascontiguousarray(table[start : start + step])
        yield ScoreRows(
            queries_from + start, torch.from_numpy(part if divisors is None else part / divisors), items_from
        )


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
    """Fills in the outcomes of all tasks of one direction, a block of scores at a time.

    Blocks may come in any order; blocks of different queries from several threads at once. Every pair of a query and an
    item comes once.
    """

    def __init__(
        self, tasks: Sequence[RetrievalTask], *, top: int = TOP, known: Mapping[str, NDArray[np.float32]] | None = None
    ) -> None:
        """``known``: protocol id -> the scores of the task's relevant items, if no block holds all items."""
        self._top = top
        self._columns = [_TaskColumns(task, top, known) for task in tasks]
        self._galleries = galleries_of(tasks)
        self._windows: dict[tuple[int, int], list[Gallery]] = {}

    def add(self, rows: ScoreRows) -> None:
        """Fill in the outcomes of these rows' queries; the scores may be overwritten afterwards."""
        stop, n_items = rows.start + len(rows.scores), rows.scores.shape[1]
        galleries = self._within(rows.first, rows.first + n_items)
        searched = [(g, queries) for g in galleries if (queries := g.queries_between(rows.start, stop))]
        best_of_all = _best_of_all(rows.scores, [gallery for gallery, _ in searched], self._top)
        for gallery, queries in searched:
            wanted = _rows_to_search(np.concatenate([part.ords for part in queries]).astype(np.int64) - rows.start)
            self._fill(rows, _search(rows.scores, wanted, gallery, best_of_all, self._top), queries)

    def has_queries(self, start: int, stop: int) -> bool:
        """Whether any task has a query with an ord in ``[start, stop)``."""
        return any(gallery.queries_between(start, stop) for gallery in self._galleries)

    def part(self) -> dict[str, PartOutcomes]:
        """Protocol id -> what the blocks that were added so far contribute."""
        return {columns.task.protocol.id: columns.part() for columns in self._columns}

    def merge(self, part: Mapping[str, PartOutcomes]) -> None:
        """Add what another accumulator of the same tasks got from other blocks."""
        for columns in self._columns:
            columns.merge(part[columns.task.protocol.id])

    def outcomes(self) -> dict[str, Outcomes]:
        """Protocol id -> outcomes, in the order of the tasks, once every pair was added."""
        return {columns.task.protocol.id: columns.outcomes() for columns in self._columns}

    def _within(self, first: int, stop: int) -> list[Gallery]:
        """The parts of all galleries in a window of the items, with ords counted from its start; kept."""
        found = self._windows.get((first, stop))
        if found is None:
            found = [part for gallery in self._galleries if len((part := gallery.within(first, stop)).items)]
            self._windows[first, stop] = found
        return found

    def _fill(self, rows: ScoreRows, searched: _Searched, queries: Sequence[Queries]) -> None:
        """The columns of all tasks of which queries searched this gallery."""
        first, n_items = rows.first + searched.first, searched.scores.shape[1]
        best = TopK(searched.best.scores, searched.best.positions + first)
        pairs, entries, known = [], [], []
        for part in queries:
            columns = self._columns[part.task]
            at = np.searchsorted(searched.rows, part.ords - rows.start)
            columns.add_lists(part.rows, best.of(at))
            query, entry = columns.relevant_of(part.rows)
            pairs.append((at[query] << 32) | columns.task.relevant[entry])
            entries.append(entry)
            known.append(columns.known[entry])
        # protocols share most of their relevant pairs: each pair is looked up once
        distinct, back = np.unique(np.concatenate(pairs), return_inverse=True)
        row, column = distinct >> 32, (distinct & 0xFFFFFFFF) - first
        inside = (column >= 0) & (column < n_items)
        own = np.empty(len(distinct), np.float32)
        if not inside.all():
            own[back] = np.concatenate(known)
        own[inside] = _looked_up(searched.scores, row[inside], column[inside])
        relevant = competitors(searched.scores, row, own, searched.longest, searched.members)
        ends = np.cumsum([len(entry) for entry in entries])
        for part, entry, chosen in zip(queries, entries, np.split(back, ends[:-1]), strict=True):
            self._columns[part.task].add_counts(entry, relevant.take(chosen), inside[chosen])


class _TaskColumns:
    """The outcome columns of one task while they fill up."""

    def __init__(self, task: RetrievalTask, top: int, known: Mapping[str, NDArray[np.float32]] | None) -> None:
        n, n_relevant = len(task.queries), len(task.relevant)
        self.task = task
        width = min(top, max(map(len, task.galleries)))
        self.known = np.full(n_relevant, np.nan, np.float32) if known is None else known[task.protocol.id]
        self.top_ords = np.full((n, width), -1, dtype=np.int32)
        self.top_scores = np.full((n, width), np.nan, dtype=np.float32)
        self.relevant = RelevantScores(
            np.full(n_relevant, np.nan, np.float32), np.zeros(n_relevant, np.int64), np.zeros(n_relevant, np.int64)
        )

    def add_lists(self, rows: NDArray[np.int64], best: TopK) -> None:
        """Merge the best items of another window into the lists of some queries."""
        width = self.top_ords.shape[1]
        if (self.top_ords[rows, 0] >= 0).any():
            earlier = TopK(self.top_scores[rows], self.top_ords[rows].astype(np.int64))
            best = merged([earlier, best], width)
        n = min(width, best.scores.shape[1])
        self.top_scores[rows, :n], self.top_ords[rows, :n] = best.scores[:, :n], best.positions[:, :n]

    def add_counts(self, entries: NDArray[np.int64], found: RelevantScores, inside: NDArray[np.bool_]) -> None:
        """Add the items of a window above and tied; ``inside``: which relevant items are in the window themselves."""
        if np.isnan(found.scores).any():
            raise ValueError(f"{self.task.protocol.id!r}: scores of relevant items outside the window are needed first")
        self.relevant.scores[entries[inside]] = found.scores[inside]
        self.relevant.n_above[entries] += found.n_above
        self.relevant.n_tied[entries] += found.n_tied

    def part(self) -> PartOutcomes:
        """What was added so far."""
        return PartOutcomes(*self.relevant, top_ords=self.top_ords, top_scores=self.top_scores)

    def merge(self, part: PartOutcomes) -> None:
        """Add the windows of another part."""
        self.add_lists(np.arange(len(part.top_ords)), TopK(part.top_scores, part.top_ords.astype(np.int64)))
        found = RelevantScores(part.scores, part.n_above, part.n_tied)
        np.copyto(self.relevant.scores, found.scores, where=~np.isnan(found.scores))
        self.relevant.n_above[:] += found.n_above
        self.relevant.n_tied[:] += found.n_tied

    def relevant_of(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Each relevant item of some queries: its query, as a position in ``rows``, and its entry of ``relevant``."""
        counts = self.task.n_relevant[rows]
        query = np.repeat(np.arange(len(rows)), counts)
        return query, self.task.offsets[rows][query] + positions_within(counts)

    def outcomes(self) -> Outcomes:
        """The finished columns.

        Raises:
            ValueError: A window that holds a relevant item was not added.
        """
        task = self.task
        if np.isnan(self.relevant.scores).any():
            raise ValueError(f"protocol {task.protocol.id!r}: a part of the gallery is missing")
        return Outcomes(
            **query_columns(task),
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


def _looked_up(scores: Tensor, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float32]:
    pairs = torch.from_numpy(rows).to(scores.device), torch.from_numpy(columns).to(scores.device)
    return scores[pairs].cpu().numpy()


def _search(scores: Tensor, rows: NDArray[np.int64], gallery: Gallery, best_of_all: TopK | None, top: int) -> _Searched:
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


def _best_of_all(scores: Tensor, galleries: Sequence[Gallery], top: int) -> TopK | None:
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
