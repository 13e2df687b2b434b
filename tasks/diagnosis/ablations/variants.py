"""Other forms of the same stored vectors: rounded, quantised, centred, shortened, pooled. Numpy in, numpy out.

Every function takes float32 rows of unit norm and gives float32 rows that a scorer takes as they are; what would be
stored is said by the bytes beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage

from tasks.diagnosis.ablations.embedded import Ragged

Matrix = NDArray[np.float32]

BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "int8": 1.0, "binary": 1 / 8}
"""Bytes of one stored component."""
ROUNDED = ("float32", "float16", "bfloat16")


def rounded(vectors: Matrix, kind: str) -> Matrix:
    """The vectors as ``float32``, ``bfloat16`` or ``float16`` holds them, back in float32. Ties go to even.

    bfloat16 is float32 with its lower 16 bits rounded away.

    Examples:
        >>> rounded(np.float32([[1.00390625, 0.1]]), "bfloat16").tolist()
        [[1.0, 0.10009765625]]
        >>> rounded(np.float32([[0.1]]), "float16").tolist()
        [[0.0999755859375]]
    """
    if kind not in ROUNDED:
        raise ValueError(f"kind must be one of {', '.join(ROUNDED)}, got {kind!r}")
    if kind == "float32":
        return vectors
    if kind == "float16":
        return vectors.astype(np.float16).astype(np.float32)
    bits = np.ascontiguousarray(vectors).view(np.uint32)
    even = (bits >> 16) & 1
    return ((bits + 0x7FFF + even) & np.uint32(0xFFFF0000)).view(np.float32)


def quantised(vectors: Matrix, kind: str, *, reach: NDArray[np.float32]) -> Matrix:
    """The vectors as ``int8`` or ``binary`` holds them, as float32 whose dot products rank as theirs.

    Args:
        vectors: Shape ``(n, dim)``.
        kind: ``int8``: each component in 255 steps from ``-reach`` to ``reach``, beyond which it is cut off.
            ``binary``: the sign, so that the dot product is the dimension less twice the Hamming distance.
        reach: Largest absolute value of each component over images and captions, shape ``(dim,)``.

    Examples:
        >>> quantised(np.float32([[0.5, -0.25]]), "int8", reach=np.float32([0.5, 0.5])).tolist()
        [[0.5, -0.25196850299835205]]
        >>> quantised(np.float32([[0.5, -0.25]]), "binary", reach=np.float32([0.5, 0.5])).tolist()
        [[1.0, -1.0]]
    """
    if kind == "binary":
        return np.where(vectors > 0, np.float32(1), np.float32(-1))
    if kind == "int8":
        step = np.where(reach > 0, reach, np.float32(1)) / np.float32(127)
        return np.asarray(np.clip(np.rint(vectors / step), -127, 127) * step, dtype=np.float32)
    raise ValueError(f"kind must be int8 or binary, got {kind!r}")


def normalised(vectors: Matrix) -> Matrix:
    """Rows of unit norm; a zero row, which has no direction, becomes the first axis.

    Examples:
        >>> normalised(np.float32([[3, 4], [0, 0]])).round(1).tolist()
        [[0.6000000238418579, 0.800000011920929], [1.0, 0.0]]
    """
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(norms > 0, norms, 1)
    unit[norms[:, 0] == 0, 0] = 1
    return unit.astype(np.float32)


def centred(images: Matrix, captions: Matrix) -> tuple[Matrix, Matrix]:
    """Unit rows after each modality's own mean is taken away (the cure for the modality gap)."""
    first, second = (
        normalised(part - part.mean(axis=0, dtype=np.float64).astype(np.float32)) for part in (images, captions)
    )
    return first, second


def whitened(images: Matrix, captions: Matrix) -> tuple[Matrix, Matrix]:
    """Both modalities centred on their own means and made spherical by their joint covariance, then unit rows.

    The covariance is shrunk by a hundredth of its mean variance towards the identity, so that directions without
    spread are not blown up.
    """
    both = [part - part.mean(axis=0, dtype=np.float64) for part in (images, captions)]
    stacked = np.concatenate(both)
    covariance = stacked.T @ stacked / len(stacked)
    values, axes = np.linalg.eigh(covariance + 0.01 * np.trace(covariance) / len(covariance) * np.eye(len(covariance)))
    spherical = axes / np.sqrt(np.maximum(values, np.finfo(np.float64).tiny))
    first, second = (normalised((part @ spherical).astype(np.float32)) for part in both)
    return first, second


def principal_axes(images: Matrix, captions: Matrix) -> Matrix:
    """Directions in which both modalities vary together, not centred, the widest first; shape ``(dim, dim)``."""
    stacked = np.concatenate([images, captions]).astype(np.float64)
    _, axes = np.linalg.eigh(stacked.T @ stacked)
    return np.ascontiguousarray(axes[:, ::-1], dtype=np.float32)


def truncated(vectors: Matrix, dim: int) -> Matrix:
    """The first ``dim`` components as unit rows (Kusupati et al., Matryoshka Representation Learning, 2022)."""
    return normalised(vectors[:, :dim])


def token_trees(vectors: Ragged) -> list[NDArray[np.float64]]:
    """Ward's tree over each item's vectors, as SciPy's linkage matrix; empty for an item of one vector."""
    trees = []
    for start, stop in zip(vectors.offsets[:-1], vectors.offsets[1:], strict=True):
        own = vectors.values[start:stop]
        upper = np.maximum((1 - own @ own.T)[np.triu_indices(len(own), 1)], 0)
        trees.append(linkage(upper, method="ward") if len(own) > 1 else np.empty((0, 4)))
    return trees


def pooled(vectors: Ragged, trees: Sequence[NDArray[np.float64]], factor: int) -> Ragged:
    """Each item's vectors merged to a ``factor``-th of their number: means of Ward clusters, unit rows.

    Clavié et al., Reducing the Footprint of Multi-Vector Retrieval with Minimal Performance Impact via Token Pooling,
    2024 (arXiv 2409.14683), section 3: hierarchical clustering over cosine distances.

    Args:
        vectors: Of all items.
        trees: Of :func:`token_trees`: the same for every factor.
        factor: How many vectors become one, about.
    """
    pieces, lengths = [], [0]
    for start, stop, tree in zip(vectors.offsets[:-1], vectors.offsets[1:], trees, strict=True):
        own = vectors.values[start:stop]
        n = max(1, len(own) // factor)
        if n < len(own):
            label = fcluster(tree, n, criterion="maxclust") - 1
            sums = np.zeros((int(label.max()) + 1, own.shape[1]), dtype=np.float32)
            np.add.at(sums, label, own)
            own = normalised(sums)
        pieces.append(own)
        lengths.append(len(own))
    return Ragged(values=np.concatenate(pieces), offsets=np.cumsum(lengths).astype(np.int64))
