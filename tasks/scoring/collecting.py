"""Strips of scores in, outcomes out: every judgement of one direction is answered from the same strip."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from store.schema import TOP
from tasks.scoring.judgements import RetrievalJudgement
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.ranking import Standing, ranks_of, standing_of
from tasks.scoring.selection import best_of


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


class _Sheet:
    """The outcome columns of one judgement while they fill up."""

    def __init__(self, judgement: RetrievalJudgement, top: int) -> None:
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
            rank_low=ranks.rank_low,
            rank_high=ranks.rank_high,
            n_relevant=judgement.n_relevant.astype(np.int32),
            n_tied_relevant=ranks.n_tied_relevant,
            n_gallery=self.sizes[judgement.gallery_of],
            weights=judgement.weights,
            best_score=ranks.best_score,
            relevant_low=ranks.low,
            relevant_high=ranks.high,
            top_ords=self.top_ords,
            top_scores=self.top_scores,
        )


def collect(
    strips: Iterable[Strip], judgements: Sequence[RetrievalJudgement], *, top: int = TOP
) -> dict[str, Outcomes]:
    """Outcomes of all judgements of one direction, from one run over the queries.

    Args:
        strips: Ascending and without gaps; together they hold every query that is asked, against every item of the
            corpus.
        judgements: All ``t2i`` or all ``i2t``.
        top: Length of the best lists.

    Returns:
        Protocol id -> outcomes, in the order of ``judgements``.
    """
    sheets = [_Sheet(judgement, top) for judgement in judgements]
    searches = _searches(judgements)
    for strip in strips:
        for search in searches:
            _answer(strip, search, sheets, top)
    return {sheet.judgement.protocol.id: sheet.outcomes() for sheet in sheets}


def _searches(judgements: Sequence[RetrievalJudgement]) -> list[_Search]:
    """Who searches what; equal galleries of different protocols are one."""
    found: dict[bytes, tuple[NDArray[np.int32], list[_Asked]]] = {}
    for number, judgement in enumerate(judgements):
        for index, gallery in enumerate(judgement.galleries):
            rows = np.flatnonzero(judgement.gallery_of == index)
            rows = rows[np.argsort(judgement.queries[rows], kind="stable")]
            asked = _Asked(judgement=number, rows=rows, ords=judgement.queries[rows])
            found.setdefault(gallery.tobytes(), (gallery, []))[1].append(asked)
    return [_Search(gallery=gallery, asked=tuple(asked)) for gallery, asked in found.values()]


def _answer(strip: Strip, search: _Search, sheets: Sequence[_Sheet], top: int) -> None:
    """Fill in what this strip says about all queries of one gallery."""
    spans = _spans(search, strip.start, strip.start + len(strip.scores))
    if not spans:
        return
    n_items = len(search.gallery)
    ords = np.unique(np.concatenate([span.ords for span in spans]))
    scores = _of_gallery(_of_queries(strip.scores, ords - strip.start), search.gallery)
    best = best_of(scores, top)
    best_ords = search.gallery[best.positions]
    pairs, entries = [], []
    for span in spans:
        sheet = sheets[span.judgement]
        at = np.searchsorted(ords, span.ords)
        sheet.top_ords[span.rows, : best_ords.shape[1]] = best_ords[at]
        sheet.top_scores[span.rows, : best_ords.shape[1]] = best.scores[at]
        which, entry = sheet.links(span.rows)
        pairs.append(at[which] * n_items + np.searchsorted(search.gallery, sheet.judgement.relevant[entry]))
        entries.append(entry)
    # protocols share most of their relevant pairs: each pair is looked up once
    distinct, back = np.unique(np.concatenate(pairs), return_inverse=True)
    standing = standing_of(scores, *np.divmod(distinct, n_items), best)
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


def _of_queries(scores: Tensor, rows: NDArray[np.int32]) -> Tensor:
    if len(rows) == len(scores):
        return scores
    if rows[-1] - rows[0] + 1 == len(rows):
        return scores[int(rows[0]) : int(rows[-1]) + 1]
    return scores.index_select(0, torch.from_numpy(rows).to(scores.device))


def _of_gallery(scores: Tensor, gallery: NDArray[np.int32]) -> Tensor:
    if gallery[-1] - gallery[0] + 1 == len(gallery):
        return scores[:, int(gallery[0]) : int(gallery[-1]) + 1]
    return scores.index_select(1, torch.from_numpy(gallery).to(scores.device))
