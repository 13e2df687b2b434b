"""From blocks of the score matrix to outcomes: all tasks of one direction use the same blocks.

A block holds some queries and a window of the items. Ranks are counts, which add up over windows, and best lists merge:
the outcomes do not depend on how the matrix was cut, on the order of its blocks, or on the number of processes.

A gallery that is a run of items is a view of the rows. For other galleries (captions of one ordinal, all but the sixth)
the best items are nearly always among the best few hundred of all items, which are selected once for all galleries;
otherwise the columns of the gallery are gathered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capim.store.schema import TOP
from capim.store.vectors import positions_within
from capim.tasks.ranking.best_lists import TopK, count_above_and_tied, merged, tie_spans_of, top_k
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.resources import DEFAULT_MEMORY_BYTES
from capim.tasks.ranking.tasks import ChoiceTask, RetrievalTask, ScoringTask, query_columns

_SURPLUS = 1.5  # times as many of all items as would hold the list if the gallery were spread evenly
_LARGE_GALLERY = 12  # times the length of a list: the best of a smaller gallery are too rarely among the best of all
_ROWS_BYTES = 1 << 24
_NEAR = 10  # items of a list for which the share of unjudged ones is stored
BUDGET_SHARE = 32  # rows of scores, and allocations for ranking them, are smaller than the memory budget by this factor


class ScoreRows(NamedTuple):
    """Scores of the queries ``start``, ``start + 1`` … with the items ``first``, ``first + 1`` … (ords), float32."""

    start: int
    scores: Tensor
    first: int = 0


def rows_of_table(
    table: NDArray[np.float32],
    divisors: NDArray[np.float32] | None = None,
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    queries_from: int = 0,
    items_from: int = 0,
) -> Iterator[ScoreRows]:
    """Yield a score table, a few rows at a time; every column is divided by its divisor, if there are any.

    ``queries_from`` and ``items_from`` are the ords of its first row and column.
    """
    step = max(1, min(memory_bytes // BUDGET_SHARE, _ROWS_BYTES) // (4 * table.shape[1]))
    for start in range(0, len(table), step):
        part = np.ascontiguousarray(table[start : start + step])
        yield ScoreRows(
            queries_from + start, torch.from_numpy(part if divisors is None else part / divisors), items_from
        )


# --- Counts: for every relevant item, its score and the items above and tied; for every query, its best list.


class PartOutcomes(NamedTuple):
    """Contribution of a part of the gallery to the outcomes of one task; parts add up, and can be stored.

    It has, for every relevant item in the order of the task, its score (NaN if it is in another part) and the number of
    items above and tied; and for every query the best items of the part.
    """

    scores: NDArray[np.float32]
    n_above: NDArray[np.int64]  # gallery items with a strictly higher score
    n_tied: NDArray[np.int64]  # gallery items with exactly this score, the item itself included
    top_ords: NDArray[np.int32]  # in the corpus, shape (n_queries, width); -1 beyond the end of a list
    top_scores: NDArray[np.float32]  # same shape; NaN beyond the end

    @classmethod
    def empty(cls, task: RetrievalTask, top: int) -> PartOutcomes:
        """Return the contribution of no items."""
        n, shape = len(task.relevant), (len(task.queries), min(top, max(map(len, task.galleries))))
        counts = np.full(n, np.nan, np.float32), np.zeros(n, np.int64), np.zeros(n, np.int64)
        return cls(*counts, np.full(shape, -1, np.int32), np.full(shape, np.nan, np.float32))

    @classmethod
    def of_lists(
        cls, task: RetrievalTask, lists: NDArray[np.int32], scores: NDArray[np.floating], *, unlisted: float
    ) -> tuple[PartOutcomes, NDArray[np.bool_]]:
        """Return the counts within the list of every query, and which relevant items are listed.

        Args:
            lists: Ords of items, shape ``(n_queries, length)``, in the order of the task's queries.
            scores: Their scores, same shape.
            unlisted: Score of a relevant item that is not in its list.
        """
        query = task.query_of_relevant
        hits = lists[query] == task.relevant_ords[:, None]
        listed = hits.any(axis=1)
        own = np.where(listed, scores[query, hits.argmax(axis=1)], unlisted)
        above = np.count_nonzero(scores[query] > own[:, None], axis=1)
        tied = np.count_nonzero(scores[query] == own[:, None], axis=1)
        return cls(own.astype(np.float32), above, tied, lists, scores.astype(np.float32)), listed

    def add_lists(self, rows: NDArray[np.int64], best: TopK) -> None:
        """Merge the best items of another part into the lists of some queries."""
        width = self.top_ords.shape[1]
        if (self.top_ords[rows, 0] >= 0).any():
            earlier = TopK(self.top_scores[rows], self.top_ords[rows].astype(np.int64))
            best = merged([earlier, best], width)
        n = min(width, best.scores.shape[1])
        self.top_scores[rows, :n], self.top_ords[rows, :n] = best.scores[:, :n], best.positions[:, :n]

    def add(self, part: PartOutcomes) -> None:
        """Add another part's contribution."""
        self.add_lists(np.arange(len(part.top_ords)), TopK(part.top_scores, part.top_ords.astype(np.int64)))
        np.copyto(self.scores, part.scores, where=~np.isnan(part.scores))
        self.n_above[:] += part.n_above
        self.n_tied[:] += part.n_tied

    def outcomes(self, task: RetrievalTask) -> Outcomes:
        """Return the outcomes, after every part was added: lowest and highest rank of every relevant item.

        ``c`` relevant items tied with ``b`` irrelevant ones, below ``a`` items, take the ranks ``a + 1 … a + c`` at
        best and ``a + b + 1 … a + b + c`` at worst.

        Raises:
            ValueError: If a part that holds a relevant item was not added.
        """
        if np.isnan(self.scores).any():
            raise ValueError(f"protocol {task.protocol.id!r}: a part of the gallery is missing")
        query, grades = task.query_of_relevant, task.grades
        order = np.lexsort((self.n_above, query) if grades is None else (-grades, self.n_above, query))
        above, tied = self.n_above[order], self.n_tied[order]  # the order is one within each query
        new = np.ones(len(query), dtype=bool)
        new[1:] = (query[1:] != query[:-1]) | (above[1:] != above[:-1])
        group = np.cumsum(new) - 1
        tied_relevant = np.bincount(group)[group]
        best = above + 1 + np.arange(len(query)) - np.flatnonzero(new)[group]
        worst = best + tied - tied_relevant
        first = task.offsets[:-1]
        return Outcomes(
            **query_columns(task),
            top_ords=self.top_ords,
            top_scores=self.top_scores,
            unjudged=_unjudged_share(task, self.top_ords, self.top_scores),
            best_score=self.scores[order][first],
            rank_best=best[first].astype(np.int32),
            rank_worst=worst[first].astype(np.int32),
            n_tied_relevant=tied_relevant[first].astype(np.int32),
            relevant_rank_best=best.astype(np.int32),
            relevant_rank_worst=worst.astype(np.int32),
            relevant_grades=None if grades is None else grades[order],
            relevant_scores=None if grades is None else self.scores[order],
        )


