"""Transforms of vectors: rounding, quantisation, centring, whitening, truncation, pooling.

Every function takes float32 rows of unit norm and returns float32 rows that a scorer can use. Parameters that come from
vectors (means, covariance, axes, ranges) may be applied to other vectors: see ``ablations.cross_fitted``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage

from capim.store.vectors import Ragged, unit_vectors
from capim.tasks.analyses.analysis import Matrix

Change: TypeAlias = Callable[[Matrix, Matrix], tuple[Matrix, Matrix]]
"""Function from images and captions to changed images and captions."""
BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "int8": 1.0, "binary": 1 / 8}
"""Bytes of one stored component."""
ROUNDED = ("float32", "float16", "bfloat16")
QUANTISED = ("int8", "binary")


def rounded(vectors: Matrix, kind: str) -> Matrix:
    """Return the vectors rounded to ``float32``, ``bfloat16`` or ``float16`` (half to even), as float32.

    bfloat16 is float32 without its lower 16 bits.

    Examples:
        >>> rounded(np.float32([[1.00390625, 0.1]]), "bfloat16").tolist()
        [[1.0, 0.10009765625]]
        >>> rounded(np.float32([[0.1]]), "float16").tolist()
        [[0.0999755859375]]
    """
    if kind == "float32":
        return vectors
    if kind == "float16":
        return vectors.astype(np.float16).astype(np.float32)
    bits = np.ascontiguousarray(vectors).view(np.uint32)
    even = (bits >> 16) & 1
    return ((bits + 0x7FFF + even) & np.uint32(0xFFFF0000)).view(np.float32)


def stored(vectors: Matrix, kind: str) -> Matrix:
    """Return the vectors as read from a store of this type: rounded, normalised again (``EmbeddingStore.vectors``).

    Examples:
        >>> rows = np.float32([[0.6, 0.8]])
        >>> bool(abs(np.linalg.norm(rounded(rows, "float16")) - 1) > 1e-5)
        True
        >>> bool(abs(np.linalg.norm(stored(rows, "float16")) - 1) < 1e-6)
        True
    """
    return unit_vectors(rounded(vectors, kind))


def quantised(vectors: Matrix, kind: str, *, reach: NDArray[np.float32]) -> Matrix:
    """Return the vectors quantised to ``int8`` or ``binary``, as float32 with dot products that rank the same way.

    Args:
        vectors: Shape ``(n, dim)``.
        kind: ``int8``: each component in 255 steps from ``-reach`` to ``reach``, clipped beyond.
            ``binary``: the sign; the dot product is then the dimension minus twice the Hamming distance.
        reach: From :func:`reach`.

    Examples:
        >>> quantised(np.float32([[0.5, -0.25]]), "int8", reach=np.float32([0.5, 0.5])).tolist()
        [[0.5, -0.25196850299835205]]
        >>> quantised(np.float32([[0.5, -0.25]]), "binary", reach=np.float32([0.5, 0.5])).tolist()
        [[1.0, -1.0]]
    """
    if kind == "binary":
        return np.where(vectors > 0, np.float32(1), np.float32(-1))
    step = np.where(reach > 0, reach, np.float32(1)) / np.float32(127)
    return np.asarray(np.clip(np.rint(vectors / step), -127, 127) * step, dtype=np.float32)


def reach(images: Matrix, captions: Matrix) -> NDArray[np.float32]:
    """Return the largest absolute value of each component over images and captions, shape ``(dim,)``."""
    return np.asarray(np.maximum(np.abs(images).max(axis=0), np.abs(captions).max(axis=0)))


def normalised(vectors: Matrix) -> Matrix:
    """Return rows of unit norm; a zero row becomes the first unit vector.

    Examples:
        >>> normalised(np.float32([[3, 4], [0, 0]])).round(1).tolist()
        [[0.6000000238418579, 0.800000011920929], [1.0, 0.0]]
    """
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(norms > 0, norms, 1)
    unit[norms[:, 0] == 0, 0] = 1
    return unit.astype(np.float32)


def both(change: Callable[[Matrix], Matrix]) -> Change:
    """Return the same change of images and of captions."""
    return lambda images, captions: (change(images), change(captions))


def centring(images: Matrix, captions: Matrix) -> Change:
    """Return a change to unit rows after subtracting the mean of each modality here, which closes the modality gap."""
    means = [part.mean(axis=0, dtype=np.float64).astype(np.float32) for part in (images, captions)]

    def centred(images: Matrix, captions: Matrix) -> tuple[Matrix, Matrix]:
        return normalised(images - means[0]), normalised(captions - means[1])

    return centred


def whitening(images: Matrix, captions: Matrix) -> Change:
    """Return a change to unit rows after centring each modality and whitening with the joint covariance here.

    The covariance is shrunk towards the identity by a hundredth of its mean variance, so that directions with little
    variance are not amplified.
    """
    means = [part.mean(axis=0, dtype=np.float64) for part in (images, captions)]
    stacked = np.concatenate([images - means[0], captions - means[1]])
    covariance = stacked.T @ stacked / len(stacked)
    values, axes = np.linalg.eigh(covariance + 0.01 * np.trace(covariance) / len(covariance) * np.eye(len(covariance)))
    least = values.max() * np.finfo(np.float64).eps or 1.0  # all vectors may be equal
    spherical = axes / np.sqrt(np.maximum(values, least))

    def whitened(images: Matrix, captions: Matrix) -> tuple[Matrix, Matrix]:
        first, second = images - means[0], captions - means[1]
        return normalised((first @ spherical).astype(np.float32)), normalised((second @ spherical).astype(np.float32))

    return whitened


def principal_axes(images: Matrix, captions: Matrix) -> Matrix:
    """Return the principal axes of both modalities together, uncentred, by decreasing variance, ``(dim, dim)``."""
    stacked = np.concatenate([images, captions]).astype(np.float64)
    _, axes = np.linalg.eigh(stacked.T @ stacked)
    return np.ascontiguousarray(axes[:, ::-1], dtype=np.float32)


def truncated(vectors: Matrix, dim: int) -> Matrix:
    """Return the first ``dim`` components as unit rows (Kusupati et al., Matryoshka Representation Learning, 2022)."""
    return normalised(vectors[:, :dim])


def token_trees(vectors: Ragged, *, like_colpali_engine: bool = False) -> list[NDArray[np.float64]]:
    """Return Ward's tree over the vectors of each item, as SciPy's linkage matrix; empty for an item with one vector.

    The distance of two vectors is one minus their cosine. ``like_colpali_engine``: it is the Euclidean distance between
    the two rows of the matrix of these distances, as in colpali_engine's ``HierarchicalTokenPooler`` and in the code of
    the paper of :func:`pooled`.
    """
    trees = []
    for item in vectors:
        wide = item.astype(np.float32)
        apart = 1 - wide @ wide.T
        if like_colpali_engine:
            rows = apart.astype(np.float64)
            squares = np.einsum("ij,ij->i", rows, rows)
            apart = np.sqrt(np.maximum(squares[:, None] + squares - 2 * rows @ rows.T, 0))
        upper = np.maximum(apart[np.triu_indices(len(item), 1)], 0)
        trees.append(linkage(upper, method="ward") if len(item) > 1 else np.empty((0, 4)))
    return trees


def pooled(vectors: Ragged, trees: Sequence[NDArray[np.float64]], factor: int) -> Ragged:
    """Return the vectors of each item merged to about ``1 / factor`` of their number: unit means of Ward clusters.

    Clavié et al., Reducing the Footprint of Multi-Vector Retrieval with Minimal Performance Impact via Token Pooling,
    2024 (arXiv 2409.14683), section 3: hierarchical clustering over cosine distances.

    ``trees`` are those of :func:`token_trees`, which serve every factor.
    """
    items = []
    for item, tree in zip(vectors, trees, strict=True):
        n = max(1, len(item) // factor)
        if n == len(item):
            items.append(item)
            continue
        label = fcluster(tree, n, criterion="maxclust") - 1
        sums = np.zeros((int(label.max()) + 1, item.shape[1]), dtype=np.float32)
        np.add.at(sums, label, item.astype(np.float32))
        items.append(normalised(sums))
    return Ragged.of(items, vectors.ords)
