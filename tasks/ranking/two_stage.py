"""Two-stage retrieval: one encoder retrieves, a second one re-ranks the first N items.

The result is outcomes like those of any encoder, so intervals, comparisons and slices apply to it unchanged.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from capim.store.vectors import Ragged, positions_within
from capim.tasks.encoders.device import full_float32
from capim.tasks.ranking.maxsim import scores_of_pairs
from capim.tasks.ranking.maxsim_products import maxsim_scores, score_table
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.ranker import PartOutcomes, ScoreRows, retrieval_outcomes, rows_of_table
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.ranking.vectors import Blocks

# (query ords, item ords of shape (n_queries, N)) -> float32 scores of the second encoder, same shape
SecondScores: TypeAlias = Callable[[NDArray[np.int32], NDArray[np.int32]], NDArray[np.float32]]

_COMPONENTS_PER_PASS = 1 << 24


class Depth(NamedTuple):
    """Two-stage retrieval at one re-ranking depth N, with the cost of the second stage."""

    n: int
    outcomes: Outcomes
    seconds_per_query: float


def two_stage(first: Outcomes, task: RetrievalTask, second: SecondScores, depths: Sequence[int]) -> list[Depth]:
    """Return the outcomes of re-ranking the first N, for every N; the second encoder scores each pair once.

    Args:
        first: Outcomes of the first encoder on the task, with best lists at least as long as the largest N.
        depths: Every N, at least 1.

    Returns:
        One entry per N, in the order given. ``seconds_per_query`` is measured on the largest N and proportional to N.

    Raises:
        ValueError: If the outcomes have no lists.
    """
    if first.top_ords is None or first.top_scores is None:
        raise ValueError(f"protocol {first.protocol.id!r} has no lists to re-rank")
    deepest = max(depths)
    lists = first.top_ords[:, :deepest]
    begun = time.perf_counter()
    scores = np.where(lists < 0, -np.inf, second(task.query_ords, np.maximum(lists, 0))).astype(np.float32)
    seconds = (time.perf_counter() - begun) / len(lists)
    return [Depth(n, _reordered(first, task, scores[:, :n]), seconds * n / deepest) for n in depths]


def dense_pairs(queries: NDArray[np.float32], items: NDArray[np.float32]) -> SecondScores:
    """Return second scores of a single-vector encoder, from its vectors in corpus order."""

    def scores(query_ords: NDArray[np.int32], item_ords: NDArray[np.int32]) -> NDArray[np.float32]:
        products = np.empty(item_ords.shape, dtype=np.float32)
        step = max(1, _COMPONENTS_PER_PASS // (item_ords.shape[1] * items.shape[1]))
        for start in range(0, len(item_ords), step):
            part = slice(start, start + step)
            # float64 sums rounded once: identical items tie wherever they are in a list
            vectors = items[item_ords[part]], queries[query_ords[part]]
            products[part] = np.einsum("nkd,nd->nk", *vectors, dtype=np.float64)
        return products

    return scores


def maxsim_pairs(images: Blocks, captions: Ragged) -> SecondScores:
    """Return second scores of a multi-vector encoder for captions that search images; each image is read once."""

    def scores(query_ords: NDArray[np.int32], item_ords: NDArray[np.int32]) -> NDArray[np.float32]:
        pairs = np.stack([np.repeat(query_ords, item_ords.shape[1]), item_ords.ravel()], axis=1)
        return scores_of_pairs(images, captions, pairs, "cpu").reshape(item_ords.shape)

    return scores


def _reordered(first: Outcomes, task: RetrievalTask, scores: NDArray[np.float32]) -> Outcomes:
    """Return outcomes with the first N items by the second score, and all others in the first encoder's order."""
    n, lists, list_scores = scores.shape[1], np.asarray(first.top_ords), np.asarray(first.top_scores)
    order = np.argsort(-scores, axis=1, kind="stable")
    top_ords = np.concatenate([np.take_along_axis(lists[:, :n], order, 1), lists[:, n:]], axis=1)
    top_scores = np.concatenate([np.take_along_axis(scores, order, 1), list_scores[:, n:]], axis=1)
    counts, inside = PartOutcomes.of_lists(task, lists[:, :n], scores, unlisted=-np.inf)
    again = counts._replace(top_ords=top_ords, top_scores=top_scores).outcomes(task)
    # relevant items beyond N, the last of each query, keep the ranks that the first encoder gave to its last ones
    n_inside = np.bincount(task.query_of_relevant[inside], minlength=len(first))
    kept = positions_within(task.n_relevant) >= n_inside[task.query_of_relevant]
    best = np.where(kept, np.maximum(first.relevant_rank_best, n + 1), again.relevant_rank_best)
    worst = np.where(kept, np.maximum(first.relevant_rank_worst, n + 1), again.relevant_rank_worst)
    some = n_inside > 0
    grades, tie_scores = _grades_and_scores(first, task, inside, kept, again)
    return replace(
        first,
        rank_best=best[first.offsets[:-1]],
        rank_worst=worst[first.offsets[:-1]],
        n_tied_relevant=np.where(some, again.n_tied_relevant, first.n_tied_relevant),
        best_score=np.where(some, again.best_score, first.best_score),
        relevant_rank_best=best,
        relevant_rank_worst=worst,
        relevant_grades=grades,
        relevant_scores=tie_scores,
        unjudged=again.unjudged,
        top_ords=top_ords,
        top_scores=top_scores,
    )


