"""An encoder without a model: vectors depend only on the item, and it can run out of memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from PIL import Image

from capim.store.types import Embeddings, EncoderSpec, Modality, VectorKind
from capim.tasks.encoders.encoder import Prepared

if TYPE_CHECKING:
    from torch import nn


class ToyEncoder:
    """Counts its forward passes; runs out of memory above ``capacity`` items."""

    joins_images = True
    pads_to_longest = True
    device = "cpu"
    modules: tuple[nn.Module, ...] = ()

    def __init__(self, *, vectors: VectorKind = "single", capacity: int = 10**6) -> None:
        self.spec = EncoderSpec(name="toy", adapter="toy", checkpoint="toy", revision="1", dim=4, vectors=vectors)
        self.capacity = capacity
        self.forwards: dict[Modality, Callable[..., Any]] = {}
        self.sizes: list[int] = []

    def prepare_images(self, images: Sequence[Image.Image]) -> Prepared:
        return self._prepare("image", [image.tobytes() for image in images])

    def prepare_captions(self, captions: Sequence[str]) -> Prepared:
        return self._prepare("caption", [caption.encode() for caption in captions])

    def _prepare(self, modality: Modality, contents: list[bytes]) -> Prepared:
        return Prepared(
            modality=modality,
            inputs={"contents": contents},
            n_tokens=np.asarray([len(c) % 3 + 1 for c in contents], dtype=np.int32),
            truncated=np.zeros(len(contents), dtype=bool),
        )

    def embed(self, prepared: Prepared) -> Embeddings:
        self.sizes.append(len(prepared))
        if len(prepared) > self.capacity:
            raise MemoryError
        return embed_contents(cast("list[bytes]", prepared.inputs["contents"]), prepared, self.spec)


def embed_contents(contents: list[bytes], prepared: Prepared, spec: EncoderSpec) -> Embeddings:
    """Unit vectors from the hash of each item; as many as its ``n_tokens`` for a multi-vector spec."""
    counts = prepared.n_tokens if spec.vectors == "multi" else np.ones(len(contents), dtype=np.int64)
    rows = [
        np.random.default_rng(int.from_bytes(hashlib.sha256(c + bytes([k])).digest()[:4], "big")).normal(size=spec.dim)
        for c, count in zip(contents, counts, strict=True)
        for k in range(count)
    ]
    values = np.asarray(rows, dtype=np.float32)
    return Embeddings(
        values=values / np.linalg.norm(values, axis=1, keepdims=True),
        norms=np.ones(len(contents), dtype=np.float32),
        n_tokens=prepared.n_tokens,
        truncated=prepared.truncated,
        offsets=np.concatenate([[0], np.cumsum(counts)]) if spec.vectors == "multi" else None,
    )
