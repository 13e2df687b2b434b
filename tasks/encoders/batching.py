"""Which items go through the model together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NOMINAL_TOKENS = 32  # a batch size for captions means captions of so many tokens
_MOST = 8  # times the batch size: a batch of very short captions does not grow beyond that


class Batch(NamedTuple):
    """Distinct items of one forward pass.

    Attributes:
        firsts: Where each item appears first in the work.
        places: All positions in the work of each item; several where items are equal.
    """

    firsts: list[int]
    places: list[NDArray[np.int64]]


def group_equal(contents: Sequence[Hashable]) -> tuple[list[int], list[NDArray[np.int64]]]:
    """Positions of equal contents, together.

    Returns:
        For each distinct content, in order of first appearance: where it appears first, and all its positions.

    Examples:
        >>> firsts, places = group_equal(["a", "b", "a"])
        >>> firsts, [p.tolist() for p in places]
        ([0, 1], [[0, 2], [1]])
    """
    places: dict[Hashable, list[int]] = {}
    for position, content in enumerate(contents):
        places.setdefault(content, []).append(position)
    return [p[0] for p in places.values()], [np.asarray(p, dtype=np.int64) for p in places.values()]


def image_batches(n: int, batch_size: int) -> list[list[int]]:
    """Positions 0 to ``n`` in batches, in order; the last one may be smaller.

    Examples:
        >>> image_batches(5, 2)
        [[0, 1], [2, 3], [4]]
    """
    return [list(range(start, min(start + batch_size, n))) for start in range(0, n, batch_size)]


def caption_batches(texts: Sequence[str], batch_size: int, *, by_length: bool) -> list[list[int]]:
    """Positions of captions in batches, longest first.

    Args:
        texts: The captions.
        batch_size: Captions of 32 tokens in one batch.
        by_length: Shorter captions go in larger batches and longer ones in smaller, so that each batch costs about
            the same; False: every batch has ``batch_size`` captions.

    Examples:
        >>> caption_batches(["a red bus", "x" * 500, "a dog"], 1, by_length=True)
        [[1], [0, 2]]
        >>> caption_batches(["a red bus", "x" * 500, "a dog"], 2, by_length=False)
        [[1, 0], [2]]
    """
    tokens = [_estimated_tokens(text) for text in texts]
    order = sorted(range(len(texts)), key=lambda i: (-tokens[i], i))
    batches: list[list[int]] = []
    start = 0
    while start < len(order):
        size = batch_size
        if by_length:
            size = min(max(1, batch_size * NOMINAL_TOKENS // tokens[order[start]]), _MOST * batch_size)
        batches.append(order[start : start + size])
        start += size
    return batches


def _estimated_tokens(text: str) -> int:
    """Roughly what a subword tokenizer makes of a caption: a token for four bytes, and two special ones."""
    return len(text.encode()) // 4 + 2
