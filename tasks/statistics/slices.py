"""A metric over parts of the queries: the mean and interval of each part, and the difference of two parts.

Every part is bootstrapped with the draws that all analyses of the corpus share (``tasks.statistics.draws``), so the
difference of two parts accounts for images that they have in common: the captions of one image may be in both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from capim.tasks.statistics.clusters import Clusters, checked_values
from capim.tasks.statistics.draws import Resampling, count_blocks, rounded_to_grid
from capim.tasks.statistics.intervals import Interval, clustered_wilson, interval_of

_ROUNDING = 1e-9
LEAST_CLUSTERS = 10  # of a part with an interval or a test: with 2, 3, 5 images intervals covered 62, 77, 89 %
LEAST_EXPECTED = 5.0  # hits, and misses, of a part that is like all queries: with fewer, no interval and no test
SPARSE = 0.1  # share of non-zero cells below which a sparse product is faster: with 80 categories it is 0.04
NO_QUERY = "no interval: this part has no query"
FEW_CLUSTERS = f"no interval: fewer than {LEAST_CLUSTERS} images"
FEW_EXPECTED = f"no interval: fewer than {LEAST_EXPECTED:.0f} hits or misses expected in so small a part"


@dataclass(frozen=True, kw_only=True, eq=False)
class PartMeans:
    """Means over parts of the queries, with their bootstrap replicates.

    Attributes:
        estimates: float64, shape ``(n_encoders, n_parts)``; NaN for a part without a query.
        replicates: float64, shape ``(n_encoders, n_parts, replicates)``; NaN where a draw has no query of the part.
        n_queries: int64, shape ``(n_encoders, n_parts)``: queries of the part with a value of the encoder.
        n_clusters: int64, same shape: images that these queries belong to.
        n_expected: float64, same shape: for shares, the hits or the misses, whichever are fewer, that a part of this
            size has on average; infinite for other means.
        errors: float64, same shape: for shares, the clustered error; None for other means.
    """

    estimates: NDArray[np.float64]
    replicates: NDArray[np.float64]
    n_queries: NDArray[np.int64]
    n_clusters: NDArray[np.int64]
    n_expected: NDArray[np.float64]
    errors: NDArray[np.float64] | None
    level: float

    def counts(self, encoder: int, part: int) -> tuple[int, int]:
        """The numbers of queries and of images of a part."""
        return int(self.n_queries[encoder, part]), int(self.n_clusters[encoder, part])

    def too_small(self, encoder: int, *parts: int) -> str | None:
        """The reason why these parts are too small for intervals and tests; None if they are not."""
        for part in parts:
            if (n_clusters := self.n_clusters[encoder, part]) < LEAST_CLUSTERS:
                return FEW_CLUSTERS if n_clusters else NO_QUERY
            if self.n_expected[encoder, part] < LEAST_EXPECTED:
                return FEW_EXPECTED
        return None

    def interval(self, encoder: int, part: int) -> Interval:
        """The mean of one part; its ends are None, with the reason, where there is no interval."""
        estimate = float(self.estimates[encoder, part])
        if (reason := self.too_small(encoder, part)) is not None:
            return Interval(value=estimate, reason=reason)
        if self.errors is None:
            return interval_of(estimate, self.replicates[encoder, part], level=self.level)
        n_queries, n_clusters = self.counts(encoder, part)
        error = float(self.errors[encoder, part])
        return clustered_wilson(estimate, error, n_queries=n_queries, n_clusters=n_clusters, level=self.level)

    def difference(self, encoder: int, part: int, other: int) -> Interval:
        """The mean of one part minus that of another."""
        estimate = float(self.estimates[encoder, part] - self.estimates[encoder, other])
        if (reason := self.too_small(encoder, part, other)) is not None:
            return Interval(value=estimate, reason=reason)
        drawn = self.replicates[encoder, part] - self.replicates[encoder, other]
        return interval_of(estimate, drawn, level=self.level)


def part_means(
    values: ArrayLike, parts: NDArray[np.bool_], clusters: Clusters, resampling: Resampling, *, share: bool = False
) -> PartMeans:
    """Means of the encoders' values over parts of their queries, bootstrapped over images.

    ``values`` have the shape ``(n_encoders, n_queries)``; a query with NaN does not count for that encoder. ``parts``
    tell which queries are in which part, shape ``(n_parts, n_queries)``, and may overlap or leave queries out.
    ``share``: the values are hits and misses, with the interval that shares have.

    Examples:
        >>> hits = [[1.0, 1.0, 0.0, 0.0]]
        >>> parts = np.array([[True, True, False, False], [False, False, True, True]])
        >>> means = part_means(hits, parts, Clusters.of([0, 1, 2, 3]), Resampling(replicates=100))
        >>> means.estimates.tolist(), means.difference(0, 0, 1).value
        ([[1.0, 0.0]], 1.0)
    """
    given = np.atleast_2d(np.asarray(values, dtype=np.float64))
    table = checked_values(np.where(np.isnan(given), 0.0, given), clusters)
    # encoders with values of the same queries share the totals of the parts
    patterns, pattern_of = np.unique(~np.isnan(given), axis=0, return_inverse=True)
    pattern_of = pattern_of.reshape(-1)
    n_encoders, n_parts = len(table), len(parts)
    inside = parts[None] & patterns[:, None]  # (n_patterns, n_parts, n_queries)
    sums = clusters.sums((table[:, None, :] * parts).reshape(n_encoders * n_parts, -1))
    totals = clusters.sums(inside.reshape(len(patterns) * n_parts, -1).astype(np.float64))
    columns = rounded_to_grid(np.column_stack([sums, totals]), weight=clusters.n_clusters)
    # sums on a grid are exact, so it does not matter in which order they are added up
    factors = scipy.sparse.csc_matrix(columns) if np.count_nonzero(columns) < SPARSE * columns.size else columns
    drawn = np.empty((n_encoders, n_parts, resampling.replicates))
    start = 0
    for counts in count_blocks(clusters.n_clusters, replicates=resampling.replicates, seed=resampling.seed):
        stop = start + len(counts)
        drawn[:, :, start:stop] = _means(np.asarray(counts.astype(np.float64) @ factors), pattern_of, n_parts)
        start = stop
    occupied = [[np.unique(clusters.labels[part]).size for part in of_pattern] for of_pattern in inside]
    n_queries = inside.sum(axis=2, dtype=np.int64)[pattern_of]
    n_clusters = np.array(occupied, dtype=np.int64)[pattern_of]
    estimates = _means(columns.sum(axis=0, keepdims=True), pattern_of, n_parts)[:, :, 0]
    rate = np.nanmean(given, axis=1, keepdims=True) if share else np.nan  # of all queries
    return PartMeans(
        estimates=estimates,
        replicates=drawn,
        n_queries=n_queries,
        n_clusters=n_clusters,
        errors=_errors(sums, totals, estimates, pattern_of, n_clusters) if share else None,
        n_expected=np.minimum(rate, 1 - rate) * n_queries if share else np.full((n_encoders, n_parts), np.inf),
        level=resampling.level,
    )


def _errors(
    sums: NDArray[np.float64],
    totals: NDArray[np.float64],
    estimates: NDArray[np.float64],
    pattern_of: NDArray[np.intp],
    n_clusters: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Clustered errors of the means (``intervals.cluster_robust_error``), shape ``(n_encoders, n_parts)``."""
    n_parts = estimates.shape[1]
    errors = np.full(estimates.shape, np.nan)
    for encoder, pattern in enumerate(pattern_of):
        weight = totals[:, pattern * n_parts : (pattern + 1) * n_parts]
        residuals = sums[:, encoder * n_parts : (encoder + 1) * n_parts] - estimates[encoder] * weight
        with np.errstate(invalid="ignore", divide="ignore"):
            correction = n_clusters[encoder] / (n_clusters[encoder] - 1)
            errors[encoder] = np.sqrt(correction * np.square(residuals).sum(axis=0)) / weight.sum(axis=0)
    return errors


