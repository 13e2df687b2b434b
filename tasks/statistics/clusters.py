"""Clusters of queries: the single definition for the bootstrap, sign flips, robust errors and degrees of freedom.

The five captions of an image are not five independent observations; the cluster is the unit that is resampled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

SamplingFrame = int | NDArray[np.int64]
"""The clusters to draw: their number, or the cluster of each label, numbered from 0, with -1 for labels without one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Clusters:
    """The cluster and weight of each query, and the number of clusters to draw.

    Attributes:
        labels: int64, shape ``(n_queries,)``, in ``0 .. n_clusters - 1``: index of the query's photograph among the
            drawn ones.
        weights: float64, shape ``(n_queries,)``, positive: the weight of a query in a mean. All 1, except where groups
            of unequal size have equal weight (folds, SugarCrepe's categories).
        n_clusters: Number of photographs in the corpus that may have queries. Draws include those without a query here,
            so that every protocol and slice of a corpus shares the same draws.
    """

    labels: NDArray[np.int64]
    weights: NDArray[np.float64]
    n_clusters: int

    @classmethod
    def of(cls, labels: ArrayLike, drawn: SamplingFrame | None = None, weights: ArrayLike | None = None) -> Clusters:
        """Return the clusters of some labels, after checking them.

        Args:
            labels: Integers, shape ``(n_queries,)``.
            drawn: Clusters of the corpus; default: one more than the highest label.
            weights: Positive, shape ``(n_queries,)``; default: all 1.

        Raises:
            ValueError: If there are no labels, if they are not a 1-D array of integers or not among the drawn clusters,
                or if the weights do not match.

        Examples:
            >>> Clusters.of([0, 0, 2], 4).sizes.tolist()
            [2, 0, 1, 0]
            >>> Clusters.of([4, 3, 1], np.array([-1, 0, -1, 1, 0])).labels.tolist()  # 1 and 4 show one photograph
            [0, 1, 0]
        """
        array = np.asarray(labels)
        if array.ndim != 1 or not array.size or not np.issubdtype(array.dtype, np.integer):
            raise ValueError(f"cluster labels must be integers of shape (n_queries,), got {array.dtype} {array.shape}")
        labelled, highest = array.astype(np.int64), int(array.max())
        if not isinstance(drawn, np.ndarray):
            n_clusters = highest + 1 if drawn is None else int(drawn)
            if array.min() < 0 or highest >= n_clusters:
                raise ValueError(
                    f"cluster labels must lie in 0..{n_clusters - 1}, got {int(array.min())}..{highest}; "
                    "give the number of images of the corpus"
                )
        else:
            n_clusters, known = int(drawn.max()) + 1, (array >= 0) & (array < len(drawn))
            labelled = np.where(known, drawn[np.where(known, array, 0)], -1)
            strange = labelled < 0
            if strange.any():
                raise ValueError(
                    f"{int(strange.sum())} queries have a cluster that is not drawn, first {int(array[strange][0])}"
                )
        query_weights = np.ones(len(array)) if weights is None else np.asarray(weights, dtype=np.float64)
        if query_weights.shape != array.shape or not (np.isfinite(query_weights) & (query_weights > 0)).all():
            raise ValueError(
                f"weights must be {len(array)} positive numbers, one per query, got shape {query_weights.shape}"
            )
        return cls(labels=labelled, weights=query_weights, n_clusters=n_clusters)

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.labels)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Number of queries in each cluster, shape ``(n_clusters,)``; 0 for an image without a query."""
        return np.bincount(self.labels, minlength=self.n_clusters)

    @cached_property
    def totals(self) -> NDArray[np.float64]:
        """Sum of the weights of each cluster's queries, shape ``(n_clusters,)``."""
        sums = np.bincount(self.labels, weights=self.weights, minlength=self.n_clusters)
        return sums.astype(np.float64)

    @cached_property
    def n_occupied(self) -> int:
        """Number of clusters with at least one query: the independent units."""
        return int(np.count_nonzero(self.sizes))

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """Fraction of the total weight in each cluster, shape ``(n_clusters,)``."""
        shares: NDArray[np.float64] = self.totals / self.totals.sum()
        return shares

    @cached_property
    def n_effective(self) -> float:
        """Kish's effective number of clusters, ``1 / sum(w_i^2)`` over the weight fractions; 0 without queries.

        It equals the number of clusters if all weights are equal.

        Examples:
            >>> Clusters.of([0, 1, 2, 3]).n_effective
            4.0
            >>> round(Clusters.of([0] * 50 + [1, 2, 3, 4, 5, 6, 7, 8, 9]).n_effective, 2)
            1.39
        """
        return kish(self.totals) if self.n_queries else 0.0

    @cached_property
    def largest_share(self) -> float:
        """Largest fraction of the total weight in one cluster, in 0..1."""
        return float(self.shares.max())

    def only(self, queries: NDArray[np.bool_]) -> Clusters:
        """Return the clusters of some of the queries, with the same number of clusters, so that draws are shared.

        Examples:
            >>> Clusters.of([0, 0, 2], 4).only(np.array([True, False, True])).sizes.tolist()
            [1, 0, 1, 0]
        """
        return replace(self, labels=self.labels[queries], weights=self.weights[queries])

    def mean(self, values: NDArray[np.float64]) -> float:
        """Return the weighted mean over the queries of one row of values, shape ``(n_queries,)``."""
        return float(np.average(values, weights=self.weights))

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weighted sum of each cluster's values, given values of shape ``(n_rows, n_queries)``.

        The result is float64 of shape ``(n_clusters, n_rows)``: one column per row of ``values``.

        Examples:
            >>> Clusters.of([0, 0, 1]).sums(np.array([[1.0, 0.0, 1.0], [3.0, 4.0, 5.0]])).tolist()
            [[1.0, 7.0], [1.0, 5.0]]
        """
        columns = np.empty((self.n_clusters, len(values)))
        for row, value in enumerate(values):
            columns[:, row] = np.bincount(self.labels, weights=value * self.weights, minlength=self.n_clusters)
        return columns


def kish(weights: NDArray[np.float64]) -> float:
    """Return Kish's effective number of units with these weights, which must not all be 0.

    Examples:
        >>> kish(np.array([1.0, 1.0, 1.0])), kish(np.array([3.0, 1.0]))
        (3.0, 1.6)
    """
    return float(weights.sum() ** 2 / np.square(weights).sum())


def known_queries(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return a mask of the queries with a value, shape ``(n_queries,)``: a query with any NaN has none.

    Examples:
        >>> known_queries(np.array([[1.0, 2.0], [3.0, np.nan]])).tolist()
        [True, False]
    """
    return np.logical_not(np.isnan(values.reshape(len(values), -1)).any(axis=1))


def checked_values(values: ArrayLike, clusters: Clusters) -> NDArray[np.float64]:
    """Return per-query values as float64 of shape ``(n_rows, n_queries)``; a single row gets its axis.

    Raises:
        ValueError: If the number of queries differs from that of the clusters, or if a value is not finite.

    Examples:
        >>> checked_values([1, 0, 1], Clusters.of([0, 0, 1])).shape
        (1, 3)
    """
    array = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if array.ndim != 2 or array.shape[1] != clusters.n_queries:
        raise ValueError(
            f"values have shape {np.shape(values)}, but the clusters are those of {clusters.n_queries} queries; "
            "give one value per query, in the same order"
        )
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        row, query = (int(i) for i in bad[0])
        raise ValueError(f"{len(bad)} values are not finite, first in row {row} at query {query}: {array[row, query]}")
    return array
