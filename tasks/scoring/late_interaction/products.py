"""MaxSim of every pair without screening: in float32, in float64, and with the image asking.

The float32 scores are the fallback where bfloat16 is slow, and what screened scores are checked against; the float64
ones are the definition.
"""

from __future__ import annotations

from collections.abc import Callable
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from tasks.scoring.late_interaction.multivectors import (
    PATCHES_AT_ONCE,
    Blocks,
    MultiVectorBlock,
    Ragged,
    alike,
    best_patch,
    checked,
    padded,
    stacked,
    summed,
)
from tasks.scoring.threads import one_thread_each

_CAPTIONS_AT_ONCE = 64  # of one length: their products with as many patches stay in the caches of one processor core


def float32_scores(
    images: Blocks, captions: Ragged, *, n_images: int, device: str, memory_bytes: int
) -> NDArray[np.float32]:
    """Every pair in float32, shape ``(n_captions, n_images)``."""
    tokens = padded(torch.from_numpy(captions.values).to(device))

    def some(patches: Tensor) -> NDArray[np.float32]:
        best = best_patch(tokens, patches).cpu().numpy()
        return summed(best[:, : len(captions.values)], captions.offsets[:-1])

    return _all_images(some, images, captions, n_images, device, memory_bytes)


def float64_scores(images: Blocks, captions: Ragged) -> NDArray[np.float64]:
    """Every pair in float64, shape ``(n_captions, n_images)``, by the definition: slow, for checks."""
    tokens = captions.values.astype(np.float64)
    columns = []
    for _, block in checked(images(), "image", tokens.shape[1]):
        for start, stop in zip(block.offsets[:-1], block.offsets[1:], strict=True):
            best = (tokens @ block.values[start:stop].astype(np.float64).T).max(axis=1)
            columns.append(np.add.reduceat(best, captions.offsets[:-1]))
    return np.stack(columns, axis=1)


def image_as_query(
    images: Blocks, captions: Ragged, *, n_images: int, device: str, memory_bytes: int
) -> NDArray[np.float32]:
    """Sum over an image's patches of the best token of the caption, float32, shape ``(n_captions, n_images)``."""
    groups = []
    for length in np.unique(captions.counts):
        # captions of one length together, their first tokens before their second ones: the best token of many
        # captions is then one elementwise maximum
        of_length = np.flatnonzero(captions.counts == length)
        at_once = _CAPTIONS_AT_ONCE if device == "cpu" else len(of_length)
        for first in range(0, len(of_length), at_once):
            who = of_length[first : first + at_once]
            places = captions.offsets[who] + np.arange(length)[:, None]
            tokens = padded(torch.from_numpy(captions.values[places.ravel()]).to(device))
            groups.append((who, places.shape, tokens.T.contiguous()))

    def some(patches: Tensor) -> NDArray[np.float32]:
        sums = np.zeros((len(patches), captions.n), dtype=np.float32)
        for first in range(0, patches.shape[1], PATCHES_AT_ONCE):
            part = patches[:, first : first + PATCHES_AT_ONCE]
            rows, n_rows = padded(part.flatten(0, 1)), part.shape[0] * part.shape[1]
            for who, shape, tokens in groups:
                products = (rows @ tokens)[:n_rows, : shape[0] * shape[1]]
                sums[:, who] += products.reshape(*part.shape[:2], *shape).amax(dim=2).sum(dim=1).cpu().numpy()
        return sums

    return _all_images(some, images, captions, n_images, device, memory_bytes, repeat=False)


def score_table(shape: tuple[int, int], dtype: DTypeLike, memory_bytes: int) -> NDArray[Any]:
    """An empty table; in a temporary file, gone when it is closed, where it would take more than the memory given."""
    if np.dtype(dtype).itemsize * shape[0] * shape[1] <= memory_bytes:
        return np.empty(shape, dtype=dtype)
    with TemporaryFile() as file:
        return np.memmap(file, dtype=dtype, mode="w+", shape=shape)


def _all_images(
    score: Callable[[Tensor], NDArray[np.float32]],
    images: Blocks,
    captions: Ragged,
    n_images: int,
    device: str,
    memory_bytes: int,
    *,
    repeat: bool = True,
) -> NDArray[np.float32]:
    """A column per image from ``score``.

    Args:
        score: From patches of some images that have equally many, shape ``(k, n_patches, dim)``, to their scores with
            all captions, shape ``(k, n_captions)``.
        images: Multi-vectors of all images.
        captions: Multi-vectors of all captions.
        n_images: How many images are scored.
        device: Where the patches go.
        memory_bytes: Half of it for scores.
        repeat: Whether patches may be repeated up to 16.
    """
    table = score_table((captions.n, n_images), np.float32, memory_bytes // 2)
    with one_thread_each(device) as each:
        for start, block in checked(images(), "image", captions.values.shape[1], expected=n_images):
            groups = alike(block, min(len(block.ords), n_images - start), most=PATCHES_AT_ONCE)

            def one(items: list[int], block: MultiVectorBlock = block) -> NDArray[np.float32]:
                return score(stacked(block, items, repeat=repeat).to(device))

            for items, columns in zip(groups, each(one, groups), strict=True):
                table[:, [start + item for item in items]] = columns.T
    return table