def _unjudged_share(
    task: RetrievalTask, top_ords: NDArray[np.int32], top_scores: NDArray[np.float32]
) -> NDArray[np.float64] | None:
    """Return the fraction of the 10 best items without a judgement, shape ``(n_queries,)``; None without judgements.

    Equal scores are in random order within the list.
    """
    if task.dismissed is None:
        return None
    query, item = task.dismissed[:, 0], task.item_space.ords_of(task.dismissed[:, 1])
    n_items = int(max(task.relevant_ords.max(), item.max(initial=0), top_ords.max())) + 1
    judged = np.concatenate([task.query_of_relevant * n_items + task.relevant_ords, query * n_items + item])
    found = top_ords >= 0
    unknown = found & ~np.isin(np.arange(len(top_ords))[:, None] * n_items + top_ords, judged)
    places = tie_spans_of(np.where(found, top_scores, -np.inf).astype(np.float32))
    within = np.clip((_NEAR - places.start) / (places.end - places.start), 0.0, 1.0)
    share: NDArray[np.float64] = (within * unknown).sum(axis=1) / np.clip(found.sum(axis=1), 1, _NEAR)
    return share


# --- From blocks of scores to outcomes.


FORWARD, TRANSPOSED = "forward", "transposed"


def reading_of(task: RetrievalTask) -> str:
    """Return how a task reads scores: its queries are the rows (``forward``), or the columns.

    Columns are images that search captions. They are ``transposed``, or named by the orientation of late interaction.
    """
    return (task.protocol.orientation or TRANSPOSED) if task.protocol.direction == "i2t" else FORWARD


