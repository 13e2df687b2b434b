"""Vectors as points of a plane, for a picture of them."""

from __future__ import annotations

import importlib

import numpy as np
from numpy.typing import NDArray

from capim.store.errors import RequestError
from capim.store.planes import Method, Plane

_ROWS = 4096  # at a time


def project(vectors: NDArray[np.float32], method: Method = "pca", *, seed: int = 0) -> Plane:
    """The points of vectors of shape ``(n, dim)`` by one of two methods.

    ``pca``: the two directions of most variance, about the mean; needs ``dim`` squared numbers beside the vectors. Each
    direction points to where its largest component is positive, so that equal vectors give equal points.
    ``umap``: ``umap-learn`` with its own defaults and the cosine, on one thread, from ``seed``; distances between far
    groups mean nothing in it.

    Raises:
        RequestError: ``umap`` is not installed.

    Examples:
        >>> plane = project(np.float32([[0, 0, 3], [0, 1, 3], [0, 2, 3], [0, 3, 3]]))
        >>> plane.points[:, 0].round(1).tolist(), [round(share, 3) for share in plane.shares]
        ([-1.5, -0.5, 0.5, 1.5], [1.0, 0.0])
    """
    if method == "umap":
        return Plane(_umap(vectors, seed), (float("nan"), float("nan")))
    mean = vectors.mean(axis=0, dtype=np.float64)
    covariance = np.zeros((vectors.shape[1],) * 2)
    for start in range(0, len(vectors), _ROWS):
        centred = vectors[start : start + _ROWS] - mean
        covariance += centred.T @ centred
    variances, directions = np.linalg.eigh(covariance)
    axes = directions[:, ::-1][:, :2]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    points = np.zeros((len(vectors), 2), np.float32)
    for start in range(0, len(vectors), _ROWS):
        points[start : start + _ROWS, : axes.shape[1]] = (vectors[start : start + _ROWS] - mean) @ axes
    highest = [*np.maximum(variances[::-1][:2], 0), 0.0][:2]
    total = max(float(variances.sum()), np.finfo(np.float64).tiny)
    return Plane(points, (float(highest[0] / total), float(highest[1] / total)))


def _umap(vectors: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    try:
        umap = importlib.import_module("umap")
    except ImportError as fault:
        raise RequestError("umap is not installed: pip install umap-learn, or take the projection pca") from fault
    points: NDArray[np.float32] = umap.UMAP(metric="cosine", random_state=seed, n_jobs=1).fit_transform(vectors)
    return points.astype(np.float32)
