"""Small outcomes made by hand, for doctests, tests and trying out a custom metric."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from capim.tasks.protocols import Direction, Protocol
from capim.tasks.ranking.outcomes import Outcomes


def outcomes_of(
    ranks: Sequence[Sequence[int]], *, n_gallery: int = 1000, direction: Direction = "i2t", protocol: str = "i2t/any"
) -> Outcomes:
    """Outcomes without ties from the ranks of each query's relevant items, ascending; every query its own image.

    Examples:
        >>> outcomes_of([[1, 3], [7]]).rank_best.tolist()
        [1, 7]
    """
    n = len(ranks)
    flat = np.concatenate([np.asarray(row, dtype=np.int32) for row in ranks])
    own = np.arange(n, dtype=np.int32)
    best = np.array([row[0] for row in ranks], dtype=np.int32)
    return Outcomes(
        protocol=Protocol.of(protocol),
        query_ids=np.array([f"q{i}" for i in range(n)], dtype=object),
        query_ords=own,
        clusters=own,
        rank_best=best,
        rank_worst=best,
        n_relevant=np.array([len(row) for row in ranks], dtype=np.int32),
        n_tied_relevant=np.ones(n, dtype=np.int32),
        n_gallery=np.full(n, n_gallery, dtype=np.int32),
        weights=np.ones(n),
        best_score=np.zeros(n, dtype=np.float32),
        relevant_rank_best=flat,
        relevant_rank_worst=flat,
    )