def _grades_and_scores(
    first: Outcomes, task: RetrievalTask, inside: NDArray[np.bool_], kept: NDArray[np.bool_], again: Outcomes
) -> tuple[NDArray[np.int32] | None, NDArray[np.float32] | None]:
    """Return the grades in the new order of the relevant items, and scores that are equal if items are tied.

    Scores of items beyond N only show ties: ``-1e6`` less the first rank of the tie.

    Args:
        task: With grades, or without: then both are None.
        inside: True for entries of ``task.relevant`` among the first N.
        kept: True for entries of ``first.relevant_rank_best`` beyond N.
        again: Outcomes with the ranks of the items among the first N.
    """
    if first.relevant_grades is None or first.relevant_scores is None:
        return None, None
    if task.grades is None or again.relevant_grades is None or again.relevant_scores is None:
        return None, None
    grades, scores = first.relevant_grades.copy(), first.relevant_scores.copy()
    new = np.ones(len(scores), dtype=np.bool_)
    new[1:] = (task.query_of_relevant[1:] != task.query_of_relevant[:-1]) | (scores[1:] != scores[:-1])
    tie = np.cumsum(new) - 1
    # if N cuts a tie, the grades remain that are not among the first N
    for group in np.unique(tie[kept & (tie == np.roll(np.where(kept, -1, tie), 1))]):
        members = np.flatnonzero(tie == group)
        query = task.query_of_relevant[members[0]]
        left, beyond = members[kept[members]], np.flatnonzero((task.query_of_relevant == query) & (tie > group))
        rest = Counter(task.grades[(task.query_of_relevant == query) & ~inside].tolist())
        rest.subtract(first.relevant_grades[beyond].tolist())
        grades[left] = sorted(rest.elements(), reverse=True)
    grades[~kept] = again.relevant_grades[~kept]
    scores[kept] = -1e6 - first.relevant_rank_best[np.flatnonzero(new)[tie]][kept]
    scores[~kept] = again.relevant_scores[~kept]
    return grades, scores


# --- Two encoders as one: a weighted sum of their scores, or reciprocal rank fusion of their lists.


RRF_CONSTANT = 60  # Cormack, Clarke and Buettcher, SIGIR 2009


def scores_per_token(images: Blocks, captions: Ragged, *, n_images: int) -> Iterator[ScoreRows]:
    """Yield a multi-vector encoder's scores for a weighted sum, divided by the caption's tokens like cosines."""
    with full_float32():
        table = maxsim_scores(images, captions, range(n_images))
    for start, scores, _ in rows_of_table(table):
        counts = captions.counts[start : start + len(scores), None]
        yield ScoreRows(start, scores / torch.from_numpy(counts.astype(np.float32)))


