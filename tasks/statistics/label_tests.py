"""Tests of a slice against the rest, within one model: is its mean further off than that of a random slice of its size?

Under the null hypothesis the label says nothing about the values: the labels of an image (which of its captions have a
word; all or none of them for a category) might as well belong to another image with as many captions, and within an
image to any of its captions. The sum over labelled queries has an exact mean and variance over these permutations; the
p-value is that of the normal distribution with both (Good 2005, section 3.7), as in the test of Cochran, Mantel and
Haenszel. p-values from the bootstrap of two slices are not valid where a slice is small or nearly all of it hits: with
two queries at R@1 .95 they reject three times in four.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from capim.tasks.statistics.clusters import Clusters

_ROUNDING = 1e-9


def label_tests(
    values: NDArray[np.float64], labels: NDArray[np.bool_], among: NDArray[np.bool_], clusters: Clusters
) -> NDArray[np.float64]:
    """Two-sided p-values of the difference between labelled and other queries, shape ``(n_encoders, n_labels)``.

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
    return 2 * ndtr(-z)