class Ranker:
    """The outcomes of all retrieval tasks of two index spaces, filled in from one block of scores at a time.

    Blocks may come in any order; blocks of different queries from several threads at once. Every pair of a query and an
    item comes once.

    Attributes:
        tasks: The retrieval tasks.
        top: Length of the lists.
        parts: Protocol id -> contribution of the blocks added so far.
        positive_scores: Protocol id -> the scores given to :meth:`set_positive_scores`, NaN for the others.
    """

    def __init__(self, tasks: Sequence[ScoringTask], *, top: int = TOP) -> None:
        self.tasks = [task for task in tasks if isinstance(task, RetrievalTask)]
        self.top = top
        self.parts = {task.protocol.id: PartOutcomes.empty(task, top) for task in self.tasks}
        self.positive_scores: dict[str, NDArray[np.float32]] = {}
        by_reading: dict[str, list[RetrievalTask]] = {}
        for task in self.tasks:
            by_reading.setdefault(reading_of(task), []).append(task)
        self._galleries = {reading: _galleries_of(of_reading) for reading, of_reading in by_reading.items()}
        self._windows: dict[tuple[str, int, int], list[_SharedGallery]] = {}

    @property
    def readings(self) -> list[str]:
        """Return how the tasks read the scores: see :func:`reading_of`."""
        return list(self._galleries)

    def pairs(self, part: range) -> NDArray[np.int64]:
        """Return rows and columns of the scores required if no block holds all pairs: shape ``(n, 2)``, sorted.

        ``part``: the columns of all blocks that will be added.
        """
        found = []
        for task in self.tasks:
            rows, columns = _pairs(task)
            forward = reading_of(task) == FORWARD
            found.append(((rows << 32) | columns)[forward | ((columns >= part.start) & (columns < part.stop))])
        codes = np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)
        return np.stack([codes >> 32, codes & 0xFFFFFFFF], axis=1)

    def set_positive_scores(self, pairs: NDArray[np.int64], scores: NDArray[np.float32]) -> None:
        """Set the scores of :meth:`pairs`, before the first block."""
        codes = np.append((pairs[:, 0] << 32) | pairs[:, 1], -1)  # the last one is not a pair
        scores = np.append(scores, np.float32(np.nan))
        for task in self.tasks:
            rows, columns = _pairs(task)
            wanted = (rows << 32) | columns
            at = np.searchsorted(codes[:-1], wanted)
            self.positive_scores[task.protocol.id] = np.where(codes[at] == wanted, scores[at], scores[-1])

    def add(self, rows: ScoreRows, reading: str = FORWARD) -> None:
        """Fill in the outcomes of these rows' queries; the scores may be overwritten afterwards."""
        stop, n_items = rows.start + len(rows.scores), rows.scores.shape[1]
        galleries = self._within(reading, rows.first, rows.first + n_items)
        searched = [(g, queries) for g in galleries if (queries := g.queries_between(rows.start, stop))]
        best_of_all = _best_of_all(rows.scores, [gallery for gallery, _ in searched], self.top)
        for gallery, queries in searched:
            if gallery.excluded is None:
                self._rank(rows, gallery, queries, best_of_all)
            else:
                self._rank(gallery.without_excluded(rows), gallery, queries, None)

    def has_queries(self, reading: str, start: int, stop: int) -> bool:
        """True if a task with this reading has a query in ``[start, stop)``."""
        return any(gallery.queries_between(start, stop) for gallery in self._galleries.get(reading, ()))

    def merge(self, parts: Mapping[str, PartOutcomes]) -> None:
        """Add the contribution of other blocks."""
        for id_, part in self.parts.items():
            part.add(parts[id_])

    def outcomes(self) -> dict[str, Outcomes]:
        """Return protocol id -> outcomes, in the order of the tasks, after every pair was added."""
        return {task.protocol.id: self.parts[task.protocol.id].outcomes(task) for task in self.tasks}

    def _within(self, reading: str, first: int, stop: int) -> list[_SharedGallery]:
        """Return the parts of all galleries in a window of the items, with rows counted from its start; cached."""
        found = self._windows.get((reading, first, stop))
        if found is None:
            parts = (gallery.within(first, stop) for gallery in self._galleries.get(reading, ()))
            found = self._windows[reading, first, stop] = [part for part in parts if len(part.items)]
        return found

    def _rank(
        self, rows: ScoreRows, gallery: _SharedGallery, queries: Sequence[_Queries], best_of_all: TopK | None
    ) -> None:
        """Add the counts and lists of all tasks with queries that search this gallery."""
        wanted = _rows_to_search(np.concatenate([part.rows for part in queries]).astype(np.int64) - rows.start)
        items, n_items = gallery.items, rows.scores.shape[1]
        run = slice(int(items[0]), int(items[-1]) + 1) if gallery.is_run else slice(0, n_items)
        own, first = _take_rows(rows.scores[:, run], wanted), rows.first + run.start
        members = None if gallery.is_run else gallery.members(n_items)
        fits = len(items) == n_items or (not gallery.is_run and gallery.is_large(self.top))
        longest = None if best_of_all is None or not fits else best_of_all.of(wanted)
        best, longest = _best(own, items, members, longest, self.top)
        pairs, entries = [], []
        for part in queries:
            at = np.searchsorted(wanted, part.rows - rows.start)
            of_queries = best.of(at)
            ords: NDArray[Any] = part.task.item_space.ords_of(of_queries.positions + first)
            if gallery.excluded is not None:
                listed = of_queries.scores > -np.inf
                of_queries = of_queries._replace(scores=np.where(listed, of_queries.scores, np.float32(np.nan)))
                ords = np.where(listed, ords, -1)
            self.parts[part.task.protocol.id].add_lists(part.places, of_queries._replace(positions=ords))
            counts = part.task.n_relevant[part.places]
            query = np.repeat(np.arange(len(part.places)), counts)
            entry = part.task.offsets[part.places][query] + positions_within(counts)
            pairs.append((at[query] << 32) | part.task.relevant[entry])
            entries.append(entry)
        # protocols share most of their relevant pairs: each pair is looked up once
        distinct, back = np.unique(np.concatenate(pairs), return_inverse=True)
        row, column = distinct >> 32, (distinct & 0xFFFFFFFF) - first
        inside = (column >= 0) & (column < own.shape[1])
        scores = np.empty(len(distinct), np.float32)
        if not inside.all():
            ids = [part.task.protocol.id for part in queries]
            if not self.positive_scores:
                raise ValueError(f"{ids[0]!r}: scores of relevant items outside the window are needed first")
            scores[back] = np.concatenate([self.positive_scores[i][e] for i, e in zip(ids, entries, strict=True)])
        at_device = [torch.from_numpy(each[inside]).to(own.device) for each in (row, column)]
        scores[inside] = own[tuple(at_device)].cpu().numpy()
        above, tied = _above_and_tied(own, members, longest, row, scores)
        ends = np.cumsum([len(entry) for entry in entries])[:-1]
        for part, entry, chosen in zip(queries, entries, np.split(back, ends), strict=True):
            found = self.parts[part.task.protocol.id]
            found.scores[entry[inside[chosen]]] = scores[chosen][inside[chosen]]
            found.n_above[entry] += above[chosen]
            found.n_tied[entry] += tied[chosen]


