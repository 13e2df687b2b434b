"""Two encoders as one: a weighted sum of their scores, or reciprocal rank fusion of their lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from store.schema import TOP
from tasks.scoring.dense import DEFAULT_MEMORY_BYTES, dense_strips, full_float32
from tasks.scoring.late_interaction.maxsim import strips_of
from tasks.scoring.late_interaction.multivectors import Blocks, Ragged
from tasks.scoring.late_interaction.products import float32_scores, score_table
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.tasks import RetrievalTask
from tasks.scoring.ranks.accumulator import Strip, collect
from tasks.scoring.ranks.ranking import Standing, ranks_of

RRF_CONSTANT = 60  # Cormack, Clarke and Buettcher, SIGIR 2009


def dense_scores(
    images: NDArray[np.float32], captions: NDArray[np.float32], judgement: RetrievalTask
) -> Iterator[Strip]:
    """A single-vector encoder's scores for a weighted sum, from its vectors in corpus order."""
    with full_float32():
        yield from dense_strips(images, captions, [judgement], device="cpu", memory_bytes=DEFAULT_MEMORY_BYTES)


def late_scores(images: Blocks, captions: Ragged, *, n_images: int) -> Iterator[Strip]:
    """A multi-vector encoder's scores for a weighted sum: per caption token, so that they are as large as cosines."""
    with full_float32():
        table = float32_scores(images, captions, n_images=n_images, device="cpu", memory_bytes=DEFAULT_MEMORY_BYTES)
    for strip in strips_of(table, DEFAULT_MEMORY_BYTES):
        counts = captions.counts[strip.start : strip.start + len(strip.scores), None]
        yield strip._replace(scores=strip.scores / torch.from_numpy(counts.astype(np.float32)))


def weighted_sum(
    members: Sequence[Iterator[Strip]],
    weights: Sequence[float],
    judgement: RetrievalTask,
    *,
    shape: tuple[int, int],
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    top: int = TOP,
) -> Outcomes:
    """Outcomes of the weighted sum of the encoders' scores.

    Args:
        members: Per encoder, its scores (:func:`dense_scores`, :func:`late_scores`), queries in rows.
        weights: Per encoder, not negative, at least one positive.
        judgement: What is asked.
        shape: Queries and items of the corpus.
        memory_bytes: Sums that take more than half of it are kept in a temporary file.
        top: Length of the best lists.

    Raises:
        ValueError: Not a weight for each encoder, or weights that are negative, not finite or all 0.
    """
    if len(weights) != len(members):
        raise ValueError(f"{len(weights)} weights for {len(members)} encoders; give each its own")
    if not np.isfinite(weights).all() or min(weights) < 0 or max(weights) <= 0:
        raise ValueError(f"weights must be finite, not negative and not all 0, got {list(weights)}")
    table = score_table(shape, np.float32, memory_bytes // 2)
    table[:] = 0
    for member, weight in zip(members, weights, strict=True):
        for strip in member:
            rows = slice(strip.start, strip.start + len(strip.scores))
            table[rows] += np.float32(weight) * strip.scores.cpu().numpy()
    return collect(strips_of(table, memory_bytes), [judgement], top=top)[judgement.protocol.id]


def reciprocal_rank_fusion(
    outcomes: Sequence[Outcomes], judgement: RetrievalTask, *, constant: int = RRF_CONSTANT
) -> Outcomes:
    """Outcomes of the lists fused by ``sum over encoders of 1 / (constant + rank)``.

    Only the stored lists are fused: an item in none of them scores 0, and all of these tie. Hits in the top k are
    therefore exact as far as the lists are long enough; ranks beyond them are honest intervals.

    Args:
        outcomes: Per encoder, of the same judgement, with best lists.
        judgement: What they answer.
        constant: Damps the top ranks.

    Raises:
        ValueError: The outcomes are not of one judgement, or keep no lists.
    """
    lists = [o.top_ords for o in outcomes if o.top_ords is not None]
    if len(lists) != len(outcomes) or not lists or {len(found) for found in lists} != {len(judgement.queries)}:
        raise ValueError(f"fusion needs the lists of {len(judgement.queries)} queries from every encoder")
    width = max(found.shape[1] for found in lists)
    n = len(judgement.queries)
    items = np.concatenate([np.pad(f, ((0, 0), (0, width - f.shape[1])), constant_values=-1) for f in lists], axis=1)
    gains = np.tile(1 / (constant + 1 + np.arange(width)), len(lists)) * (items >= 0)
    # the same item in several lists: sum its gains in its first place of the sorted row
    order = np.argsort(items, axis=1, kind="stable")
    items, gains = np.take_along_axis(items, order, 1), np.take_along_axis(gains, order, 1)
    new = np.ones(items.shape, dtype=bool)
    new[:, 1:] = items[:, 1:] != items[:, :-1]
    group = np.cumsum(new.ravel()) - 1
    scores = np.zeros(items.size)
    scores[np.flatnonzero(new.ravel())] = np.bincount(group, weights=gains.ravel())
    scores = np.where(new & (items >= 0), scores.reshape(items.shape), -1.0)

    query = np.repeat(np.arange(n), judgement.n_relevant)
    hits = (items[query] == judgement.relevant[:, None]) & new[query]
    own = np.where(hits.any(axis=1), scores[query, hits.argmax(axis=1)], 0.0)
    listed = (scores > 0).sum(axis=1)
    n_gallery = outcomes[0].n_gallery.astype(np.int64)
    above = np.count_nonzero(scores[query] > own[:, None], axis=1)
    level = np.count_nonzero(scores[query] == own[:, None], axis=1)
    level = np.where(own == 0, (n_gallery - listed)[query], level)
    ranks = ranks_of(Standing(own.astype(np.float32), above, level), judgement.offsets)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :width]
    top = np.take_along_axis(scores, best, 1)
    return replace(
        outcomes[0],
        rank_best=ranks.rank_best,
        rank_worst=ranks.rank_worst,
        n_tied_relevant=ranks.n_tied_relevant,
        best_score=ranks.best_score,
        relevant_rank_best=ranks.low,
        relevant_rank_worst=ranks.high,
        top_ords=np.where(top > 0, np.take_along_axis(items, best, 1), -1).astype(np.int32),
        top_scores=np.where(top > 0, top, np.nan).astype(np.float32),
    )
