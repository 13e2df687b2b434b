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

from tasks.scoring.multivectors import Blocks, Ragged, best_patch, checked, padded, summed, vectors_of
from tasks.scoring.threads import one_thread_each


def float32_scores(
    images: Blocks, captions: Ragged, *, n_images: int, device: str, memory_bytes: int
) -> NDArray[np.float32]:
    """Every pair in float32, shape ``(n_captions, n_images)``."""
    tokens = padded(torch.from_numpy(captions.values).to(device))

    def one(patches: Tensor) -> NDArray[np.float32]:
        best = best_patch(tokens, patches).cpu().numpy()
        return summed(best[: len(captions.values)], captions.offsets[:-1])

    return _all_images(one, images, captions, n_images, device, memory_bytes)


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
        who = np.flatnonzero(captions.counts == length)
        places = captions.offsets[who] + np.arange(length)[:, None]
        groups.append((who, places.shape, padded(torch.from_numpy(captions.values[places.ravel()]).to(device))))

    def one(patches: Tensor) -> NDArray[np.float32]:
        sums = np.zeros(captions.n, dtype=np.float32)
        rows = padded(patches)
        for first in range(0, len(patches), 64):
            for who, shape, tokens in groups:
                products = (rows[first : first + 64] @ tokens.T)[: len(patches) - first, : shape[0] * shape[1]]
                sums[who] += products.reshape(-1, *shape).amax(dim=1).cpu().numpy().sum(axis=0)
        return sums

    return _all_images(one, images, captions, n_images, device, memory_bytes, repeat=False)


def score_table(shape: tuple[int, int], dtype: DTypeLike, memory_bytes: int) -> NDArray[Any]:
    """An empty table; in a temporary file, gone when it is closed, where it would take more than the memory given."""
    if np.dtype(dtype).itemsize * shape[0] * shape[1] <= memory_bytes:
        return np.empty(shape, dtype=dtype)
    with TemporaryFile() as file:
        return np.memmap(file, dtype=dtype, mode="w+", shape=shape)


def _all_images(
    one: Callable[[Tensor], NDArray[np.float32]],
    images: Blocks,
    captions: Ragged,
    n_images: int,
    device: str,
    memory_bytes: int,
    *,
    repeat: bool = True,
) -> NDArray[np.float32]:
    """A column per image from ``one(patches)``; ``repeat`` allows repeating patches up to 16."""
    table = score_table((captions.n, n_images), np.float32, memory_bytes // 2)
    with one_thread_each(device) as each:
        for start, block in checked(images(), "image", captions.values.shape[1], expected=n_images):
            count = min(len(block.ords), n_images - start)
            columns = each(lambda item: one(vectors_of(block, item, repeat=repeat).to(device)), range(count))  # noqa: B023
            for item, column in enumerate(columns):
                table[:, start + item] = column
    return table