def _pairs(task: RetrievalTask) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row and the column of every relevant pair of a task, in its order."""
    queries, items = task.queries[task.query_of_relevant].astype(np.int64), task.relevant.astype(np.int64)
    return (queries, items) if reading_of(task) == FORWARD else (items, queries)


def retrieval_outcomes(
    score_rows: Iterable[ScoreRows], tasks: Sequence[RetrievalTask], *, top: int = TOP
) -> dict[str, Outcomes]:
    """Return protocol id -> outcomes of all tasks of one direction, in their order, with lists of length ``top``.

    Together the rows hold every query of the tasks, with every item.
    """
    ranker = Ranker(tasks, top=top)
    for rows in score_rows:
        ranker.add(rows, reading_of(tasks[0]))
    return ranker.outcomes()


def _above_and_tied(
    scores: Tensor, members: NDArray[np.bool_] | None, best: TopK, rows: NDArray[np.int64], own: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many items are above and tied with scores ``own`` of some queries, given by their rows, ``(n,)``.

    An item that scores above the end of its query's best list is counted within the list; only the others require a
    pass over the gallery.

    Args:
        scores: Scores of queries and items.
        members: Mask of the items in the gallery; None: all.
        best: The longest available lists, over the gallery or over all items.
    """
    lists = best.scores[rows]
    listed = True if members is None else members[best.positions[rows]]
    above = np.count_nonzero((lists > own[:, None]) & listed, axis=1)
    tied = np.count_nonzero((lists == own[:, None]) & listed, axis=1)
    if best.scores.shape[1] < (scores.shape[1] if members is None else np.count_nonzero(members)):
        deep = np.flatnonzero(own <= lists[:, -1])
        above[deep], tied[deep] = count_above_and_tied(scores, rows[deep], own[deep], members)
    return above, tied


