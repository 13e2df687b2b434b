"""How narrowly a query is won or lost: the best relevant score minus the best irrelevant one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tasks.diagnosis.subject import Slice, Subject
from tasks.scoring.outcomes import Outcomes
from tasks.statistics.slices import part_means


def margins(subject: Subject) -> Iterator[Slice]:
    """Mean margin of all queries, of hits and of misses, in the encoder's own score units; quantiles in the detail."""
    for encoder, outcomes in subject.outcomes.items():
        margin = score_margin(outcomes)
        if margin is None:
            continue
        known = np.isfinite(margin)
        parts = {"all": known, "hits": known & (outcomes.rank_worst == 1), "misses": known & (outcomes.rank_best > 1)}
        parts = {name: inside for name, inside in parts.items() if inside.any()}
        if not parts:
            continue
        means = part_means(
            np.where(known, margin, 0.0)[None],
            np.stack(list(parts.values())),
            subject.clusters,
            subject.resampling,
        )
        for part, (name, inside) in enumerate(parts.items()):
            low, middle, high = np.quantile(margin[inside], (0.25, 0.5, 0.75)).tolist()
            yield Slice(
                encoder=encoder,
                analysis="margin",
                feature=name,
                level_name="",
                metric="score margin",
                interval=means.interval(0, part),
                n_queries=int(means.n_queries[part]),
                n_clusters=int(means.n_clusters[part]),
                detail={"quartiles": [low, middle, high]},
            )


def score_margin(outcomes: Outcomes) -> NDArray[np.float64] | None:
    """The best relevant score minus the best irrelevant one, float64, shape ``(n_queries,)``.

    Positive for a hit, zero for a tie, negative for a miss. NaN where the irrelevant item is not in the stored list
    (all of it is relevant). None without result lists.

    The list is in order of scores, and the ranks of the relevant items say which of its places are theirs: the first
    place that is none of them holds the best irrelevant score (a tied one where equal scores share a place).
    """
    if outcomes.top_scores is None:
        return None
    width = outcomes.top_scores.shape[1]
    query = np.repeat(np.arange(len(outcomes)), outcomes.n_relevant)
    nth = np.arange(len(query)) - np.repeat(outcomes.offsets[:-1], outcomes.n_relevant)
    # the n-th relevant item (from 0) stands at place n exactly while only relevant ones are before it
    unbroken = outcomes.relevant_rank_best == nth + 1
    leading = np.bincount(query, weights=unbroken, minlength=len(outcomes)).astype(np.int64)
    inside = leading < width
    best_irrelevant = outcomes.top_scores[np.arange(len(outcomes)), np.minimum(leading, width - 1)]
    margin = outcomes.best_score.astype(np.float64) - best_irrelevant
    return np.where(inside, margin, np.nan)
