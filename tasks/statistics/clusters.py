"""Clusters of queries: the single definition for the bootstrap, sign flips, robust errors and degrees of freedom.

The five captions of an image are not five independent observations; the cluster is the unit that is resampled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

SamplingFrame = int | NDArray[np.int64]
"""The clusters that are drawn: how many labels, from 0; or the cluster of each label, from 0, -1 where none is."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Clusters:
    """The cluster and the weight of every query, and how many clusters are drawn.

    Attributes:
        labels: int64, shape ``(n_queries,)``, in ``0 .. n_clusters - 1``: the number of the query's photograph among
            those that are drawn.
        weights: float64, shape ``(n_queries,)``, positive: the weight of a query in a mean. All 1, except where
            groups of unequal size have equal weight (folds, SugarCrepe's categories).
        n_clusters: Photographs of the corpus that queries can belong to. Draws are over all of them, also those without
            a query here, so that every protocol and slice of one corpus shares the same draws.
    """

    labels: NDArray[np.int64]
    weights: NDArray[np.float64]
    n_clusters: int

    @classmethod
    def of(cls, labels: ArrayLike, drawn: SamplingFrame | None = None, weights: ArrayLike | None = None) -> Clusters:
        """The clusters of some labels, checked.

        Args:
            labels: Integers, shape ``(n_queries,)``.
            drawn: Clusters of the corpus; left out, one more than the highest label.
            weights: Positive, shape ``(n_queries,)``; left out, all 1.

        Raises:
            ValueError: No labels, not integers, not one axis, not among those that are drawn, or weights that do not
                fit.

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
        """Queries per cluster, shape ``(n_clusters,)``; zero for an image that no query belongs to."""
        return np.bincount(self.labels, minlength=self.n_clusters)

    @cached_property
    def totals(self) -> NDArray[np.float64]:
        """Sum of the weights of each cluster's queries, shape ``(n_clusters,)``."""
        sums = np.bincount(self.labels, weights=self.weights, minlength=self.n_clusters)
        return sums.astype(np.float64)

    @cached_property
    def n_occupied(self) -> int:
        """Clusters with at least one query: the number of independent units."""
        return int(np.count_nonzero(self.sizes))

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """The share of the whole weight that each cluster holds, shape ``(n_clusters,)``."""
        shares: NDArray[np.float64] = self.totals / self.totals.sum()
        return shares

    @cached_property
    def n_effective(self) -> float:
        """Kish's effective number of clusters, ``1 / sum(w_i^2)`` of the shares of the weight: all equal, their number.

        0 without queries.

        Examples:
            >>> Clusters.of([0, 1, 2, 3]).n_effective
            4.0
            >>> round(Clusters.of([0] * 50 + [1, 2, 3, 4, 5, 6, 7, 8, 9]).n_effective, 2)
            1.39
        """
        return kish(self.totals) if self.n_queries else 0.0

    @cached_property
    def largest_share(self) -> float:
        """The share of the whole weight that the heaviest cluster holds, in 0..1."""
        return float(self.shares.max())

    def only(self, queries: NDArray[np.bool_]) -> Clusters:
        """The clusters of some of the queries. The corpus has as many clusters as before, so that draws are shared.

        Examples:
            >>> Clusters.of([0, 0, 2], 4).only(np.array([True, False, True])).sizes.tolist()
            [1, 0, 1, 0]
        """
        return replace(self, labels=self.labels[queries], weights=self.weights[queries])

    def mean(self, values: NDArray[np.float64]) -> float:
        """Weighted mean over the queries of one row of values, shape ``(n_queries,)``."""
        return float(np.average(values, weights=self.weights))

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum of each cluster's values, shape ``(n_rows, n_queries)``, every query times its weight.

        The result is float64 of the shape ``(n_clusters, n_rows)``: one column per row of ``values``.

        Examples:
            >>> Clusters.of([0, 0, 1]).sums(np.array([[1.0, 0.0, 1.0], [3.0, 4.0, 5.0]])).tolist()
            [[1.0, 7.0], [1.0, 5.0]]
        """
        columns = np.empty((self.n_clusters, len(values)))
        for row, value in enumerate(values):
            columns[:, row] = np.bincount(self.labels, weights=value * self.weights, minlength=self.n_clusters)
        return columns


def kish(weights: NDArray[np.float64]) -> float:
    """Return Kish's effective number of what has these weights, not all 0.

    Examples:
        >>> kish(np.array([1.0, 1.0, 1.0])), kish(np.array([3.0, 1.0]))
        (3.0, 1.6)
    """
    return float(weights.sum() ** 2 / np.square(weights).sum())


def known_queries(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which queries have a value, shape ``(n_queries,)``: NaN means none, alone or among several numbers.

    Examples:
        >>> known_queries(np.array([[1.0, 2.0], [3.0, np.nan]])).tolist()
        [True, False]
    """
    return np.logical_not(np.isnan(values.reshape(len(values), -1)).any(axis=1))


def checked_values(values: ArrayLike, clusters: Clusters) -> NDArray[np.float64]:
    """Per-query values as float64 of shape ``(n_rows, n_queries)``; one row is given its axis.

    Raises:
        ValueError: Another number of queries than the clusters have, or a value that is not finite.

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