def _best(
    scores: Tensor, items: NDArray[np.int32], members: NDArray[np.bool_] | None, longest: TopK | None, top: int
) -> tuple[TopK, TopK]:
    """Return the best items of a gallery for some rows of scores, and the longest available lists.

    Args:
        scores: Scores of queries and items.
        items: The gallery.
        members: Mask of the items in the gallery; None: all.
        longest: Longer lists over all items, if they are likely to hold the best of the gallery.
    """
    if members is None:
        best = top_k(scores, top) if longest is None else TopK(longest.scores[:, :top], longest.positions[:, :top])
        return best, best if longest is None else longest
    k = min(top, len(items))
    if longest is not None:
        best, complete = longest.among(members, k)
    else:
        longest = best = TopK(np.empty((len(scores), k), np.float32), np.empty((len(scores), k), np.int64))
        complete = np.zeros(len(scores), dtype=np.bool_)
    if not complete.all():
        columns = torch.from_numpy(items).to(scores.device)
        short = torch.from_numpy(np.flatnonzero(~complete)).to(scores.device)
        found = top_k(scores.index_select(0, short).index_select(1, columns), k)
        best.scores[~complete], best.positions[~complete] = found.scores, items[found.positions]
    return best, longest


def _best_of_all(scores: Tensor, galleries: Sequence[_SharedGallery], top: int) -> TopK | None:
    """Return best lists over all items, long enough for the large galleries that are not runs; None without these."""
    shared = [gallery for gallery in galleries if gallery.excluded is None]
    sizes = [len(gallery.items) for gallery in shared if not gallery.is_run and gallery.is_large(top)]
    if not sizes:
        return None
    return top_k(scores, int(_SURPLUS * top * scores.shape[1] / min(sizes)))


