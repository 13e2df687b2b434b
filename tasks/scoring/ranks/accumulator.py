"""Strips of scores in, outcomes out: every judgement of one direction is answered from the same strip.

A gallery that is a run of items is a view of the strip. Of others (captions of one ordinal, all but the sixth) the
best items are nearly always among the best few hundred of the whole strip, which are selected once for all of them;
where they are not, their columns are gathered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from store.schema import TOP
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.tasks import RetrievalTask
from tasks.scoring.ranks.best import Best, best_of
from tasks.scoring.ranks.ranking import Standing, ranks_of, standing_of

_SMALLEST = 12  # times the length of a list: the best of a smaller gallery are too rarely among the best of all
_AMPLE = 1.5  # times as many as the gallery's share of the items would have


class Strip(NamedTuple):
    """Scores of the queries ``start, start + 1 …`` (ords) with every item, shape ``(n_block, n_items)``, float32."""

    start: int
    scores: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class _Asked:
    """The queries of one judgement that search one gallery, ordered by ord."""

    judgement: int
    rows: NDArray[np.int64]  # of the judgement
    ords: NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Search:
    """One gallery and all who search it."""

    gallery: NDArray[np.int32]
    asked: tuple[_Asked, ...]

    @property
    def is_run(self) -> bool:
        """Whether the gallery is a run of items without gaps."""
        return bool(self.gallery[-1] - self.gallery[0] + 1 == len(self.gallery))

    def members(self, n_items: int) -> NDArray[np.bool_]:
        """Which items are in the gallery, shape ``(n_items,)``."""
        found = np.zeros(n_items, dtype=np.bool_)
        found[self.gallery] = True
        return found


class _Sheet:
    """The outcome columns of one judgement while they fill up."""

    def __init__(self, judgement: RetrievalTask, top: int) -> None:
        n, n_links = len(judgement.queries), len(judgement.relevant)
        self.judgement = judgement
        self.sizes = np.array([len(gallery) for gallery in judgement.galleries], dtype=np.int32)
        width = min(top, int(self.sizes.max()))
        self.top_ords = np.full((n, width), -1, dtype=np.int32)
        self.top_scores = np.full((n, width), np.nan, dtype=np.float32)
        self.standing = Standing(
            np.empty(n_links, np.float32), np.empty(n_links, np.int64), np.empty(n_links, np.int64)
        )

    def links(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of some queries: which of them (position in ``rows``) and which entry of ``relevant``, pair by pair."""
        offsets = self.judgement.offsets
        counts = offsets[rows + 1] - offsets[rows]
        which = np.repeat(np.arange(len(rows)), counts)
        within = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        return which, offsets[rows][which] + within

    def outcomes(self) -> Outcomes:
        """The finished columns."""
        judgement = self.judgement
        ranks = ranks_of(self.standing, judgement.offsets)
        return Outcomes(
            protocol=judgement.protocol,
            query_ids=judgement.query_ids,
            query_ords=judgement.queries,
            clusters=judgement.clusters,
            rank_best=ranks.rank_best,
            rank_worst=ranks.rank_worst,
            n_relevant=judgement.n_relevant.astype(np.int32),
            n_tied_relevant=ranks.n_tied_relevant,
            n_gallery=self.sizes[judgement.gallery_of],
            weights=judgement.weights,
            best_score=ranks.best_score,
            relevant_rank_best=ranks.low,
            relevant_rank_worst=ranks.high,
            top_ords=self.top_ords,
            top_scores=self.top_scores,
        )


def collect(strips: Iterable[Strip], judgements: Sequence[RetrievalTask], *, top: int = TOP) -> dict[str, Outcomes]:
    """Outcomes of all judgements of one direction, from one run over the queries.

    Args:
        strips: Ascending and without gaps; together they hold every query that is asked, against every item of the
            corpus.
        judgements: All ``t2i`` or all ``i2t``.
        top: Length of the best lists.

    Returns:
        Protocol id -> outcomes, in the order of ``judgements``.
    """
    collector = Collector(judgements, top=top)
    for strip in strips:
        collector.answer(strip)
    return collector.outcomes()


class Collector:
    """Fills in the outcomes of all judgements of one direction, strip by strip.

    Strips may come in any order, and from several threads at once: no two of them tell of the same query.
    """

    def __init__(self, judgements: Sequence[RetrievalTask], *, top: int = TOP) -> None:
        self._top = top
        self._sheets = [_Sheet(judgement, top) for judgement in judgements]
        self._searches = _searches(judgements)

    def answer(self, strip: Strip) -> None:
        """Fill in what a strip says about its queries; its scores are free again afterwards."""
        _answer(strip, self._searches, self._sheets, self._top)

    def outcomes(self) -> dict[str, Outcomes]:
        """Protocol id -> outcomes, in the order of the judgements, once all strips were answered."""
        return {sheet.judgement.protocol.id: sheet.outcomes() for sheet in self._sheets}


def _searches(judgements: Sequence[RetrievalTask]) -> list[_Search]:
    """Who searches what; equal galleries of different protocols are one."""
    found: dict[bytes, tuple[NDArray[np.int32], list[_Asked]]] = {}
    for number, judgement in enumerate(judgements):
        for index, gallery in enumerate(judgement.galleries):
            rows = np.flatnonzero(judgement.gallery_of == index)
            rows = rows[np.argsort(judgement.queries[rows], kind="stable")]
            asked = _Asked(judgement=number, rows=rows, ords=judgement.queries[rows])
            found.setdefault(gallery.tobytes(), (gallery, []))[1].append(asked)
    return [_Search(gallery=gallery, asked=tuple(asked)) for gallery, asked in found.values()]


