"""Paired comparisons of encoders on the same queries: the difference, its uncertainty and its size.

Never by the overlap of two intervals, and never by a difference over pooled standard deviations read as a z value:
both ignore that the encoders were evaluated on the same images.

"Encoder" stands for anything that gives each query a value: models, two revisions of one model (regression watch), two
precisions of its vectors, two translators of the same captions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from capim.tasks.statistics.bootstrap import Interval, in_agreement, paired_intervals
from capim.tasks.statistics.clusters import Clusters, known_queries
from capim.tasks.statistics.effect import (
    IDENTICAL,
    NO_EFFECT,
    POWER,
    Effect,
    detectable_effect,
    effect_of,
    equivalence_p,
)
from capim.tasks.statistics.median_flip import median_flip_tests
from capim.tasks.statistics.multiplicity import ALPHA, adjusted
from capim.tasks.statistics.permutation import NO_TEST, FlipTest, sign_flip_tests
from capim.tasks.statistics.resampling import Resampling
from capim.tasks.statistics.statistic import Reduce

NO_COMMON_QUERY = "no comparison: no query has a value of both encoders"
TWO_SIDED = float(ndtri(0.975))  # studentised difference at which one pair is significant at 5 %


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How per-query values become a figure, and how differences of it are read.

    Attributes:
        reduce: How they become the figure. Of an aggregate there is the difference with its interval, but no test: a
            query has no winner.
        lower_is_better: For ranks: wins are queries with the lower value. The difference stays ``a`` minus ``b``.
        share: Values are hits and misses, or expected hits where scores tie: Cohen's h applies. Plain zeros and
            ones are recognised.
        span: The largest difference that the figure can have, in its unit: ``Resampling.margin`` is a percentage of
            it. None where that is not known: equivalence is not tested.
    """

    reduce: Reduce = "mean"
    lower_is_better: bool = False
    share: bool = False
    span: float | None = None


PLAIN_MEAN = Scale()


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two encoders, ``a`` minus ``b``, under one metric.

    Attributes:
        difference: With the paired interval, in the metric's unit; its value is NaN without a common query. The
            interval holds 0 if and only if the test of this pair alone does not reject at its level.
        simultaneous: Ends of the difference's interval that holds for all pairs compared together at ``1 - ALPHA``,
            whatever the level: it holds 0 where ``p_adjusted`` is not below ``ALPHA``. None without a test, and where
            so few clusters carry so much of the weight that it has no end.
        p_adjusted: The sign-flip p-value adjusted over all pairs compared together.
        detectable_effect: True difference that this comparison detects with 80 % power, at the adjusted level.
        p_equivalent: That the true difference is within the margin, adjusted (Holm) over all pairs; None for a metric
            without a range.
        n_queries: Queries on which both have a value.
        n_clusters: Images that they belong to.
        reason: Why something is None; several reasons are joined by ``"; "``.
    """

    a: str
    b: str
    difference: Interval
    simultaneous: tuple[float, float] | None
    flip_test: FlipTest
    p_adjusted: float | None
    effect: Effect
    detectable_effect: float | None
    p_equivalent: float | None
    n_queries: int
    n_clusters: int
    reason: str | None


def compare_encoders(
    values: Mapping[str, ArrayLike], clusters: Clusters, resampling: Resampling, scale: Scale = PLAIN_MEAN
) -> list[Comparison]:
    """Every pair of encoders under one metric.

    Args:
        values: Encoder -> per-query values, shape ``(n_queries,)``, the queries in the same order for all. A pair is
            compared on the queries where neither is NaN. For an aggregate a query may have several numbers, shape
            ``(n_queries, ...)``.
        clusters: Of these queries, with their weights.
        resampling: How intervals and random flips are drawn, and p-values adjusted over all pairs.

    Returns:
        One :class:`Comparison` per pair, in the order of ``itertools.combinations`` of the keys.

    Raises:
        ValueError: An encoder with another number of queries than the clusters have, or an infinite value.

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
    table = np.stack([_row(name, row, clusters) for name, row in values.items()])
    known = np.stack([known_queries(row) for row in table])
    alike: dict[bytes, list[int]] = {}  # pairs that have the same queries in common
    for at, (a, b) in enumerate(pairs):
        alike.setdefault((known[a] & known[b]).tobytes(), []).append(at)
    if resampling.adjustment != "max-t":  # so many that p-values of 0.001 remain where they are multiplied by the pairs
        resampling = replace(resampling, permutations=max(resampling.permutations, 1000 * len(pairs)))
    tested = [at for at, (a, b) in enumerate(pairs) if (known[a] & known[b]).any() and not callable(scale.reduce)]
    flip_tests = sign_flip_tests if scale.reduce == "mean" else median_flip_tests
    drawn = flip_tests(table, clusters, [pairs[at] for at in tested], resampling) if tested else []
    flips = dict(zip(tested, drawn, strict=True))
    found: dict[int, Comparison] = {}
    for members in alike.values():
        rows = sorted({row for at in members for row in pairs[at]})
        common: NDArray[np.bool_] = np.logical_and.reduce(known[rows], axis=0)
        inside = [(rows.index(pairs[at][0]), rows.index(pairs[at][1])) for at in members]
        compared = _compare_pairs(
            [names[row] for row in rows],
            table[rows][:, common],
            clusters if common.all() else clusters.only(common),
            inside,
            [flips.get(at, NO_TEST) for at in members],
            resampling,
            scale,
        )
        found |= dict(zip(members, compared, strict=True))
    compared = [found[at] for at in range(len(pairs))]
    if resampling.adjustment == "max-t":
        p_adjusted = [each.flip_test.p_adjusted for each in compared]
    else:
        p_adjusted = adjusted([each.flip_test.p for each in compared], resampling.adjustment)
    p_equivalent = adjusted([each.p_equivalent for each in compared])
    return [
        replace(each, p_adjusted=p, p_equivalent=same, simultaneous=_holding_zero(each.simultaneous, p))
        for each, p, same in zip(compared, p_adjusted, p_equivalent, strict=True)
    ]


