"""Which items go through the model together."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NOMINAL_TOKENS = 32  # a batch size for captions means captions of so many tokens
_MOST = 8  # times the batch size: a batch of very short captions does not grow beyond that
_PADDING = 8  # a caption joins a batch if it is shorter than the longest one by no more than an eighth
_PIECES = re.compile(r"[a-zA-Z]{1,12}|[^\W\d]{1,3}|\S")


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
        by_length: A batch is filled up to a number of tokens, not of captions, and ends early where captions become
            shorter: hardly anything is computed for padding. False: every batch has ``batch_size`` captions.

    Examples:
        >>> caption_batches(["a red bus", "x " * 99, "a dog"], 1, by_length=True)
        [[1], [0], [2]]
        >>> caption_batches(["a red bus", "x " * 99, "a fat dog"], 2, by_length=True)
        [[1], [0, 2]]
        >>> caption_batches(["a red bus", "x " * 99, "a dog"], 2, by_length=False)
        [[1, 0], [2]]
    """
    tokens = [_estimated_tokens(text) for text in texts]
    order = sorted(range(len(texts)), key=lambda i: (-tokens[i], i))
    batches: list[list[int]] = []
    start = 0
    while start < len(order):
        batch = order[start : start + batch_size]
        if by_length:
            longest = tokens[order[start]]
            size = min(max(1, batch_size * NOMINAL_TOKENS // longest), _MOST * batch_size)
            batch = [i for i in order[start : start + size] if tokens[i] >= longest - longest // _PADDING]
        batches.append(batch)
        start += len(batch)
    return batches


def _estimated_tokens(text: str) -> int:
    """Roughly what a subword tokenizer makes of a caption, and two special tokens.

    A token for each Latin word of up to twelve letters, for three letters of another script, for every digit and mark:
    for English within a token of CLIP's own count, at a fraction of its cost.

    Examples:
        >>> _estimated_tokens("Two dogs play."), _estimated_tokens("一只红色的公共汽车")
        (6, 5)
    """
    return len(_PIECES.findall(text)) + 2