def weighted_sum(
    members: Sequence[Iterable[ScoreRows]], weights: Sequence[float], task: RetrievalTask, *, shape: tuple[int, int]
) -> Outcomes:
    """Return the outcomes of the weighted sum of the encoders' scores.

    Args:
        members: Scores of each encoder (:func:`tasks.ranking.cosine.dense_score_rows`, :func:`scores_per_token`).
        weights: Weight of each encoder, not negative, at least one positive.
        shape: Numbers of queries and items; sums that take more than 1 GiB are kept in a temporary file.
    """
    table = score_table(shape)
    table[:] = 0
    for member, weight in zip(members, weights, strict=True):
        for start, scores, _ in member:
            table[start : start + len(scores)] += np.float32(weight) * scores.cpu().numpy()
    return retrieval_outcomes(rows_of_table(table), [task])[task.protocol.id]


def reciprocal_rank_fusion(outcomes: Sequence[Outcomes], task: RetrievalTask) -> Outcomes:
    """Return the outcomes of lists fused by ``sum over encoders of 1 / (60 + rank)``.

    Only the stored lists are fused: an item in none of them scores 0, and all of these tie; if an encoder was imported
    with unknown ranks, their ranks are unknown too. Hits in the top k are therefore exact as far as the lists are long
    enough; ranks beyond them are intervals.

    Raises:
        ValueError: If the outcomes are not of one task, or have no lists.
    """
    lists = [o.top_ords for o in outcomes if o.top_ords is not None]
    n = len(task.queries)
    if len(lists) != len(outcomes) or not lists or {len(ords) for ords in lists} != {n}:
        raise ValueError(f"fusion needs the lists of {n} queries from every encoder")
    width = max(ords.shape[1] for ords in lists)
    items = np.concatenate([np.pad(f, ((0, 0), (0, width - f.shape[1])), constant_values=-1) for f in lists], axis=1)
    gains = np.tile(1 / (RRF_CONSTANT + 1 + np.arange(width)), len(lists)) * (items >= 0)
    # the same item in several lists: sum its gains in its first place of the sorted row
    order = np.argsort(items, axis=1, kind="stable")
    items, gains = np.take_along_axis(items, order, 1), np.take_along_axis(gains, order, 1)
    new = np.ones(items.shape, dtype=bool)
    new[:, 1:] = items[:, 1:] != items[:, :-1]
    group = np.cumsum(new.ravel()) - 1
    scores = np.zeros(items.size)
    scores[np.flatnonzero(new.ravel())] = np.bincount(group, weights=gains.ravel())
    scores = np.where(new & (items >= 0), scores.reshape(items.shape), -1.0)

    counts, listed = PartOutcomes.of_lists(task, items, scores, unlisted=0.0)
    n_unlisted = outcomes[0].n_gallery.astype(np.int64) - (scores > 0).sum(axis=1)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :width]
    top = np.take_along_axis(scores, best, 1)
    fused = counts._replace(
        n_tied=np.where(listed, counts.n_tied, n_unlisted[task.query_of_relevant]),
        top_ords=np.where(top > 0, np.take_along_axis(items, best, 1), -1).astype(np.int32),
        top_scores=np.where(top > 0, top, np.nan).astype(np.float32),
    )
    # as float32, different sums may be equal: the number of items above shows the ties
    tied = fused._replace(scores=-fused.n_above.astype(np.float32)).outcomes(task)
    found = np.bincount(task.query_of_relevant[listed], minlength=n).astype(np.int32)
    return replace(
        fused.outcomes(task),
        n_ranked=None if all(each.n_ranked is None for each in outcomes) else found,
        relevant_scores=tied.relevant_scores,
        reference_ndcg=outcomes[0].reference_ndcg,  # of the reference language itself: all are 1
        reference_rbo=outcomes[0].reference_rbo,
    )
