"""Multi-vectors as the store yields them: checked, gathered, and grouped for products."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from capim.store.values import Ragged

# a call yields the blocks of one modality in corpus order: of all items, or of the ords that it gets
Blocks: TypeAlias = Callable[..., Iterable[Ragged]]

_CHECKED = 1 << 12  # vectors at a time, which stay in a core's caches


def gather(blocks: Iterable[Ragged]) -> Ragged:
    """All blocks of captions as one, float32.

    Raises:
        ValueError: There is none, an item is missing, or a vector is zero or not finite.
    """
    return Ragged.concatenate(
        block.with_values(block.values.astype(np.float32)) for block in checked(blocks, "caption")
    )


def checked(
    blocks: Iterable[Ragged],
    modality: str,
    dim: int | None = None,
    *,
    ords: Sequence[int] | range | NDArray[np.integer] | None = None,
) -> Iterator[Ragged]:
    """The blocks, in corpus order, after a check that they can be scored.

    ``ords`` are those that are needed, ascending: later ones are left out; by default 0, 1, 2 … as far as they come.

    Raises:
        ValueError: There are fewer, an item is missing, a vector is zero or not finite, or has not ``dim`` components.
    """
    start, expected = 0, None if ords is None else len(ords)
    for block in blocks:
        if expected is not None and start >= expected:
            break
        _check(block, modality, range(start, start + len(block)) if ords is None else ords[start : start + len(block)])
        if dim is not None and block.values.shape[1] != dim:
            raise ValueError(
                f"{modality} vectors have {block.values.shape[1]} dimensions, caption vectors {dim}: "
                "they cannot be of one encoder"
            )
        yield block if expected is None else block.slice(0, expected - start)
        start += len(block)
    if not start:
        raise ValueError(f"there are no {modality} vectors; run `capim embed` first")
    if ords is not None and start < len(ords):
        raise ValueError(
            f"the corpus has {modality} {ords[-1]}, but there are embeddings of {start}; run `capim embed` first"
        )


def _check(block: Ragged, modality: str, ords: Sequence[int] | range | NDArray[np.integer]) -> None:
    gap = np.flatnonzero(block.ords[: len(ords)] != np.asarray(ords))
    empty = np.flatnonzero(block.counts < 1)
    if gap.size or empty.size:
        item = int(ords[int((gap if gap.size else empty)[0])])
        raise ValueError(f"{modality} {item} has no vectors; run `capim embed` to complete the corpus")
    squares = np.concatenate([_squares(block.values[i : i + _CHECKED]) for i in range(0, len(block.values), _CHECKED)])
    for fault, rows in (("not finite", ~np.isfinite(squares)), ("zero", squares == 0)):
        if rows.any():
            item = int(block.ords[int(np.searchsorted(block.offsets, np.argmax(rows), side="right")) - 1])
            raise ValueError(f"{int(rows.sum())} {modality} vectors are {fault}, first in {modality} {item}")


def _squares(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    wide = torch.tensor(vectors).float().numpy()  # torch widens half precision ten times as fast as numpy
    squares: NDArray[np.float32] = np.einsum("nd,nd->n", wide, wide)
    return squares


def groups_of_equal_count(block: Ragged, *, most_vectors: int) -> list[list[int]]:
    """The items of a block in groups of equally many vectors, at most ``most_vectors`` a group where items allow it.

    Examples:
        >>> block = Ragged.from_counts(np.zeros((9, 1)), [2, 3, 2, 2])
        >>> groups_of_equal_count(block, most_vectors=4)
        [[0, 2], [3], [1]]
    """
    groups = []
    for count in np.unique(block.counts):
        items, size = np.flatnonzero(block.counts == count).tolist(), max(1, most_vectors // int(count))
        groups += [items[start : start + size] for start in range(0, len(items), size)]
    return groups
