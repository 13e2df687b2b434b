"""Where encoders disagree: one is right and another wrong, one alone is right or wrong, or all are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from capim.tasks.diagnosis.analysis_input import AnalysisInput
from capim.tasks.diagnosis.error_kinds import clearest
from capim.tasks.diagnosis.slice_means import QueryValues, mean_slices
from capim.tasks.diagnosis.slices import Slice


def disagreement(data: AnalysisInput) -> Iterator[Slice]:
    """Shares of all queries, with examples; a tied query is neither right nor wrong.

    Per encoder: right where another is wrong (one row per other encoder), alone right, alone wrong, and wrong
    together with all others. A single encoder has only the last.
    """
    names = data.encoders
    right = np.stack([outcomes.rank_worst == 1 for outcomes in data.outcomes.values()])
    wrong = np.stack([outcomes.rank_best > 1 for outcomes in data.outcomes.values()])
    rank = np.stack([outcomes.rank_best for outcomes in data.outcomes.values()])

    def row(
        encoder: str, feature: str, which: NDArray[np.bool_], rank: NDArray[np.integer], other: str = ""
    ) -> QueryValues:
        return QueryValues(encoder, feature, which, {"examples": clearest(data.queries, which, rank)}, other)

    rows = [
        row(names[a], "right where wrong", right[a] & wrong[b], rank[b], names[b])
        for a, b in permutations(range(len(names)), 2)
    ]
    for at, name in enumerate(names):
        rows.append(row(name, "missed by all", np.all(wrong, axis=0), rank.min(axis=0)))
        if len(names) > 1:
            others = np.arange(len(names)) != at
            all_wrong, all_right = np.all(wrong[others], axis=0), np.all(right[others], axis=0)
            rows.append(row(name, "alone right", right[at] & all_wrong, rank[others].min(axis=0)))
            rows.append(row(name, "alone wrong", wrong[at] & all_right, rank[at]))
    yield from mean_slices(data, "disagreement", rows, metric="share of queries")
