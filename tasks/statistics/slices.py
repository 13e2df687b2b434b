"""A metric over parts of the queries: the mean and interval of each part, and the difference of two parts.

Clusters are the units: the captions of one image may be in both of two parts, and their difference accounts for that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from capim.tasks.statistics.clusters import Clusters, checked_values
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import Bounds, Hits, Interval, student_interval

_ROUNDING = 1e-9
LEAST_CLUSTERS = 10  # effective ones, of a part with an interval or a test: with 2, 3, 5 intervals covered 62, 77, 89 %
LEAST_EXPECTED = 5.0  # hits, and misses, of a part that is like all queries: with fewer, no interval and no test
NO_QUERY = "no interval: this part has no query"
FEW_CLUSTERS = f"no interval: fewer than {LEAST_CLUSTERS} images"
FEW_EXPECTED = f"no interval: fewer than {LEAST_EXPECTED:.0f} hits or misses expected in so small a part"


@dataclass(frozen=True, kw_only=True, eq=False)
class PartMeans:
    """Means over parts of the queries, with what each cluster adds to their errors.

    Attributes:
        estimates: float64, shape ``(n_encoders, n_parts)``; NaN for a part without a query.
        influences: float64, shape ``(n_encoders, n_parts, n_clusters)`` (``intervals.influences``).
        shares: float64, same shape: of the part's queries, that belong to each cluster.
        n_queries: int64, shape ``(n_encoders, n_parts)``: queries of the part with a value of the encoder.
        n_expected: float64, same shape: for shares, the hits or the misses, whichever are fewer, that a part of this
            size has on average; infinite for other means.
        share: Whether the values are hits and misses.
        bounds: Of the values.
    """

    estimates: NDArray[np.float64]
    influences: NDArray[np.float64]
    shares: NDArray[np.float64]
    n_queries: NDArray[np.int64]
    n_expected: NDArray[np.float64]
    share: bool
    bounds: Bounds
    level: float

    def counts(self, encoder: int, part: int) -> tuple[int, int]:
        """The numbers of queries and of images of a part."""
        return int(self.n_queries[encoder, part]), int(np.count_nonzero(self.shares[encoder, part]))

    def n_effective(self, encoder: int, part: int) -> float:
        """Kish's number of clusters of a part that has queries."""
        return float(1 / np.square(self.shares[encoder, part]).sum())

    def too_small(self, encoder: int, *parts: int) -> str | None:
        """The reason why these parts are too small for intervals and tests; None if they are not."""
        for part in parts:
            if not self.n_queries[encoder, part]:
                return NO_QUERY
            if self.n_effective(encoder, part) < LEAST_CLUSTERS * (1 - _ROUNDING):
                return FEW_CLUSTERS
            if self.n_expected[encoder, part] < LEAST_EXPECTED:
                return FEW_EXPECTED
        return None

    def interval(self, encoder: int, part: int) -> Interval:
        """The mean of one part; its ends are None, with the reason, where there is no interval."""
        estimate = float(self.estimates[encoder, part])
        if (reason := self.too_small(encoder, part)) is not None:
            return Interval(value=estimate, reason=reason)
        influence, n_effective = self.influences[encoder, part], self.n_effective(encoder, part)
        hits = Hits(float(self.n_queries[encoder, part]), self.shares[encoder, part]) if self.share else None
        bounds = (0.0, 1.0) if self.share else self.bounds
        return student_interval(
            estimate, influence, level=self.level, n_effective=n_effective, bounds=bounds, hits=hits
        )

    def difference(self, encoder: int, part: int, other: int) -> Interval:
        """The mean of one part minus that of another."""
        estimate = float(self.estimates[encoder, part] - self.estimates[encoder, other])
        if (reason := self.too_small(encoder, part, other)) is not None:
            return Interval(value=estimate, reason=reason)
        influence = self.influences[encoder, part] - self.influences[encoder, other]
        n_effective = min(self.n_effective(encoder, part), self.n_effective(encoder, other))
        return student_interval(estimate, influence, level=self.level, n_effective=n_effective)


def part_means(
    values: ArrayLike,
    parts: NDArray[np.bool_],
    clusters: Clusters,
    resampling: Resampling,
    *,
    share: bool = False,
    bounds: Bounds = None,
) -> PartMeans:
    """Means of the encoders' values over parts of their queries.

    ``values`` have the shape ``(n_encoders, n_queries)``; a query with NaN does not count for that encoder. ``parts``
    tell which queries are in which part, shape ``(n_parts, n_queries)``, and may overlap or leave queries out.
    ``share``: the values are hits and misses, with the interval that shares have.

    Examples:
        >>> hits = [[1.0, 1.0, 0.0, 0.0]]
        >>> parts = np.array([[True, True, False, False], [False, False, True, True]])
        >>> means = part_means(hits, parts, Clusters.of([0, 1, 2, 3]), Resampling())
        >>> means.estimates.tolist(), means.difference(0, 0, 1).value
        ([[1.0, 0.0]], 1.0)
    """
    given = np.atleast_2d(np.asarray(values, dtype=np.float64))
    known = ~np.isnan(given)
    table = checked_values(np.where(known, given, 0.0), clusters)
    shape = (len(table), len(parts))
    estimates, n_queries = np.full(shape, np.nan), np.zeros(shape, dtype=np.int64)
    influences, shares = np.zeros((2, *shape, clusters.n_clusters))
    for row, part in np.ndindex(*shape):
        inside = parts[part] & known[row]
        n_queries[row, part] = inside.sum()
        if n_queries[row, part]:
            of_part = clusters.only(inside)
            estimates[row, part] = of_part.mean(table[row, inside])
            deviations = of_part.sums(table[row, inside][None] - estimates[row, part])[:, 0]
            influences[row, part], shares[row, part] = deviations / of_part.totals.sum(), of_part.shares
    rate = np.nanmean(given, axis=1, keepdims=True) if share else np.nan  # of all queries
    return PartMeans(
        estimates=estimates,
        influences=influences,
        shares=shares,
        n_queries=n_queries,
        n_expected=np.minimum(rate, 1 - rate) * n_queries if share else np.full(shape, np.inf),
        share=share,
        bounds=bounds,
        level=resampling.level,
    )


def label_tests(
    values: NDArray[np.float64], labels: NDArray[np.bool_], among: NDArray[np.bool_], clusters: Clusters
) -> NDArray[np.float64]:
    """Two-sided p-values of the difference between labelled and other queries, shape ``(n_encoders, n_labels)``.

    Within one model: is the mean of a slice further off than that of a random slice of its size? Under the null
    hypothesis the label says nothing about the values: the labels of an image (which of its captions have a word; all
    or none of them for a category) might as well belong to another image with as many captions, and within an image to
    any of its captions. The sum over labelled queries has an exact mean and variance over these permutations; the
    p-value is that of the normal distribution with both (Good 2005, section 3.7), as in the test of Cochran, Mantel and
    Haenszel. p-values from the bootstrap of two slices are not valid where a slice is
    small or nearly all of it hits: with two queries at R@1 .95 they reject three times in four.

    NaN where there is nothing to permute: all or none of the queries have the label, or equal values wherever labels
    could be exchanged. At the least cells of ``tasks.statistics.slices`` the type I error at 5 % is between 3.6 and
    5.4 % (``make bench ONLY=validity``).

    Args:
        values: Per-query values, shape ``(n_encoders, n_queries)``.
        labels: Which queries have each label, shape ``(n_labels, n_queries)``.
        among: The queries of which the labels are known, shape ``(n_queries,)``; the others take no part.
        clusters: Of all queries.

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
