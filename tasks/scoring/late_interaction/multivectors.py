"""Ragged multi-vectors as the store hands them out: their form, their checks, and the float32 products over them.

The float32 score of a pair does not depend on which other pairs are computed beside it: token rows are padded to a
multiple of 16 and images repeat vectors up to 16 (see ``tasks.scoring.dense``). Repeating changes no maximum; a
padded 0 would, since it beats every negative similarity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ALIGNED = 16
PATCHES_AT_ONCE = 512  # of several images that have few: every token is then read from memory once for all of them
_CORE_BYTES = 1 << 20  # of a product: stays in the caches of one processor core, and is worth a call
_DEVICE_BYTES = 1 << 28  # of a product on a GPU
_TILED = 64  # rows: a bfloat16 product of 496 takes 1.4 times as long as one of 512


class MultiVectorBlock(Protocol):
    """Some items' vectors."""

    @property
    def ords(self) -> NDArray[np.int32]:
        """Positions in the corpus, ascending."""
        ...

    @property
    def values(self) -> NDArray[np.floating]:
        """All vectors of all items one after the other, unit norm, shape ``(sum of counts, dim)``."""
        ...

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Item ``i`` owns rows ``offsets[i]:offsets[i + 1]``; shape ``(n + 1,)``."""
        ...


Blocks: TypeAlias = Callable[[], Iterable[MultiVectorBlock]]


class Ragged(NamedTuple):
    """Multi-vectors of consecutive items: float32 ``(sum of counts, dim)`` and int64 ``(n + 1,)``."""

    values: NDArray[np.float32]
    offsets: NDArray[np.int64]

    @property
    def n(self) -> int:
        """How many items."""
        return len(self.offsets) - 1

    @property
    def counts(self) -> NDArray[np.int64]:
        """Vectors per item, shape ``(n,)``."""
        return np.diff(self.offsets)

    def only(self, items: NDArray[np.int64]) -> Ragged:
        """Some of the items, in the order given."""
        counts = self.counts[items]
        ends = np.cumsum(counts)
        rows = np.arange(ends[-1]) - np.repeat(ends - counts, counts) + np.repeat(self.offsets[items], counts)
        return Ragged(self.values[rows], np.concatenate([[0], ends]).astype(np.int64))


def gather(blocks: Iterable[MultiVectorBlock], what: str) -> Ragged:
    """All blocks as one.

    Raises:
        ValueError: There is none, an item is missing, or a vector is zero or not finite; ``what`` names the items.
    """
    values, counts = [], []
    for _, block in checked(blocks, what):
        values.append(block.values.astype(np.float32))
        counts.append(np.diff(block.offsets))
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    return Ragged(np.concatenate(values), offsets)


def checked(
    blocks: Iterable[MultiVectorBlock], what: str, dim: int | None = None, *, expected: int | None = None
) -> Iterator[tuple[int, MultiVectorBlock]]:
    """The blocks, each with the ord of its first item, after making sure that they can be scored.

    Args:
        blocks: In corpus order.
        what: What the items are called in a message.
        dim: Components that each vector must have.
        expected: How many items are needed, where that is known; blocks beyond them are not read.

    Raises:
        ValueError: There are fewer, an item is missing, a vector is zero or not finite, or has not ``dim`` components.
    """
    start = 0
    for block in blocks:
        if expected is not None and start >= expected:
            break
        _check(block, what, start)
        if dim is not None and block.values.shape[1] != dim:
            raise ValueError(f"{what}s have {block.values.shape[1]} dimensions, captions {dim}: not one encoder's")
        yield start, block
        start += len(block.ords)
    if not start:
        raise ValueError(f"there are no {what} vectors; embed the corpus first")
    if expected is not None and start < expected:
        raise ValueError(
            f"the corpus has {what} {expected - 1}, but there are embeddings of {start}; embed the rest first"
        )


def _check(block: MultiVectorBlock, what: str, start: int) -> None:
    gap = np.flatnonzero(block.ords != np.arange(start, start + len(block.ords)))
    if gap.size:
        raise ValueError(f"{what} {start + int(gap[0])} has no vectors; finish embedding the corpus first")
    counts = np.diff(block.offsets)
    if (counts < 1).any():
        raise ValueError(f"{what} {start + int(np.argmin(counts))} has no vectors")
    squares = np.einsum("nd,nd->n", block.values, block.values, dtype=np.float32)
    for fault, rows in (("not finite", ~np.isfinite(squares)), ("zero", squares == 0)):
        if rows.any():
            item = int(np.searchsorted(block.offsets, np.argmax(rows), side="right")) - 1
            raise ValueError(f"{int(rows.sum())} {what} vectors are {fault}, first in {what} {start + item}")


def vectors_of(block: MultiVectorBlock, item: int, *, repeat: bool = True) -> Tensor:
    """float32 vectors of one item of a block (position in the block); with ``repeat``, repeated up to 16."""
    values = torch.from_numpy(block.values[block.offsets[item] : block.offsets[item + 1]].astype(np.float32))
    return values.repeat(-(-ALIGNED // len(values)), 1) if repeat and len(values) < ALIGNED else values


def stacked(block: MultiVectorBlock, items: list[int], *, repeat: bool = True) -> Tensor:
    """float32 vectors of items that have equally many, shape ``(k, n, dim)``; ``repeat`` as in :func:`vectors_of`."""
    return torch.stack([vectors_of(block, item, repeat=repeat) for item in items])


def alike(block: MultiVectorBlock, n_items: int, *, most: int) -> list[list[int]]:
    """The first items of a block in groups of equally many vectors, together at most so many: one product for each.

    Examples:
        >>> from types import SimpleNamespace
        >>> alike(SimpleNamespace(offsets=np.array([0, 2, 5, 7, 9])), 4, most=4)
        [[0, 2], [3], [1]]
    """
    counts = np.diff(block.offsets[: n_items + 1])
    groups = []
    for count in np.unique(counts):
        items, size = np.flatnonzero(counts == count).tolist(), max(1, most // int(count))
        groups += [items[start : start + size] for start in range(0, len(items), size)]
    return groups


def padded(tokens: Tensor) -> Tensor:
    """Zero rows up to a multiple of 16; whoever adds them leaves their scores out."""
    return torch.nn.functional.pad(tokens, (0, 0, 0, -len(tokens) % ALIGNED))


def pieces(n: int, *, row_bytes: int, device: torch.device) -> Iterator[slice]:
    """Runs of rows whose product is neither too large for the caches nor too small to be worth a call.

    Examples:
        >>> [(part.start, part.stop) for part in pieces(600, row_bytes=4 * 1030, device=torch.device("cpu"))]
        [(0, 256), (256, 512), (512, 768)]
    """
    at_once = (_CORE_BYTES if device.type == "cpu" else _DEVICE_BYTES) / row_bytes
    step = max(ALIGNED, round(at_once / _TILED) * _TILED)
    for first in range(0, n, step):
        yield slice(first, first + step)


def best_patch(tokens: Tensor, patches: Tensor) -> Tensor:
    """The float32 similarity of every token with the best patch of every image, shape ``(k, n_tokens)``.

    Args:
        tokens: float32, shape ``(n_tokens, dim)``, ``n_tokens`` a multiple of 16.
        patches: float32, shape ``(k, n_patches, dim)``, at least 16 of each image.
    """
    best = torch.empty((len(patches), len(tokens)), dtype=tokens.dtype, device=tokens.device)
    across = patches.flatten(0, 1).T
    for part in pieces(len(tokens), row_bytes=4 * across.shape[1], device=tokens.device):
        products = tokens[part] @ across
        best[:, part] = products.view(-1, *patches.shape[:2]).amax(dim=2).T
    return best


def summed(best: NDArray[np.float32], starts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Sums over the tokens of each caption, in token order; ``best`` may hold a row per image."""
    return np.add.reduceat(best, starts, axis=-1)
