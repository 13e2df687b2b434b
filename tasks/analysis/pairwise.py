"""Comparisons of encoders on the same queries: how large the difference is, how sure, how much it matters.

Never by overlap of two intervals, and never by a difference over pooled standard deviations read as a z value:
both ignore that the encoders saw the same images. Everything here is paired.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasks.analysis.bootstrap import Interval, Method
from tasks.analysis.clusters import Clusters, checked_values
from tasks.analysis.effect import Tally, cohen_dz, cohen_h, mcnemar_exact, odds_ratio, tally
from tasks.analysis.multiplicity import Adjustment, adjusted
from tasks.analysis.paired import paired_intervals
from tasks.analysis.permutation import FlipTest, median_flip_test, sign_flip_tests
from tasks.analysis.power import detectable_effect
from tasks.analysis.proportion import cluster_robust_error
from tasks.analysis.statistic import Reduce

IDENTICAL = "the encoders agree on every query: there is no difference to test"
SEVERAL_QUERIES = "McNemar's test needs independent queries, here images have several"
NEVER_LOSES = "the second encoder wins on no query: the odds ratio is infinite"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two encoders, ``a`` minus ``b``, under one metric.

    Attributes:
        a: The first encoder.
        b: The second encoder.
        difference: ``a`` minus ``b`` with the paired interval, in the metric's unit.
        flip_test: The sign-flip test over clusters.
        p_adjusted: The sign-flip p-value adjusted over all pairs compared together.
        p_mcnemar: Exact; None where images have several queries or outcomes are not plain hits and misses.
        tally: Queries on which ``a`` is better, as good, worse.
        cohen_dz: Mean difference in standard deviations of the differences.
        cohen_h: For shares: difference on the arcsine scale.
        odds_ratio: Wins over losses.
        detectable_effect: True difference that this comparison finds four times in five.
        n_queries: Queries shared.
        n_clusters: Images that they belong to.
        reason: Why something is None; several reasons are joined by ``"; "``.
    """

    a: str
    b: str
    difference: Interval
    flip_test: FlipTest
    p_adjusted: float | None
    p_mcnemar: float | None
    tally: Tally
    cohen_dz: float | None
    cohen_h: float | None
    odds_ratio: float | None
    detectable_effect: float | None
    n_queries: int
    n_clusters: int
    reason: str | None


def compare_encoders(
    values: Mapping[str, ArrayLike],
    clusters: ArrayLike,
    *,
    seed: int,
    n_clusters: int | None = None,
    weights: ArrayLike | None = None,
    replicates: int = 10_000,
    permutations: int = 10_000,
    level: float = 0.95,
    method: Method = "percentile",
    reduce: Reduce = "mean",
    lower_is_better: bool = False,
    share: bool = False,
    adjustment: Adjustment = "holm",
) -> list[Comparison]:
    """Every pair of encoders under one metric.

    Args:
        values: Encoder -> per-query values, shape ``(n_queries,)``, the queries in the same order for all.
        clusters: The cluster of each query, integers of shape ``(n_queries,)``.
        seed: Of the bootstrap draws (shared with the intervals of the corpus) and of the random flips.
        n_clusters: Images of the corpus; left out, one more than the highest label.
        weights: What each query counts in a mean, shape ``(n_queries,)``; left out, all the same.
        replicates: Bootstrap draws.
        permutations: Random flips where not all can be looked at.
        level: Of the intervals.
        method: ``percentile`` or ``bca``.
        reduce: How per-query values become the metric.
        lower_is_better: For ranks: wins are queries with the lower value. The difference stays ``a`` minus ``b``.
        share: Values are hits and misses, or expected hits where scores tie: Cohen's h applies. Plain zeros and
            ones are recognised.
        adjustment: Over all pairs.

    Returns:
        One :class:`Comparison` per pair, in the order of ``itertools.combinations`` of the keys.

    Raises:
        ValueError: Encoders with another number of queries than there are clusters; arguments out of range.

    Examples:
        >>> hits = {"old": [0, 0, 0, 1, 0, 0], "new": [1, 1, 1, 1, 1, 1]}
        >>> [c] = compare_encoders(hits, range(6), seed=1)
        >>> c.difference.value, c.tally, c.p_mcnemar, c.flip_test.p
        (-0.8333333333333334, Tally(wins=0, ties=1, losses=5), 0.0625, 0.0625)
    """
    units = Clusters.of(clusters, n_clusters, weights)
    names = list(values)
    pairs = list(combinations(range(len(names)), 2))
    if not pairs:
        return []
    table = np.concatenate([_row(name, row, units) for name, row in values.items()])
    differences = paired_intervals(
        table, units, pairs, seed=seed, replicates=replicates, level=level, method=method, reduce=reduce
    )
    if reduce == "mean":
        flips = sign_flip_tests(table, units, pairs, permutations=permutations, seed=seed)
    else:
        flips = [median_flip_test(table[a], table[b], units, permutations=permutations, seed=seed) for a, b in pairs]
    p_adjusted = adjusted([test.p for test in flips], adjustment)
    compared = []
    for (a, b), difference, test, p in zip(pairs, differences, flips, p_adjusted, strict=True):
        compared.append(
            _comparison(names[a], names[b], table[[a, b]], units, difference, test, p, lower_is_better, share, level)
        )
    return compared


def _row(name: str, row: ArrayLike, clusters: Clusters) -> NDArray[np.float64]:
    try:
        return checked_values(row, clusters)
    except ValueError as error:
        raise ValueError(f"encoder {name!r}: {error}") from None


def _comparison(
    a: str,
    b: str,
    two: NDArray[np.float64],
    clusters: Clusters,
    difference: Interval,
    test: FlipTest,
    p_adjusted: float | None,
    lower_is_better: bool,
    share: bool,
    level: float,
) -> Comparison:
    counts = tally(two[0], two[1], lower_is_better=lower_is_better)
    binary = bool(np.isin(two, (0.0, 1.0)).all())
    enough = clusters.n_occupied >= 2
    error = cluster_robust_error(two[0] - two[1], clusters) if enough else 0.0
    reasons = []
    if test.p is None:
        reasons.append(IDENTICAL)
    elif difference.reason:
        reasons.append(difference.reason)
    if binary and not clusters.independent:
        reasons.append(SEVERAL_QUERIES)
    if counts.wins and not counts.losses:
        reasons.append(NEVER_LOSES)
    return Comparison(
        a=a,
        b=b,
        difference=difference,
        flip_test=test,
        p_adjusted=p_adjusted,
        p_mcnemar=mcnemar_exact(counts.wins, counts.losses) if binary and clusters.independent else None,
        tally=counts,
        cohen_dz=cohen_dz(two[0], two[1]),
        cohen_h=cohen_h(clusters.mean(two[0]), clusters.mean(two[1])) if share or binary else None,
        odds_ratio=odds_ratio(counts.wins, counts.losses),
        detectable_effect=detectable_effect(error, alpha=1 - level) if error > 0 else None,
        n_queries=clusters.n_queries,
        n_clusters=clusters.n_occupied,
        reason="; ".join(reasons) or None,
    )
