"""Two encoders as one: a weighted sum of their scores, or reciprocal rank fusion of their lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tasks.scoring.judgements import RetrievalJudgement
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.ranking import Standing, ranks_of

RRF_CONSTANT = 60  # Cormack, Clarke and Buettcher, SIGIR 2009


def weighted(vectors: Sequence[NDArray[np.float32]], weights: Sequence[float]) -> NDArray[np.float32]:
    """Vectors whose product is the weighted sum of the encoders' products: score them like any encoder's.

    Args:
        vectors: Per encoder, float32 unit vectors of the same items, shapes ``(n, dim of the encoder)``.
        weights: Per encoder, not negative, at least one positive.

    Returns:
        float32, shape ``(n, sum of dims)``: each encoder's vectors times the root of its weight, side by side.

    Raises:
        ValueError: Numbers of items or weights that do not fit, or unusable weights.

    Examples:
        >>> a, b = np.float32([[1, 0]]), np.float32([[0, 1]])
        >>> fused = weighted([a, b], [0.75, 0.25])
        >>> float((fused @ fused.T)[0, 0])  # 0.75 * 1 + 0.25 * 1
        1.0
    """
    if len(vectors) != len(weights) or len({len(v) for v in vectors}) != 1:
        raise ValueError(f"{len(weights)} weights for encoders with {[len(v) for v in vectors]} items; they must agree")
    if min(weights) < 0 or max(weights) <= 0 or not np.isfinite(weights).all():
        raise ValueError(f"weights must be finite, not negative and not all 0, got {list(weights)}")
    return np.concatenate([np.float32(np.sqrt(w)) * v for v, w in zip(vectors, weights, strict=True)], axis=1)


def reciprocal_rank_fusion(
    outcomes: Sequence[Outcomes], judgement: RetrievalJudgement, *, constant: int = RRF_CONSTANT
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
        rank_low=ranks.rank_low,
        rank_high=ranks.rank_high,
        n_tied_relevant=ranks.n_tied_relevant,
        best_score=ranks.best_score,
        relevant_low=ranks.low,
        relevant_high=ranks.high,
        top_ords=np.where(top > 0, np.take_along_axis(items, best, 1), -1).astype(np.int32),
        top_scores=np.where(top > 0, top, np.nan).astype(np.float32),
    )
