"""Two-stage retrieval: one encoder finds, another orders the first N again (the seed's "LAION + ColPali").

The result is outcomes like any encoder's, so intervals, comparisons and slices work on it unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from tasks.scoring.late_interaction.certifying import exactly
from tasks.scoring.late_interaction.multivectors import Blocks, Ragged, checked
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.tasks import RetrievalTask
from tasks.scoring.ranks.ranking import Standing, ranks_of

# (query ords, item ords of shape (n_queries, N)) -> float32 scores of the second encoder, same shape
SecondScores: TypeAlias = Callable[[NDArray[np.int32], NDArray[np.int32]], NDArray[np.float32]]

_COMPONENTS_PER_PASS = 1 << 24


class Depth(NamedTuple):
    """Two-stage retrieval at one N, with what the second stage costs."""

    n: int
    outcomes: Outcomes
    pairs_per_query: int
    seconds_per_query: float


def two_stage(first: Outcomes, judgement: RetrievalTask, second: SecondScores, depths: Sequence[int]) -> list[Depth]:
    """Outcomes of ordering the first N again, for every N; the second encoder scores each pair once.

    Args:
        first: Outcomes of the first encoder, with best lists at least as long as the largest N.
        judgement: What these outcomes answer.
        second: Scores of the second encoder.
        depths: The N, each at least 1.

    Returns:
        One entry per N, in the order given. ``seconds_per_query`` is measured on the largest N and proportional to N.

    Raises:
        ValueError: A list is shorter than the largest N, or the outcomes are not those of the judgement.
    """
    if first.top_ords is None or len(first) != len(judgement.queries) or first.protocol.id != judgement.protocol.id:
        raise ValueError(f"outcomes of {first.protocol.id!r} are not those of the judgement {judgement.protocol.id!r}")
    deepest, width = max(depths), first.top_ords.shape[1]
    if min(depths) < 1 or deepest > width:
        raise ValueError(f"N must be 1 to {width}, the length of the stored lists, got {sorted(depths)}")
    lists = first.top_ords[:, :deepest]
    begun = time.perf_counter()
    scores = np.where(lists < 0, -np.inf, second(judgement.queries, np.maximum(lists, 0))).astype(np.float32)
    seconds = (time.perf_counter() - begun) / len(lists)
    return [Depth(n, _reordered(first, judgement, scores[:, :n]), n, seconds * n / deepest) for n in depths]


def dense_pairs(queries: NDArray[np.float32], items: NDArray[np.float32]) -> SecondScores:
    """Second scores of a single-vector encoder, from its vectors in corpus order."""

    def scores(query_ords: NDArray[np.int32], item_ords: NDArray[np.int32]) -> NDArray[np.float32]:
        found = np.empty(item_ords.shape, dtype=np.float32)
        step = max(1, _COMPONENTS_PER_PASS // (item_ords.shape[1] * items.shape[1]))
        for start in range(0, len(item_ords), step):
            part = slice(start, start + step)
            # float64 sums rounded once: identical items tie wherever they stand in a list
            found[part] = np.einsum("nkd,nd->nk", items[item_ords[part]], queries[query_ords[part]], dtype=np.float64)
        return found

    return scores


def maxsim_pairs(images: Blocks, captions: Ragged, *, device: str = "cpu") -> SecondScores:
    """Second scores of a multi-vector encoder for captions that search images; float32, one pass over the images."""

    def scores(query_ords: NDArray[np.int32], item_ords: NDArray[np.int32]) -> NDArray[np.float32]:
        found = np.empty(item_ords.shape, dtype=np.float32)
        order = np.argsort(item_ords, axis=None, kind="stable")
        rows, places = np.unravel_index(order, item_ords.shape)
        ends = np.searchsorted(item_ords[rows, places], np.arange(int(item_ords.max()) + 2))
        with torch.inference_mode():
            for start, block in checked(images(), "image", captions.values.shape[1], expected=len(ends) - 1):
                for item in range(min(len(block.ords), len(ends) - 1 - start)):
                    mine = slice(ends[start + item], ends[start + item + 1])
                    chosen = query_ords[rows[mine]].astype(np.int64)
                    found[rows[mine], places[mine]] = exactly(captions, chosen, block, item, device)
        return found

    return scores


def _reordered(first: Outcomes, judgement: RetrievalTask, scores: NDArray[np.float32]) -> Outcomes:
    """Outcomes with the first N by the second score, and all other items where the first encoder left them."""
    lists = first.top_ords
    if lists is None or first.top_scores is None:
        raise ValueError(f"protocol {first.protocol.id!r} keeps no lists")
    n = scores.shape[1]
    query = np.repeat(np.arange(len(first)), judgement.n_relevant)
    hits = lists[query, :n] == judgement.relevant[:, None]
    inside = hits.any(axis=1)
    own = scores[query, hits.argmax(axis=1)]
    above = np.count_nonzero(scores[query] > own[:, None], axis=1)
    level = np.count_nonzero(scores[query] == own[:, None], axis=1)
    # relevant items beyond N keep the ranks that the first encoder gave to its last ones
    n_inside = np.bincount(query[inside], minlength=len(first))
    place = np.arange(len(query)) - first.offsets[query]
    kept = place >= n_inside[query]
    low, high = np.empty(len(query), np.int32), np.empty(len(query), np.int32)
    some = np.flatnonzero(n_inside)
    offsets = np.concatenate([[0], np.cumsum(n_inside[some])]).astype(np.int64)
    ranks = ranks_of(Standing(own[inside], above[inside], level[inside]), offsets)
    low[~kept], high[~kept] = ranks.low, ranks.high
    low[kept] = np.maximum(first.relevant_rank_best[kept], n + 1)
    high[kept] = np.maximum(first.relevant_rank_worst[kept], n + 1)
    starts = first.offsets[:-1]
    best_score, tied = first.best_score.copy(), first.n_tied_relevant.copy()
    best_score[some], tied[some] = ranks.best_score, ranks.n_tied_relevant
    order = np.argsort(-scores, axis=1, kind="stable")
    return replace(
        first,
        rank_best=low[starts],
        rank_worst=high[starts],
        n_tied_relevant=tied,
        best_score=best_score,
        relevant_rank_best=low,
        relevant_rank_worst=high,
        top_ords=np.concatenate([np.take_along_axis(lists[:, :n], order, 1), lists[:, n:]], axis=1),
        top_scores=np.concatenate([np.take_along_axis(scores, order, 1), first.top_scores[:, n:]], axis=1),
    )
