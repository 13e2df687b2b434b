"""A metric over parts of the queries: the mean and interval of each part, and the difference of two parts.

Clusters are the units: captions of one image may be in both of two parts, and their difference accounts for that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from capim.tasks.statistics.clusters import Clusters, checked_values
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import (
    FEW_IMAGES,
    LEAST_EFFECTIVE,
    LEAST_HITS,
    Bounds,
    Interval,
    mean_interval,
    mean_spread,
    student_interval,
)

_ROUNDING = 1e-9
NO_QUERY = "no interval: this part has no query"
FEW_EXPECTED = f"no interval: fewer than {LEAST_HITS:.0f} hits or misses expected in so small a part"


@dataclass(frozen=True, kw_only=True, eq=False)
class PartMeans:
    """Means over parts of the queries, with each cluster's contribution to their errors.

    Attributes:
        estimates: float64, shape ``(n_encoders, n_parts)``; NaN for a part without a query.
        influences: float64, shape ``(n_encoders, n_parts, n_clusters)`` (``intervals.mean_spread``).
        clusters: Clusters of the queries of a part that have a value for an encoder: ``clusters[encoder][part]``.
        n_expected: float64, the shape of ``estimates``. For shares: the hits or misses, whichever are fewer, that a
            part of this size has on average; infinite for other means.
        share: True if the values are hits and misses.
        bounds: Bounds of the values.
    """

    estimates: NDArray[np.float64]
    influences: NDArray[np.float64]
    clusters: list[list[Clusters]]
    n_expected: NDArray[np.float64]
    share: bool
    bounds: Bounds
    resampling: Resampling

    def counts(self, encoder: int, part: int) -> tuple[int, int]:
        """Return the numbers of queries and images of a part."""
        of_part = self.clusters[encoder][part]
        return of_part.n_queries, of_part.n_occupied

    def too_small(self, encoder: int, *parts: int) -> str | None:
        """Return why these parts are too small for intervals and tests; None if they are not."""
        for part in parts:
            if not self.clusters[encoder][part].n_queries:
                return NO_QUERY
            if self.clusters[encoder][part].n_effective < LEAST_EFFECTIVE * (1 - _ROUNDING):
                return FEW_IMAGES
            if self.n_expected[encoder, part] < LEAST_HITS:
                return FEW_EXPECTED
        return None

    def interval(self, encoder: int, part: int) -> Interval:
        """Return the mean of one part; without an interval its ends are None, with the reason."""
        estimate = float(self.estimates[encoder, part])
        if (reason := self.too_small(encoder, part)) is not None:
            return Interval(value=estimate, reason=reason)
        influence, of_part = self.influences[encoder, part], self.clusters[encoder][part]
        return mean_interval(estimate, influence, of_part, self.resampling, bounds=self.bounds, share=self.share)

    def difference(self, encoder: int, part: int, other: int) -> Interval:
        """Return the mean of one part minus that of another."""
        estimate = float(self.estimates[encoder, part] - self.estimates[encoder, other])
        if (reason := self.too_small(encoder, part, other)) is not None:
            return Interval(value=estimate, reason=reason)
        influence = self.influences[encoder, part] - self.influences[encoder, other]
        n_effective = min(self.clusters[encoder][of].n_effective for of in (part, other))
        return student_interval(estimate, influence, level=self.resampling.level, n_effective=n_effective)


def part_means(
    values: ArrayLike,
    parts: NDArray[np.bool_],
    clusters: Clusters,
    resampling: Resampling,
    *,
    share: bool = False,
    bounds: Bounds = None,
) -> PartMeans:
    """Return means of the encoders' values over parts of their queries.

    ``values`` have the shape ``(n_encoders, n_queries)``; a query with NaN does not count for that encoder. ``parts``
    is a mask of the queries in each part, shape ``(n_parts, n_queries)``; parts may overlap or leave queries out.
    ``share``: True if the values are hits and misses, with the interval of shares.

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
    estimates, influences = np.full(shape, np.nan), np.zeros((*shape, clusters.n_clusters))
    of_parts = [[clusters.only(part & of_row) for part in parts] for of_row in known]
    usual = replace(resampling, method="wilson")
    for row, part in np.ndindex(*shape):
        if (of_part := of_parts[row][part]).n_queries:
            inside = table[row, parts[part] & known[row]]
            estimates[row, part] = of_part.mean(inside)
            influences[row, part] = mean_spread(inside, of_part, usual)
    rate = np.nanmean(given, axis=1, keepdims=True) if share else np.nan  # of all queries
    n_queries = np.array([[of_part.n_queries for of_part in of_row] for of_row in of_parts])
    return PartMeans(
        estimates=estimates,
        influences=influences,
        clusters=of_parts,
        n_expected=np.minimum(rate, 1 - rate) * n_queries if share else np.full(shape, np.inf),
        share=share,
        bounds=(0.0, 1.0) if share else bounds,
        resampling=usual,
    )


def label_tests(
    values: NDArray[np.float64], labels: NDArray[np.bool_], among: NDArray[np.bool_], clusters: Clusters
) -> NDArray[np.float64]:
    """Return two-sided p-values of the difference between labelled and other queries, ``(n_encoders, n_labels)``.

    Within one model: is the mean of a slice more extreme than that of a random slice of its size? Under the null
    hypothesis the label is independent of the values: the labels of an image (which of its captions have a word; all or
    none for a category) could as well go to another image with as many captions, and within an image to any of its
    captions. The sum over labelled queries has an exact mean and variance over these permutations; the p-value is that
    of the normal distribution with both (Good 2005, section 3.7), as in the test of Cochran, Mantel and Haenszel.
    p-values from the bootstrap of two slices are invalid if a slice is small or nearly all hits: with two queries at
    R@1 .95 they reject three times in four.

    NaN if there is nothing to permute: if all or no queries have the label, or if values are equal wherever labels
    could be exchanged. At the smallest cells of ``tasks.statistics.slices`` the type I error at 5% is between 3.6 and
    5.4% (``make bench ONLY=validity``).

    Args:
        values: Per-query values, shape ``(n_encoders, n_queries)``.
        labels: True for queries that have a label, shape ``(n_labels, n_queries)``.
        among: True for queries with known labels, shape ``(n_queries,)``; the others are ignored.
        clusters: Clusters of all queries.

    Examples:
        The label is on 10 of 21 images, all of them hits; 3 of the other 11 are missed:

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