def _means(drawn: NDArray[np.float64], pattern_of: NDArray[np.intp], n_parts: int) -> NDArray[np.float64]:
    """Means of shape ``(n_encoders, n_parts, n_draws)``.

    ``drawn``, shape ``(n_draws, n_encoders * n_parts + n_patterns * n_parts)``, holds the sums of every encoder and
    the total weights of every pattern of known queries; ``pattern_of`` is the pattern of each encoder.
    """
    n_encoders = len(pattern_of)
    sums = drawn[:, : n_encoders * n_parts].T.reshape(n_encoders, n_parts, -1)
    totals = drawn[:, n_encoders * n_parts :].T.reshape(-1, n_parts, len(drawn))
    with np.errstate(invalid="ignore"):
        means: NDArray[np.float64] = sums / totals[pattern_of]
    return means


def label_tests(
    values: NDArray[np.float64], labels: NDArray[np.bool_], among: NDArray[np.bool_], clusters: Clusters
) -> NDArray[np.float64]:
    """Two-sided p-values of the difference between labelled and other queries, shape ``(n_encoders, n_labels)``.

    Within one model: is the mean of a slice further off than that of a random slice of its size? Under the null
    hypothesis the label says nothing about the values: the labels of an image (which of its captions have a word; all
    or none of them for a category) might as well belong to another image with as many captions, and within an image to
    any of its captions. The sum over labelled queries has an exact mean and variance over these permutations; the
    p-value is that of the normal distribution with both (Good 2005, section 3.7), as in the test of Cochran, Mantel and
    Haenszel. p-values from the bootstrap of two slices are not valid where a slice is small or nearly all of it hits:
    with two queries at R@1 .95 they reject three times in four.

    NaN where there is nothing to permute: all or none of the queries have the label, or equal values wherever labels
    could be exchanged. At the least cells of ``tasks.statistics.slices`` the type I error at 5 % is between 3.6 and
    5.4 % (``make bench ONLY=validity``).

    Args:
        values: Per-query values, shape ``(n_encoders, n_queries)``.
        labels: Which queries have each label, shape ``(n_labels, n_queries)``.
        among: The queries of which the labels are known, shape ``(n_queries,)``; the others take no part.

    Examples:
        Of 21 images, 10 have the label, all of them hits, and 3 of the other 11 are missed:

        >>> label = np.array([[True] * 10 + [False] * 11])
        >>> hits = np.array([[1.0] * 18 + [0.0] * 3])
        >>> label_tests(hits, label, np.ones(21, dtype=bool), Clusters.of(range(21))).round(3)
        array([[0.082]])
    """
    table, has = values[:, among], labels[:, among].astype(np.float64)
    _, image = np.unique(clusters.labels[among], return_inverse=True)
    size = np.bincount(image)
    expected, variance = np.zeros((2, len(table), len(has)))
    for n in np.unique(size):  # labels are exchanged among images with as many queries
        of_images = [np.stack([np.bincount(image, weights=row)[size == n] for row in rows]) for rows in (table, has)]
        mean, labelled = of_images[0] / n, of_images[1]
        squares = np.stack([np.bincount(image, weights=np.square(row))[size == n] for row in table])
        spread = squares / n - np.square(mean)  # variance of an image's values
        n_images = int((size == n).sum())
        expected += np.outer(mean.mean(axis=1), labelled.sum(axis=1))
        variance += np.outer(mean.var(axis=1), labelled.var(axis=1)) * n_images**2 / max(n_images - 1, 1)
        variance += np.outer(spread.mean(axis=1), (labelled * (n - labelled)).sum(axis=1)) / max(n - 1, 1)
    distance = np.abs(table @ has.T - expected)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(variance > _ROUNDING, distance / np.sqrt(variance), np.nan)
    return 2 * scipy.special.ndtr(-z)