def _rows_to_search(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct rows, ascending; with the rows between them if these are fewer, so that no copy is needed."""
    rows = np.unique(rows)
    span = int(rows[-1] - rows[0]) + 1
    return np.arange(rows[0], rows[-1] + 1) if 2 * len(rows) >= span else rows


def _take_rows(scores: Tensor, rows: NDArray[np.int64]) -> Tensor:
    if rows[-1] - rows[0] + 1 == len(rows):
        return scores[int(rows[0]) : int(rows[-1]) + 1]
    return scores.index_select(0, torch.from_numpy(rows).to(scores.device))


# --- The distinct galleries of several tasks, each with all queries that search it.


class _Queries(NamedTuple):
    """The queries of one task that search one gallery, in the order of their rows."""

    task: RetrievalTask
    places: NDArray[np.int64]  # positions among the queries of the task
    rows: NDArray[np.int32]


class _SharedGallery(NamedTuple):
    """One gallery and all queries that search it.

    ``excluded``: rows of queries and items that are left out, shape ``(n, 2)``; None: the queries search all items.
    """

    items: NDArray[np.int32]
    queries: Sequence[_Queries]
    excluded: NDArray[np.int64] | None = None

    @property
    def is_run(self) -> bool:
        """True if the gallery is a run of items without gaps."""
        return bool(self.items[-1] - self.items[0] + 1 == len(self.items))

    def is_large(self, top: int) -> bool:
        """True if its best items are usually among the best of all."""
        return len(self.items) >= _LARGE_GALLERY * top

    def within(self, first: int, stop: int) -> _SharedGallery:
        """Return the part of the gallery in a window, with items counted from its start; the same queries."""
        part = self.items[slice(*np.searchsorted(self.items, (first, stop)))]
        return self._replace(items=part - np.int32(first) if first else part)

    def members(self, n_items: int) -> NDArray[np.bool_]:
        """Return a mask of the items in the gallery, shape ``(n_items,)``."""
        members = np.zeros(n_items, dtype=np.bool_)
        members[self.items] = True
        return members

    def queries_between(self, start: int, stop: int) -> list[_Queries]:
        """Return the queries with rows in ``[start, stop)``, per task; tasks without any are left out."""
        found = []
        for queries in self.queries:
            part = slice(*np.searchsorted(queries.rows, (start, stop)))
            if part.start < part.stop:
                found.append(_Queries(queries.task, queries.places[part], queries.rows[part]))
        return found

    def without_excluded(self, rows: ScoreRows) -> ScoreRows:
        """Return a copy of the scores in which excluded pairs score less than any other."""
        scores = rows.scores.clone()
        if self.excluded is not None:
            query, item = (self.excluded - (rows.start, rows.first)).T
            inside = (query >= 0) & (query < scores.shape[0]) & (item >= 0) & (item < scores.shape[1])
            scores[query[inside], item[inside]] = -torch.inf
        return rows._replace(scores=scores)


def _galleries_of(tasks: Sequence[RetrievalTask]) -> list[_SharedGallery]:
    """Return every gallery with its queries; equal galleries of different tasks are one, if these search all of it."""
    shared: dict[bytes, _SharedGallery] = {}
    found = []
    for task in tasks:
        for index, items in enumerate(task.galleries):
            places = np.flatnonzero(task.gallery_of == index)
            places = places[np.argsort(task.queries[places], kind="stable")]
            queries = _Queries(task, places, task.queries[places])
            if task.excluded is not None:
                query, item = task.excluded[task.gallery_of[task.excluded[:, 0]] == index].T
                found.append(_SharedGallery(items, [queries], np.stack([task.queries[query], item], axis=1)))
            elif (key := items.tobytes()) in shared:
                shared[key] = shared[key]._replace(queries=[*shared[key].queries, queries])
            else:
                shared[key] = _SharedGallery(items, [queries])
    return [*shared.values(), *found]


# --- Small sets for composition: which captions and images of a set are matched correctly.


def choice_outcomes(task: ChoiceTask, scores: NDArray[np.float32]) -> Outcomes:
    """Compare each right caption's score with its rivals: wrong captions for its image, other images for it.

    Args:
        scores: float32, shape ``(n_sets, captions per set * images per set)``, caption after caption; any value if a
            set has no such caption. It becomes NaN in the outcomes and is ignored by all comparisons.
    """
    n_captions, n_images = task.captions.shape[1], task.images.shape[1]
    absent = task.captions < 0
    table = np.where(absent[:, :, None], np.nan, scores.reshape(len(scores), n_captions, n_images)).astype(np.float32)
    flat = table.reshape(scores.shape)
    right, rival = np.array(list(_comparisons(task))).T
    lost = (flat[:, rival] > flat[:, right]).sum(axis=1, dtype=np.int32)
    tied = (flat[:, rival] == flat[:, right]).sum(axis=1, dtype=np.int32)
    n_choices = n_captions if n_images == 1 else len(right) + 1
    return Outcomes(
        **query_columns(task),
        rank_best=1 + lost,
        rank_worst=1 + lost + tied,
        n_relevant=np.full(len(scores), task.n_right, dtype=np.int32),
        n_tied_relevant=np.ones(len(scores), dtype=np.int32),
        n_gallery=(n_choices - absent.sum(axis=1)).astype(np.int32),
        best_score=flat[:, : task.n_right].max(axis=1),
        relevant_rank_best=np.repeat(1 + lost, task.n_right),
        relevant_rank_worst=np.repeat(1 + lost + tied, task.n_right),
        scores=flat,
    )


def _comparisons(task: ChoiceTask) -> Iterator[tuple[int, int]]:
    """Yield columns of the scores: a right match, and one that it is compared with."""
    n_captions, n_images = task.captions.shape[1], task.images.shape[1]
    if n_images == 1:
        yield from ((right, wrong) for right in range(task.n_right) for wrong in range(task.n_right, n_captions))
        return
    for own in range(n_images):
        yield from ((own * n_images + own, other * n_images + own) for other in range(n_captions) if other != own)
        yield from ((own * n_images + own, own * n_images + other) for other in range(n_images) if other != own)


# --- Scores of every caption with every image that another program computed, for example with a cross-encoder.
#
# The code that ranks products of embeddings counts ranks and ties.


def score_given(scores: NDArray[np.float32], tasks: Sequence[ScoringTask]) -> dict[str, Outcomes]:
    """Return the outcomes of every task.

    Args:
        scores: float32, finite, shape ``(n_captions, n_images)``, in corpus order; may be memory-mapped.
        tasks: Tasks of one corpus, of captions and images (not :attr:`RetrievalTask.needs_one_vector`).

    Returns:
        Protocol id -> outcomes, in the order of ``tasks``.
    """
    outcomes: dict[str, Outcomes] = {}
    together: dict[Any, list[RetrievalTask]] = {}
    for task in tasks:
        if isinstance(task, RetrievalTask):
            together.setdefault((task.spaces, reading_of(task)), []).append(task)
        else:
            of_sets = scores[np.maximum(task.captions, 0)[:, :, None], task.images[:, None, :]]
            outcomes[task.protocol.id] = choice_outcomes(task, of_sets.reshape(len(of_sets), -1))
    for ((rows, columns), reading), searches in together.items():
        table = scores if rows.ords is None else scores[rows.ords]
        table = table if columns.ords is None else table[:, columns.ords]
        outcomes |= retrieval_outcomes(rows_of_table(table if reading == FORWARD else table.T), searches)
    return {task.protocol.id: outcomes[task.protocol.id] for task in tasks}
