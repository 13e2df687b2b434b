"""Fixed dimensional encodings: one vector per item whose dot product estimates MaxSim.

MUVERA: Multi-Vector Retrieval via Fixed Dimensional Encodings, Dhulipala et al., 2024 (arXiv 2405.19504), section 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from capim.store.ragged import Ragged
from capim.tasks.diagnosis.vectors import Matrix

_ITEMS_AT_ONCE = 64


@dataclass(frozen=True, kw_only=True)
class FixedEncoding:
    """One choice of the random partitions and projections; those of equal fields are equal.

    In every repetition, ``planes`` random hyperplanes part the space (SimHash). A query's encoding holds the sum of
    its vectors in each part, an item's their mean; a part that an item has no vector in gets the one whose side of the
    planes differs least (the first of several). Each of these is projected to ``inner`` random signs.

    Attributes:
        repetitions: Independent partitions, whose encodings stand one after the other.
        planes: Hyperplanes of one partition: it has ``2 ** planes`` parts.
        inner: Components that every part is projected to; None keeps all.
        final: Components that the whole is projected to by a count sketch (section 2, final projections); None: not.
    """

    repetitions: int
    planes: int
    inner: int | None
    final: int | None = None
    seed: int = 0

    def of_queries(self, vectors: Ragged) -> Matrix:
        """Encodings of queries, float32, shape ``(n_queries, n_components)``."""
        return self._encoded(vectors, items=False)

    def of_items(self, vectors: Ragged) -> Matrix:
        """Encodings of items, float32, shape ``(n_items, n_components)``.

        The dot product with a query's, which is divided by ``repetitions`` here, estimates their MaxSim.
        """
        return self._encoded(vectors, items=True) / np.float32(self.repetitions)

    def _encoded(self, vectors: Ragged, *, items: bool) -> Matrix:
        dim = vectors.values.shape[1]
        rng = np.random.default_rng(self.seed)
        normals = rng.standard_normal((self.repetitions, dim, self.planes)).astype(np.float32)
        inner = self.inner or dim
        signs = _signs(rng, self.repetitions, dim, inner) / np.float32(np.sqrt(inner))
        n_components = self.repetitions * 2**self.planes * inner
        sketch = sparse.eye(n_components, dtype=np.float32, format="csr")
        if self.final is not None:
            target = rng.integers(self.final, size=n_components)
            cells = np.arange(n_components), target
            sketch = sparse.csr_matrix((_signs(rng, n_components), cells), (n_components, self.final))
        encoded = np.empty((len(vectors), sketch.shape[1]), dtype=np.float32)
        for start in range(0, len(vectors), _ITEMS_AT_ONCE):
            block = vectors.slice(start, start + _ITEMS_AT_ONCE)
            values = block.values.astype(np.float32)
            parts = [
                _repetition(block, values @ planes > 0, values if self.inner is None else values @ sign, items=items)
                for planes, sign in zip(normals, signs, strict=True)
            ]
            encoded[start : start + len(block)] = np.concatenate(parts, axis=1) @ sketch
        return encoded


def _signs(rng: np.random.Generator, *shape: int) -> Matrix:
    return rng.choice(np.array([-1, 1], np.float32), shape)


def _repetition(block: Ragged, sides: NDArray[np.bool_], projected: Matrix, *, items: bool) -> Matrix:
    """One repetition of a few items or queries: shape ``(n_items, n_parts * n_components)``.

    Args:
        sides: On which side of every plane each vector is, shape ``(n_vectors, planes)``.
        projected: The vectors, projected, shape ``(n_vectors, n_components)``.
        items: Means, and vectors in empty parts; else sums.
    """
    n, n_vectors, n_parts = len(block), len(projected), 2 ** sides.shape[1]
    codes = sides @ (1 << np.arange(sides.shape[1]))
    cells = np.repeat(np.arange(n), block.counts) * n_parts + codes
    sums = sparse.csr_matrix((np.ones(n_vectors, np.float32), (cells, np.arange(n_vectors))), (n * n_parts, n_vectors))
    filled: Matrix = sums @ projected
    if items:
        counts = np.bincount(cells, minlength=n * n_parts)
        filled /= np.maximum(counts, 1)[:, None]
        first = np.full(n * n_parts, -1)
        first[cells[::-1]] = np.arange(n_vectors)[::-1]
        numbers = np.arange(n_parts)
        apart = np.bitwise_count(numbers[:, None] ^ numbers).astype(np.int64)  # planes between two parts
        # of the parts with vectors the nearest, and of several the one whose vector comes first
        far = np.iinfo(np.int64).max
        order = np.where(first < 0, far, first).reshape(n, 1, n_parts)
        order = np.where(order < far, order + apart * (n_vectors + 1), far)
        nearest = order.argmin(axis=2) + np.arange(n)[:, None] * n_parts
        filled = np.where((counts == 0)[:, None], projected[first[nearest.ravel()]], filled)
    return filled.reshape(n, -1)
