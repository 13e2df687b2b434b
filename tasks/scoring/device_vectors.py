"""Vectors that are read window by window, checked, and moved to the device that multiplies them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capim.store.types import Modality
from capim.tasks.scoring.protocols.tasks import ScoringTask

ALIGNED = 16  # vectors of a product, at least: see tasks.scoring.dense
_HASHED = 1 << 15  # rows at a time, on a device other than a CPU


class VectorRows(Protocol):
    """float32 unit vectors of one modality in corpus order: a matrix, or rows that are read when they are indexed."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """Number of vectors, and their components."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Always float32."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> NDArray[np.float32]:
        """Some rows, by a slice or an array of positions."""


def check_vectors(images: VectorRows, captions: VectorRows, tasks: Sequence[ScoringTask]) -> None:
    """Raise ``ValueError`` unless shapes and types fit each other and the tasks; reads no vector."""
    for modality, vectors in (("image", images), ("caption", captions)):
        if len(vectors.shape) != 2 or vectors.dtype != np.float32:
            raise ValueError(
                f"{modality} vectors must be float32 of shape (n, dim), got {vectors.dtype} {vectors.shape}"
            )
        if not len(vectors):
            raise ValueError(f"there are no {modality} vectors; run `capim embed` first")
    if images.shape[1] != captions.shape[1]:
        raise ValueError(
            f"image vectors have {images.shape[1]} dimensions, caption vectors {captions.shape[1]}: "
            "they cannot be of one encoder"
        )
    check_ords(tasks, {"image": len(images), "caption": len(captions)})


def check_ords(tasks: Sequence[ScoringTask], counts: Mapping[Modality, int]) -> None:
    """Raise ``ValueError`` if a task names an image or a caption beyond the embeddings, given how many there are."""
    for modality, n in counts.items():
        for task in tasks:
            if (highest := task.highest_ord(modality)) >= n:
                raise ValueError(
                    f"protocol {task.protocol.id!r} needs {modality} {highest}, but there are embeddings of {n}; "
                    "run `capim embed` to complete the corpus"
                )


def check_values(vectors: NDArray[np.float32], modality: str, first: int) -> None:
    """Raise ``ValueError`` if a vector is zero or not finite; ``first`` is the ord of the first."""
    norms = torch.linalg.vector_norm(torch.from_numpy(np.ascontiguousarray(vectors)), dim=1).numpy()
    for fault, rows in (("not finite", ~np.isfinite(norms)), ("zero", norms == 0)):
        if rows.any():
            at = first + int(np.argmax(rows))
            raise ValueError(f"{int(rows.sum())} {modality} vectors are {fault}, first at ord {at}")


class DeviceVectors(NamedTuple):
    """Vectors of one modality on the device, and which of them repeat an earlier one."""

    vectors: Tensor  # padded with zero rows to at least 16
    first: int  # ord of the first
    n: int
    copies: Tensor  # int64, shape (n_copies,)
    originals: Tensor  # the row that each copy repeats

    def tiles(self, most: int) -> list[DeviceVectors]:
        """Views of ``most`` vectors each, the last of 16 to ``most + 15``; itself if it has no more than that."""
        if self.n <= most:
            return [self]
        found = []
        for start, stop in itertools.pairwise([*range(0, self.n - ALIGNED + 1, most), self.n]):
            own = (self.originals >= start) & (self.copies < stop)
            copies, originals = self.copies[own] - start, self.originals[own] - start
            found.append(DeviceVectors(self.vectors[start:stop], self.first + start, stop - start, copies, originals))
        return found


def loaded(vectors: VectorRows, window: range, modality: str, device: str) -> DeviceVectors:
    """A window of the vectors, read, checked and moved to the device."""
    read = vectors[window.start : window.stop]
    check_values(read, modality, window.start)
    return on_device(read, window.start, device)


def on_device(vectors: NDArray[np.float32], first: int, device: str) -> DeviceVectors:
    """The vectors of the items ``first``, ``first + 1`` … on the device."""
    padded = np.ascontiguousarray(vectors)
    if len(vectors) < ALIGNED:
        padded = np.concatenate([vectors, np.zeros((ALIGNED - len(vectors), vectors.shape[1]), np.float32)])
    moved = torch.from_numpy(padded).to(device)
    repeated = _repeated(vectors, _hashes(moved[: len(vectors)]))
    copies, originals = (torch.from_numpy(rows).to(device) for rows in repeated)
    return DeviceVectors(moved, first, len(vectors), copies, originals)


def _hashes(vectors: Tensor) -> NDArray[np.int64]:
    """An integer per row that is equal for rows that are equal bit for bit, computed where the vectors are."""
    factors = np.random.default_rng(0).integers(1, 1 << 63, size=vectors.shape[1], dtype=np.uint64) | np.uint64(1)
    if vectors.device.type == "cpu":
        words = vectors.numpy().view(np.uint32)
        products = [words[i : i + 1024].astype(np.uint64) @ factors for i in range(0, len(words), 1024)]
        return np.concatenate(products).view(np.int64)
    multipliers = torch.from_numpy(factors.view(np.int64)).to(vectors.device)
    parts = torch.split(vectors.view(torch.int32), _HASHED)
    sums = [(part.long() * multipliers).sum(dim=1) for part in parts]
    return torch.cat(sums).cpu().numpy()


def _repeated(vectors: NDArray[np.float32], hashes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows that repeat an earlier row bit for bit, and those rows."""
    words = np.ascontiguousarray(vectors).view(np.uint32)
    _, first, code = np.unique(hashes, return_index=True, return_inverse=True)
    copies = np.flatnonzero(first[code] != np.arange(len(words)))
    originals = first[code][copies]
    same = (words[copies] == words[originals]).all(axis=1)
    return copies[same], originals[same]