def _compare_pairs(
    names: Sequence[str],
    table: NDArray[np.float64],
    clusters: Clusters,
    pairs: Sequence[tuple[int, int]],
    flips: Sequence[FlipTest],
    resampling: Resampling,
    scale: Scale,
) -> list[Comparison]:
    """Pairs of rows, shape ``(n_encoders, n_queries, ...)`` without NaN; their p-values are not adjusted."""
    if not clusters.n_queries:
        nothing = Interval(value=np.nan, reason=NO_COMMON_QUERY)
        differences = [nothing] * len(pairs)
        effects = [replace(NO_EFFECT, reasons=())] * len(pairs)
    else:
        intervals = paired_intervals(table, clusters, pairs, resampling, scale.reduce)
        differences = [
            in_agreement(interval, flip.p, level=resampling.level)
            for interval, flip in zip(intervals, flips, strict=True)
        ]
        effects = [
            NO_EFFECT
            if callable(scale.reduce)
            else effect_of(table[a], table[b], clusters, lower_is_better=scale.lower_is_better, share=scale.share)
            for a, b in pairs
        ]
    return [
        Comparison(
            a=names[a],
            b=names[b],
            difference=difference,
            simultaneous=_simultaneous(table[a] - table[b], difference.value, clusters, flip, scale),
            flip_test=flip,
            p_adjusted=None,
            effect=effect,
            detectable_effect=None
            if IDENTICAL in effect.reasons
            else _detectable(table[a] - table[b], clusters, difference, flip, scale),
            p_equivalent=None
            if scale.span is None or scale.reduce != "mean" or not clusters.n_queries
            else equivalence_p(
                table[a] - table[b], clusters, margin=resampling.margin / 100 * scale.span, span=scale.span
            ),
            n_queries=clusters.n_queries,
            n_clusters=clusters.n_occupied,
            reason=_reason(difference, effect),
        )
        for (a, b), difference, flip, effect in zip(pairs, differences, flips, effects, strict=True)
    ]


def _row(name: str, row: ArrayLike, clusters: Clusters) -> NDArray[np.float64]:
    values = np.asarray(row, dtype=np.float64)
    if values.shape[:1] != (clusters.n_queries,):
        raise ValueError(
            f"encoder {name!r}: values have shape {values.shape}, but the clusters are those of {clusters.n_queries} "
            "queries; give one value per query, in the same order"
        )
    if np.isinf(values).any():
        raise ValueError(f"encoder {name!r}: {int(np.isinf(values).sum())} values are infinite")
    return values


def _detectable(
    per_query: NDArray[np.float64], clusters: Clusters, difference: Interval, flip: FlipTest, scale: Scale
) -> float | None:
    """Of a mean by its clustered error, else by the bootstrap error; None where there is none."""
    critical = flip.critical or TWO_SIDED
    if scale.reduce == "mean":
        return detectable_effect(per_query, clusters, critical=critical, share=scale.share)
    error = difference.standard_error
    return (critical + float(ndtri(POWER))) * error if error else None


def _simultaneous(
    per_query: NDArray[np.float64], difference: float, clusters: Clusters, flip: FlipTest, scale: Scale
) -> tuple[float, float] | None:
    """The differences ``d`` that the flips do not reject together with those of all other pairs.

    Of means: ``|sum(c - d w)| <= critical * root of sum((c - d w)^2)`` over clusters with the differences ``c`` and the
    weights ``w``, a quadratic inequality. Of medians: those as far away as the flipped medians are apart.
    """
    if flip.critical is None:
        return None
    if scale.reduce != "mean":
        return difference - flip.critical, difference + flip.critical
    sums, weights = clusters.sums(per_query[None])[:, 0], clusters.totals
    square, slope, rest = (
        float(a.sum() * b.sum() - flip.critical**2 * (a @ b))
        for a, b in ((weights, weights), (weights, sums), (sums, sums))
    )
    if square <= 0:
        return None
    middle, half = slope / square, np.sqrt(max(0.0, slope**2 - square * rest)) / square
    return float(middle - half), float(middle + half)


def _holding_zero(ends: tuple[float, float] | None, p_adjusted: float | None) -> tuple[float, float] | None:
    """The interval, which holds 0 where the adjusted test does not reject: other corrections may be stricter."""
    if ends is None or p_adjusted is None or p_adjusted < ALPHA:
        return ends
    return min(ends[0], 0.0), max(ends[1], 0.0)


def _reason(difference: Interval, effect: Effect) -> str | None:
    """Why something is None; for encoders that never differ, that one reason."""
    reasons = list(effect.reasons)
    if difference.reason and IDENTICAL not in reasons:
        reasons.insert(0, difference.reason)
    return "; ".join(reasons) or None
