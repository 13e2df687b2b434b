"""Outcomes from the rank of each query's first relevant item, or from the range that the rank is known to be in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from capim.store.ragged import positions_within
from capim.tasks.scoring.outcomes import Outcomes
from capim.tasks.scoring.protocols.tasks import RetrievalTask, query_columns


def last_ranks(task: RetrievalTask) -> NDArray[np.int32]:
    """The last rank that the first relevant item can have, behind every irrelevant one; shape ``(n_queries,)``."""
    return task.n_gallery - task.n_relevant.astype(np.int32) + 1


def outcomes_of_ranges(task: RetrievalTask, low: NDArray[np.int32], high: NDArray[np.int32]) -> Outcomes:
    """The outcomes of queries whose first relevant item has a rank from ``low`` to ``high``, shape ``(n_queries,)``.

    Where the two are equal the rank is known. Nothing is known of further relevant items but that they follow.
    """
    n_queries, n_relevant = len(task.queries), task.n_relevant.astype(np.int32)
    order = positions_within(n_relevant).astype(np.int32)
    relevant_rank_worst = np.repeat(last_ranks(task), n_relevant) + order
    relevant_rank_worst[task.offsets[:-1]] = high
    n_ranked = (low == high).astype(np.int32)
    return Outcomes(
        **query_columns(task),
        rank_best=low,
        rank_worst=high,
        n_tied_relevant=np.ones(n_queries, dtype=np.int32),
        best_score=np.full(n_queries, np.nan, dtype=np.float32),
        relevant_rank_best=np.repeat(low, n_relevant) + order,
        relevant_rank_worst=relevant_rank_worst,
        n_ranked=None if (n_ranked == n_relevant).all() else n_ranked,
    )
