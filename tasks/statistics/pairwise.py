"""Paired comparisons of encoders on the same queries: the difference, its uncertainty and its size.

Never by the overlap of two intervals, and never by a difference over pooled standard deviations read as a z value:
both ignore that the encoders were evaluated on the same images.

"Encoder" stands for anything that gives each query a value: models, two revisions of one model (regression watch), two
precisions of its vectors, two translators of the same captions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasks.statistics.bootstrap import Interval, paired_intervals
from tasks.statistics.clusters import Clusters, checked_values
from tasks.statistics.effect import IDENTICAL, Effect, detectable_effect, effect_of
from tasks.statistics.median_flip import median_flip_tests
from tasks.statistics.multiplicity import adjusted
from tasks.statistics.permutation import FlipTest, sign_flip_tests
from tasks.statistics.proportion import cluster_robust_error
from tasks.statistics.resampling import Resampling
from tasks.statistics.statistic import Reduce


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two encoders, ``a`` minus ``b``, under one metric.

    Attributes:
        difference: With the paired interval, in the metric's unit.
        p_adjusted: The sign-flip p-value adjusted over all pairs compared together.
        detectable_effect: True difference that this comparison detects with 80 % power.
        n_clusters: Images that they belong to.
        reason: Why something is None; several reasons are joined by ``"; "``.
    """

    a: str
    b: str
    difference: Interval
    flip_test: FlipTest
    p_adjusted: float | None
    effect: Effect
    detectable_effect: float | None
    n_queries: int
    n_clusters: int
    reason: str | None


def compare_encoders(
    values: Mapping[str, ArrayLike],
    clusters: Clusters,
    resampling: Resampling,
    *,
    reduce: Reduce = "mean",
    lower_is_better: bool = False,
    share: bool = False,
) -> list[Comparison]:
    """Every pair of encoders under one metric.

    Args:
        values: Encoder -> per-query values, shape ``(n_queries,)``, the queries in the same order for all.
        clusters: Of these queries, with their weights.
        resampling: How intervals and random flips are drawn, and p-values adjusted over all pairs.
        reduce: How per-query values become the metric.
        lower_is_better: For ranks: wins are queries with the lower value. The difference stays ``a`` minus ``b``.
        share: Values are hits and misses, or expected hits where scores tie: Cohen's h applies. Plain zeros and
            ones are recognised.

    Returns:
        One :class:`Comparison` per pair, in the order of ``itertools.combinations`` of the keys.

    Raises:
        ValueError: An encoder with another number of queries than the clusters have.

    Examples:
        >>> hits = {"old": [0, 0, 0, 1, 0, 0], "new": [1, 1, 1, 1, 1, 1]}
        >>> [c] = compare_encoders(hits, Clusters.of(range(6)), Resampling())
        >>> c.difference.value, c.effect.tally, c.effect.p_mcnemar, c.flip_test.p
        (-0.8333333333333334, Tally(wins=0, ties=1, losses=5), 0.0625, 0.0625)
    """
    names = list(values)
    pairs = list(combinations(range(len(names)), 2))
    if not pairs:
        return []
    table = np.concatenate([_row(name, row, clusters) for name, row in values.items()])
    differences = paired_intervals(table, clusters, pairs, resampling, reduce)
    flip_tests = sign_flip_tests if reduce == "mean" else median_flip_tests
    flips = flip_tests(table, clusters, pairs, resampling)
    p_adjusted = adjusted([test.p for test in flips], resampling.adjustment)
    effects = [effect_of(table[a], table[b], clusters, lower_is_better=lower_is_better, share=share) for a, b in pairs]
    return [
        Comparison(
            a=names[a],
            b=names[b],
            difference=difference,
            flip_test=flip,
            p_adjusted=p,
            effect=effect,
            detectable_effect=_detectable(table[a] - table[b], clusters, difference, reduce, resampling.level),
            n_queries=clusters.n_queries,
            n_clusters=clusters.n_occupied,
            reason=_reason(difference, effect),
        )
        for (a, b), difference, flip, p, effect in zip(pairs, differences, flips, p_adjusted, effects, strict=True)
    ]


def _row(name: str, row: ArrayLike, clusters: Clusters) -> NDArray[np.float64]:
    try:
        return checked_values(row, clusters)
    except ValueError as error:
        raise ValueError(f"encoder {name!r}: {error}") from None


def _detectable(
    per_query: NDArray[np.float64], clusters: Clusters, difference: Interval, reduce: Reduce, level: float
) -> float | None:
    """From the clustered error of a mean or the bootstrap error of a median; None where there is none."""
    if clusters.n_occupied < 2:
        return None
    error = cluster_robust_error(per_query, clusters) if reduce == "mean" else difference.standard_error
    return detectable_effect(error, alpha=1 - level) if error else None


def _reason(difference: Interval, effect: Effect) -> str | None:
    """Why something is None; for encoders that never differ, that one reason."""
    reasons = list(effect.reasons)
    if difference.reason and IDENTICAL not in reasons:
        reasons.insert(0, difference.reason)
    return "; ".join(reasons) or None
