"""Divide items into batches for the forward pass."""

from __future__ import annotations

import re
import time
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capim.store.errors import WorkError
from capim.store.types import Modality
from capim.tasks.encoders.conformance.inputs import noise_image
from capim.tasks.encoders.encoder import Encoder, Prepared
from capim.tasks.encoders.tensors import is_out_of_memory, join, release

NOMINAL_TOKENS = 32  # a batch size for captions counts captions of this many tokens
_LARGEST = 8  # a batch of very short captions has at most this many times the batch size
_PADDING = 8  # a caption joins a batch if it is at most an eighth shorter than the longest one
_PIECES = re.compile(r"[a-zA-Z]{1,12}|[^\W\d]{1,3}|\S")


class Batch(NamedTuple):
    """Distinct items of one forward pass.

    Attributes:
        firsts: The first position of each item in the work.
        positions: All positions of each item in the work; several where items are equal.
    """

    firsts: list[int]
    positions: list[NDArray[np.int64]]


def group_equal(contents: Sequence[Hashable]) -> tuple[list[int], list[NDArray[np.int64]]]:
    """The first position and all positions of each distinct content, in order of first appearance.

    Examples:
        >>> firsts, positions = group_equal(["a", "b", "a"])
        >>> firsts, [p.tolist() for p in positions]
        ([0, 1], [[0, 2], [1]])
    """
    positions: dict[Hashable, list[int]] = {}
    for position, content in enumerate(contents):
        positions.setdefault(content, []).append(position)
    return [p[0] for p in positions.values()], [np.asarray(p, dtype=np.int64) for p in positions.values()]


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
        by_length: Fill a batch up to a number of tokens instead of captions, and end it where captions become
            shorter, so that there is little padding. False: every batch has ``batch_size`` captions.

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
            size = min(max(1, batch_size * NOMINAL_TOKENS // longest), _LARGEST * batch_size)
            batch = [i for i in order[start : start + size] if tokens[i] >= longest - longest // _PADDING]
        batches.append(batch)
        start += len(batch)
    return batches


def _estimated_tokens(text: str) -> int:
    """A rough estimate of the number of subword tokens of a caption, plus two special tokens.

    One token for each Latin word of up to twelve letters, for three letters of another script, for every digit and
    mark: for English within a token of CLIP's count, at a fraction of its cost.

    Examples:
        >>> _estimated_tokens("Two dogs play."), _estimated_tokens("一只红色的公共汽车")
        (6, 5)
    """
    return len(_PIECES.findall(text)) + 2


# --- Find a good batch size by timing forward passes.


LARGEST = 1024
LARGEST_ON_CPU: dict[Modality, int] = {"image": 64, "caption": 256}  # out of memory kills the process there
_TIMED_SECONDS = 0.5  # short passes are repeated for so long and the fastest counts: the machine may be shared


def find_batch_size(
    encoder: Encoder, modality: Modality, *, start: int = 4, largest: int | None = None, gain: float = 1.05
) -> int:
    """The batch size found by doubling until a batch is no faster, does not fit, or reaches the limit.

    Only the forward pass is timed, on images of 320 x 240 and captions of about 32 tokens, after one warm-up pass.
    Vectors do not depend on the batch size beyond rounding.

    Args:
        encoder: A loaded model.
        modality: Images or captions.
        start: Smallest batch size.
        largest: Largest batch size; None: 1024, on a CPU 64 images or 256 captions.
        gain: A doubled batch must raise the items per second by this factor, or the smaller one is taken.

    Raises:
        WorkError: Not even the smallest batch fits into memory.
    """
    largest = largest or (LARGEST_ON_CPU[modality] if encoder.device == "cpu" else LARGEST)
    best, best_rate, size = 0, 0.0, start
    while size <= largest:
        try:
            rate = _rate(encoder, _batch(encoder, modality, size))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            break
        if rate < gain * best_rate:
            break
        best, best_rate, size = size, rate, 2 * size
    release(encoder.device)
    if not best:
        raise WorkError(
            f"encoder {encoder.spec.name!r}: not even {start} {modality}s fit into the memory of {encoder.device}"
        )
    return best


def _batch(encoder: Encoder, modality: Modality, size: int) -> Prepared:
    if modality == "caption":
        return encoder.prepare_captions([" ".join(["word"] * (NOMINAL_TOKENS - 2))] * size)
    image = noise_image(320, 240, seed=0)
    if not encoder.joins_images:
        return encoder.prepare_images([image] * size)
    return join([encoder.prepare_images([image])] * size, pinned=encoder.device.startswith("cuda"))


def _rate(encoder: Encoder, batch: Prepared) -> float:
    encoder.embed(batch)
    seconds: list[float] = []
    while not seconds or sum(seconds) < _TIMED_SECONDS:
        begun = time.perf_counter()
        encoder.embed(batch)
        seconds.append(time.perf_counter() - begun)
    return len(batch) / min(seconds)
