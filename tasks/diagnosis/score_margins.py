"""Score margins: the best relevant score minus the best irrelevant one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from capim.store.ragged import positions_within
from capim.tasks.diagnosis.analysis_input import AnalysisInput
from capim.tasks.diagnosis.slice_means import part_slices
from capim.tasks.diagnosis.slices import Slice
from capim.tasks.scoring.outcomes import Outcomes


def score_margins(data: AnalysisInput) -> Iterator[Slice]:
    """Mean margin of all queries, of hits and of misses, in the encoder's score units; quartiles in the detail."""
    for encoder, outcomes in data.outcomes.items():
        if outcomes.top_scores is None or outcomes.n_ranked is not None:  # a run's list may not reach the relevant item
            continue
        margin = score_margin(outcomes, outcomes.top_scores)
        known = np.isfinite(margin)
        parts = {
            ("all", ""): known,
            ("hits", ""): known & (outcomes.rank_worst == 1),
            ("misses", ""): known & (outcomes.rank_best > 1),
        }
        details = {
            name: {"quartiles": np.quantile(margin[inside], (0.25, 0.5, 0.75)).tolist()}
            for name, inside in parts.items()
            if inside.any()
        }
        values = {encoder: np.where(known, margin, 0.0)}
        yield from part_slices(data, "margin", parts, metric="score margin", values=values, details=details)


def score_margin(outcomes: Outcomes, top_scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """The best relevant score minus the best irrelevant one, shape ``(n_queries,)``.

    Positive for a hit, zero for a tie, negative for a miss; NaN where the stored list holds relevant items only. The
    best irrelevant score is at the first position of ``top_scores``, the lists, that no relevant item takes.
    """
    n_queries, width = top_scores.shape
    query, nth = outcomes.query_of_relevant, positions_within(outcomes.n_relevant)
    # the n-th relevant item (from 0) has rank n + 1 exactly while only relevant items precede it
    leading = np.bincount(query, weights=outcomes.relevant_rank_best == nth + 1, minlength=n_queries).astype(np.int64)
    best_irrelevant = top_scores[np.arange(n_queries), np.minimum(leading, width - 1)]
    return np.where(leading < width, outcomes.best_score.astype(np.float64) - best_irrelevant, np.nan)