def _answer(strip: Strip, searches: Sequence[_Search], sheets: Sequence[_Sheet], top: int) -> None:
    """Fill in what this strip says about its queries."""
    stop = strip.start + len(strip.scores)
    asked = [(search, spans) for search in searches if (spans := _spans(search, strip.start, stop))]
    whole = _of_all_items(strip.scores, [search for search, _ in asked], top)
    for search, spans in asked:
        rows = _rows_of(np.concatenate([span.ords for span in spans]).astype(np.int64) - strip.start)
        _fill(strip.start, _looked_up(strip.scores, rows, search, whole, top), spans, sheets)


class _Lookup(NamedTuple):
    """Some queries of a strip before one gallery."""

    scores: Tensor  # shape (n_queries, n_items), items from `first` on
    first: int
    members: NDArray[np.bool_] | None  # which of these items are in the gallery; None: all
    rows: NDArray[np.int64]  # of the strip
    best: Best
    known: Best  # lists to count in, over the gallery or over all items: the longest that there are


def _looked_up(scores: Tensor, rows: NDArray[np.int64], search: _Search, whole: Best | None, top: int) -> _Lookup:
    """The best of one gallery for some rows of a strip."""
    gallery = search.gallery
    if search.is_run:
        first = int(gallery[0])
        mine = _of_queries(scores[:, first : first + len(gallery)], rows)
        if whole is not None and len(gallery) == scores.shape[1]:
            return _Lookup(mine, first, None, rows, whole.rows(rows, top), whole.rows(rows))
        best = best_of(mine, top)
        return _Lookup(mine, first, None, rows, best, best)
    mine, members, k = _of_queries(scores, rows), search.members(scores.shape[1]), min(top, len(gallery))
    known = None
    if whole is not None and _is_large(gallery, top):
        known = whole.rows(rows)
        best, enough = known.within(members, k)
    else:
        best = Best(np.empty((len(rows), k), np.float32), np.empty((len(rows), k), np.int64))
        enough = np.zeros(len(rows), dtype=np.bool_)
    if not enough.all():
        columns = torch.from_numpy(gallery).to(scores.device)
        short = torch.from_numpy(np.flatnonzero(~enough)).to(scores.device)
        found = best_of(mine.index_select(0, short).index_select(1, columns), k)
        best.scores[~enough], best.positions[~enough] = found.scores, gallery[found.positions]
    return _Lookup(mine, 0, members, rows, best, known or best)


def _of_all_items(scores: Tensor, searches: Sequence[_Search], top: int) -> Best | None:
    """Best lists of all rows over all items, long enough for the galleries that are no runs; None if there are none."""
    sizes = [len(search.gallery) for search in searches if not search.is_run and _is_large(search.gallery, top)]
    if not sizes:
        return None
    return best_of(scores, int(_AMPLE * top * scores.shape[1] / min(sizes)))


def _is_large(gallery: NDArray[np.int32], top: int) -> bool:
    return len(gallery) >= _SMALLEST * top


def _fill(start: int, found: _Lookup, spans: Sequence[_Asked], sheets: Sequence[_Sheet]) -> None:
    """What is known about the queries of one gallery, into the sheets of all judgements that ask for them."""
    n_items = found.scores.shape[1]
    best_ords = found.best.positions + found.first
    pairs, entries = [], []
    for span in spans:
        sheet = sheets[span.judgement]
        at = np.searchsorted(found.rows, span.ords - start)
        sheet.top_ords[span.rows, : best_ords.shape[1]] = best_ords[at]
        sheet.top_scores[span.rows, : best_ords.shape[1]] = found.best.scores[at]
        which, entry = sheet.links(span.rows)
        pairs.append(at[which] * n_items + sheet.judgement.relevant[entry] - found.first)
        entries.append(entry)
    # protocols share most of their relevant pairs: each pair is looked up once
    distinct, back = np.unique(np.concatenate(pairs), return_inverse=True)
    standing = standing_of(found.scores, *np.divmod(distinct, n_items), found.known, found.members)
    ends = np.cumsum([len(entry) for entry in entries])
    for span, entry, mine in zip(spans, entries, np.split(back, ends[:-1]), strict=True):
        sheet = sheets[span.judgement]
        sheet.standing.scores[entry] = standing.scores[mine]
        sheet.standing.above[entry] = standing.above[mine]
        sheet.standing.level[entry] = standing.level[mine]


def _spans(search: _Search, start: int, stop: int) -> list[_Asked]:
    """The queries with ords in ``[start, stop)``, per judgement; judgements without any are left out."""
    spans = []
    for asked in search.asked:
        first, last = np.searchsorted(asked.ords, (start, stop))
        if first < last:
            rows, ords = asked.rows[first:last], asked.ords[first:last]
            spans.append(_Asked(judgement=asked.judgement, rows=rows, ords=ords))
    return spans


def _rows_of(asked: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows to look up, ascending: those asked, with the others between them where these are the fewer."""
    rows = np.unique(asked)
    span = int(rows[-1] - rows[0]) + 1
    return np.arange(rows[0], rows[-1] + 1) if 2 * len(rows) >= span else rows


def _of_queries(scores: Tensor, rows: NDArray[np.int64]) -> Tensor:
    if len(rows) == len(scores):
        return scores
    if rows[-1] - rows[0] + 1 == len(rows):
        return scores[int(rows[0]) : int(rows[-1]) + 1]
    return scores.index_select(0, torch.from_numpy(rows).to(scores.device))
