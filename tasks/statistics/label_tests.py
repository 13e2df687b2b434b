"""Tests of a slice against the rest, within one model: is its mean further off than that of a random slice of its size?

Under the null hypothesis the label says nothing about the values. A label of images (a category) is permuted among the
images; a label of captions (a word) among the captions of each image, so that only images with captions of both kinds
count. p-values from the bootstrap of two slices are not valid where a slice is small or nearly all of it hits: with two
queries at R@1 .95 they reject three times in four.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from tasks.statistics.clusters import Clusters
from tasks.statistics.resampling import Resampling

_CELLS = 1 << 22  # of one block of permuted sums
_ROUNDING = 1e-9
_STREAM = 3  # of the seed: the bootstrap and the sign flips have the first two


def label_tests(
    values: NDArray[np.float64],
    labels: NDArray[np.bool_],
    among: NDArray[np.bool_],
    clusters: Clusters,
    resampling: Resampling,
) -> NDArray[np.float64]:
    """Two-sided p-values of the difference between labelled and other queries, shape ``(n_encoders, n_labels)``.

    NaN where there is nothing to permute: all or none of the queries have the label, or no image has captions of both
    kinds with different values.

    Args:
        values: Per-query values, shape ``(n_encoders, n_queries)``.
        labels: Which queries have each label, shape ``(n_labels, n_queries)``.
        among: The queries of which the labels are known, shape ``(n_queries,)``; the others take no part.
        clusters: Of the queries.
        resampling: ``permutations`` and ``seed`` of the permutations of images.

    Examples:
        Of five images the one with the label is the only miss: one slice of one image in five is as far off.

        >>> label = np.array([[True, False, False, False, False]])
        >>> everything = np.ones(5, dtype=bool)
        >>> values = np.array([[0.0, 1.0, 1.0, 1.0, 1.0]])
        >>> label_tests(values, label, everything, Clusters.of(range(5)), Resampling(permutations=9_999)).round(1)
        array([[0.2]])
    """
    labels = labels & among
    weight = clusters.sums(among[None].astype(np.float64))[:, 0]
    labelled = clusters.sums(labels.astype(np.float64)).T
    p_values = np.full((len(values), len(labels)), np.nan)
    of_images = (np.isclose(labelled, 0) | np.isclose(labelled, weight)).all(axis=1)
    if of_images.any():
        occupied = np.flatnonzero(weight)
        has = labelled[of_images][:, occupied] > 0
        sums = clusters.sums(values * among)[occupied]
        p_values[:, of_images] = _permuted_images(sums, weight[occupied], has, resampling).T
    for at in np.flatnonzero(~of_images):
        p_values[:, at] = _permuted_within_images(values[:, among], labels[at, among], clusters.labels[among])
    return p_values


def _permuted_images(
    sums: NDArray[np.float64], weight: NDArray[np.float64], has: NDArray[np.bool_], resampling: Resampling
) -> NDArray[np.float64]:
    """p-values, shape ``(n_labels, n_encoders)``, by random orders of the images: the first of them get the label.

    All labels share the orders. ``sums`` and ``weight`` are those of each image's values and queries.
    """
    columns = np.column_stack([sums, weight])
    total, sizes = columns.sum(axis=0), has.sum(axis=1)
    p_values = np.full((len(has), sums.shape[1]), np.nan)
    tested = np.flatnonzero((sizes > 0) & (sizes < len(weight)))
    if not len(tested):
        return p_values
    observed = np.stack([_distance(columns[has[label]].sum(axis=0), total) for label in tested])
    extreme, n_orders = np.zeros(observed.shape, dtype=np.int64), 0
    for order in _orders(len(weight), columns.shape[1], resampling):
        first = np.cumsum(columns[order], axis=1)[:, sizes[tested] - 1]  # (orders, labels, encoders and weight)
        extreme += (_distance(first, total) >= observed - _ROUNDING).sum(axis=0)
        n_orders += len(order)
    p_values[tested] = (extreme + 1) / (n_orders + 1)
    return p_values


def _distance(inside: NDArray[np.float64], total: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far the means inside and outside are apart, from sums whose last column is the number of queries."""
    outside = total - inside
    distance: NDArray[np.float64] = np.abs(inside[..., :-1] / inside[..., -1:] - outside[..., :-1] / outside[..., -1:])
    return distance


def _orders(n: int, n_columns: int, resampling: Resampling) -> Iterator[NDArray[np.intp]]:
    """Random orders of ``n`` images, shape ``(at most so many that their sums fit a block, n)``."""
    rows = max(1, _CELLS // (n * n_columns))
    generator = np.random.default_rng([resampling.seed, _STREAM])
    for start in range(0, resampling.permutations, rows):
        count = min(rows, resampling.permutations - start)
        yield np.argsort(generator.random((count, n)), axis=1)


def _permuted_within_images(
    values: NDArray[np.float64], has: NDArray[np.bool_], image: NDArray[np.int64]
) -> NDArray[np.float64]:
    """p-values, shape ``(n_encoders,)``, from the exact mean and variance over all permutations within images.

    The test of Cochran, Mantel and Haenszel with images as strata: of ``n`` captions of an image ``k`` have the label;
    their sum has the mean ``k * m`` and the variance ``k (n - k) / (n - 1) * v``, with ``m`` and ``v`` the mean and
    the variance of the image's values.
    """
    _, stratum = np.unique(image, return_inverse=True)
    n = np.bincount(stratum).astype(np.float64)
    k = np.bincount(stratum, weights=has)
    p_values = np.full(len(values), np.nan)
    for row, value in enumerate(values):
        mean = np.bincount(stratum, weights=value) / n
        spread = np.bincount(stratum, weights=np.square(value - mean[stratum])) / n
        variance = float((k * (n - k) / np.maximum(n - 1, 1) * spread).sum())
        if variance > _ROUNDING:
            z = abs(float(value[has].sum() - (k * mean).sum())) / math.sqrt(variance)
            p_values[row] = 2 * float(ndtr(-z))
    return p_values
