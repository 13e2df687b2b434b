"""The matrix of an index space: stored vectors, or classes and composed queries made from them.

A class is the mean of its prompts' vectors, as in zero-shot classification (Radford and others 2021); an image with a
text that changes it is a weighted sum of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from capim.store.vectors import Ragged
from capim.tasks.ranking.layout import IndexSpace


class VectorRows(Protocol):
    """float32 unit vectors of one modality in corpus order: a matrix, or rows that are read when they are indexed."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """Number of vectors, and of their components."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Always float32."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> NDArray[np.float32]:
        """Return some rows, by a slice or an array of positions."""


# a call yields the blocks of one modality in corpus order: of all items, or of the given ords
Blocks: TypeAlias = Callable[..., Iterable[Ragged]]


def blocks_of(space: IndexSpace, images: Blocks, captions: Blocks) -> Blocks:
    """Return the multi-vectors of an index space, numbered by its rows.

    Args:
        space: An index space of stored vectors.
        images: Blocks of all images.
        captions: Blocks of all captions.
    """
    stored = images if space.modality == "image" else captions
    if space.ords is None:
        return stored
    ords = space.ords
    return lambda rows=slice(None): (replace(block, ords=space.rows_of(block.ords)) for block in stored(ords[rows]))


def matrix_of(space: IndexSpace, images: VectorRows, captions: VectorRows) -> VectorRows:
    """Return the vectors of an index space: those of a whole modality as they are given, else in memory.

    Args:
        space: Any index space.
        images: float32 unit vectors in corpus order, shape ``(n_images, dim)``.
        captions: The same for captions.

    Raises:
        ValueError: If a vector is zero or not finite, or if those of a class or a query cancel each other out.
    """
    stored = images if space.modality == "image" else captions
    if space.ords is None:
        return stored
    if space.prompts is not None:
        return _means(stored, space.prompts)
    found = _rows(stored, space.ords)
    check_values(found, space.modality, space.ords)
    if space.references is None:
        return found
    added = images[space.references]
    check_values(added, "image", space.references)
    return _unit(space.text_weight * found.astype(np.float64) + (1 - space.text_weight) * added)


def check_values(vectors: NDArray[np.float32], modality: str, ords: Sequence[int] | NDArray[np.int32]) -> None:
    """Raise ``ValueError`` if a vector is zero or not finite; ``ords`` are the ords of the vectors."""
    norms = torch.linalg.vector_norm(torch.from_numpy(np.ascontiguousarray(vectors)), dim=1).numpy()
    for fault, rows in (("not finite", ~np.isfinite(norms)), ("zero", norms == 0)):
        if rows.any():
            at = int(ords[int(np.argmax(rows))])
            raise ValueError(f"{int(rows.sum())} {modality} vectors are {fault}, first at ord {at}")


def _means(vectors: VectorRows, groups: Sequence[NDArray[np.int32]]) -> NDArray[np.float32]:
    """Return the normalised mean of each group's vectors, float32, shape ``(n_groups, dim)``."""
    ords, ends = np.concatenate(groups), np.cumsum([0, *map(len, groups)])
    read = _rows(vectors, ords)
    check_values(read, "caption", ords)
    return _unit(np.stack([read[start:end].sum(axis=0, dtype=np.float64) for start, end in pairwise(ends)]))


def _rows(vectors: VectorRows, ords: NDArray[np.int32]) -> NDArray[np.float32]:
    """Return the vectors of these ords, without a copy if the ords are consecutive."""
    first, last = int(ords[0]), int(ords[-1])
    return vectors[first : last + 1] if np.array_equal(ords, np.arange(first, last + 1)) else vectors[ords]


def _unit(sums: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return sums of vectors scaled to length 1."""
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    if not (norms > 0).all():
        raise ValueError(f"the vectors of {int((norms == 0).sum())} classes or queries cancel each other out")
    return np.asarray(sums / norms, dtype=np.float32)
