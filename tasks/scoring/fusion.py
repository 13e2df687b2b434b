"""Two encoders as one: a weighted sum of their scores, or reciprocal rank fusion of their lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from capim.store.ragged import Ragged
from capim.tasks.encoders.device import full_float32
from capim.tasks.scoring.late_interaction.multivectors import Blocks
from capim.tasks.scoring.late_interaction.products import maxsim_scores, score_table
from capim.tasks.scoring.outcomes import Outcomes
from capim.tasks.scoring.protocols.tasks import RetrievalTask
from capim.tasks.scoring.ranks.accumulator import ScoreRows, retrieval_outcomes, rows_of_table
from capim.tasks.scoring.ranks.ranking import ranks_of, relevant_in_lists

RRF_CONSTANT = 60  # Cormack, Clarke and Buettcher, SIGIR 2009


def scores_per_token(images: Blocks, captions: Ragged, *, n_images: int) -> Iterator[ScoreRows]:
    """A multi-vector encoder's scores for a weighted sum, divided by the caption's tokens: as large as cosines."""
    with full_float32():
        table = maxsim_scores(images, captions, n_images=n_images)
    for start, scores, _ in rows_of_table(table):
        counts = captions.counts[start : start + len(scores), None]
        yield ScoreRows(start, scores / torch.from_numpy(counts.astype(np.float32)))


def weighted_sum(
    members: Sequence[Iterable[ScoreRows]],
    weights: Sequence[float],
    task: RetrievalTask,
    *,
    shape: tuple[int, int],
) -> Outcomes:
    """Outcomes of the weighted sum of the encoders' scores.

    Args:
        members: Per encoder, its scores (:func:`tasks.scoring.dense.dense_score_rows`, :func:`scores_per_token`).
        weights: Per encoder, not negative, at least one positive.
        shape: Queries and items of the corpus; sums that take more than 1 GiB are kept in a temporary file.

    Raises:
        ValueError: Not one weight for each encoder, or weights that are negative, not finite or all 0.
    """
    if len(weights) != len(members):
        raise ValueError(f"expected one weight for each of {len(members)} encoders, got {len(weights)}")
    if not np.isfinite(weights).all() or min(weights) < 0 or max(weights) <= 0:
        raise ValueError(f"weights must be finite, not negative and not all 0, got {list(weights)}")
    table = score_table(shape)
    table[:] = 0
    for member, weight in zip(members, weights, strict=True):
        for start, scores, _ in member:
            table[start : start + len(scores)] += np.float32(weight) * scores.cpu().numpy()
    return retrieval_outcomes(rows_of_table(table), [task])[task.protocol.id]


def reciprocal_rank_fusion(outcomes: Sequence[Outcomes], task: RetrievalTask) -> Outcomes:
    """Outcomes of the lists fused by ``sum over encoders of 1 / (60 + rank)``.

    Only the stored lists are fused: an item in none of them scores 0, and all of these tie. Hits in the top k are
    therefore exact as far as the lists are long enough; ranks beyond them are intervals.

    Raises:
        ValueError: The outcomes are not of one task, or have no lists.
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

    relevant, listed = relevant_in_lists(items, scores, task, unlisted=0.0)
    n_unlisted = outcomes[0].n_gallery.astype(np.int64) - (scores > 0).sum(axis=1)
    n_tied = np.where(listed, relevant.n_tied, n_unlisted[task.query_of_relevant])
    best = np.argsort(-scores, axis=1, kind="stable")[:, :width]
    top = np.take_along_axis(scores, best, 1)
    return replace(
        outcomes[0],
        top_ords=np.where(top > 0, np.take_along_axis(items, best, 1), -1).astype(np.int32),
        top_scores=np.where(top > 0, top, np.nan).astype(np.float32),
        **ranks_of(relevant._replace(n_tied=n_tied), task.offsets)._asdict(),
    )
