"""What every model looks like from outside: prepare on the CPU, embed on the device.

Preparing (resize, crop, tokenise) is split from the forward pass so that it can run in worker threads while the
device is busy. Whoever is not in a hurry calls :func:`encode_images` and :func:`encode_captions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from store.types import Embeddings, EncoderSpec, Modality

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor, nn

Inputs: TypeAlias = "Mapping[str, Tensor | list[Any] | str]"


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Items of one modality, ready for one forward pass, still on the CPU.

    Attributes:
        modality: Images or captions.
        inputs: What the model takes, by name. Every tensor and list has one row per item; a text is for all of them.
        n_tokens: int32, shape ``(n,)``: tokens the model will see, special tokens included, padding not; for
            images the number of patches, 0 where the model does not say.
        truncated: bool, shape ``(n,)``: the item was longer than the model takes.
    """

    modality: Modality
    inputs: Inputs
    n_tokens: NDArray[np.int32]
    truncated: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.n_tokens)

    def part(self, start: int, stop: int) -> Prepared:
        """Rows ``start:stop``, without copying."""
        rows = slice(start, stop)
        return Prepared(
            modality=self.modality,
            inputs={name: v if isinstance(v, str) else v[rows] for name, v in self.inputs.items()},
            n_tokens=self.n_tokens[rows],
            truncated=self.truncated[rows],
        )


class Encoder(Protocol):
    """A loaded model. Vectors do not depend on batch size, batch neighbours or order.

    Attributes:
        spec: What it was loaded from, resolved.
        device: Where the forward pass runs, e.g. ``cpu`` or ``cuda:0``.
        joins_images: Images prepared in separate calls have tensors of one shape and may share a forward pass.
        pads_to_longest: A batch of captions costs as many tokens as its longest caption, so that batches of
            equal length are cheap; False if every caption is padded to one fixed length.
        modules: The networks that hold the weights; empty where an adapter does not know them.
        forwards: The two forward passes; ``load_encoder(compiled=True)`` puts compiled ones in their place.
    """

    spec: EncoderSpec
    device: str
    joins_images: bool
    pads_to_longest: bool
    modules: tuple[nn.Module, ...]
    forwards: dict[Modality, Callable[..., Any]]

    def prepare_images(self, images: Sequence[Image]) -> Prepared:
        """Preprocess at least one RGB image; thread-safe, CPU only."""
        ...

    def prepare_captions(self, captions: Sequence[str]) -> Prepared:
        """Tokenise at least one caption; thread-safe, CPU only."""
        ...

    def embed(self, prepared: Prepared) -> Embeddings:
        """The forward pass: unit-norm float32 in the order of the input; one thread at a time.

        Raises:
            WorkError: The model gave NaN, infinity or a zero vector, or a wrong dimension.
        """
        ...


def encode_images(encoder: Encoder, images: Sequence[Image]) -> Embeddings:
    """Embeddings of images in one forward pass, in the order given; empty input gives an empty block."""
    return encoder.embed(encoder.prepare_images(images)) if images else empty_embeddings(encoder.spec)


def encode_captions(encoder: Encoder, captions: Sequence[str]) -> Embeddings:
    """Embeddings of captions in one forward pass, in the order given; empty input gives an empty block."""
    return encoder.embed(encoder.prepare_captions(captions)) if captions else empty_embeddings(encoder.spec)


def empty_embeddings(spec: EncoderSpec) -> Embeddings:
    """A block of no items."""
    return Embeddings(
        values=np.empty((0, spec.dim), dtype=np.float32),
        norms=np.empty(0, dtype=np.float32),
        n_tokens=np.empty(0, dtype=np.int32),
        truncated=np.empty(0, dtype=np.bool_),
        offsets=np.zeros(1, dtype=np.int64) if spec.vectors == "multi" else None,
    )


def gather(block: Embeddings, items: NDArray[np.int64]) -> Embeddings:
    """The items at the given positions of a block, in that order; a position may come several times.

    Examples:
        >>> block = Embeddings(values=np.eye(3, dtype=np.float32), norms=np.ones(2, np.float32),
        ...     n_tokens=np.ones(2, np.int32), truncated=np.zeros(2, bool), offsets=np.array([0, 2, 3]))
        >>> gather(block, np.array([1, 0, 1])).offsets.tolist()
        [0, 1, 3, 4]
    """
    counts = block.counts[items]
    ends = np.cumsum(counts)
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    starts = items if block.offsets is None else block.offsets[items]
    rows = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - starts, counts)
    return Embeddings(
        values=block.values[rows],
        norms=block.norms[items],
        n_tokens=block.n_tokens[items],
        truncated=block.truncated[items],
        offsets=None if block.offsets is None else offsets,
    )


def concatenate(blocks: Sequence[Embeddings]) -> Embeddings:
    """Blocks one after the other; at least one."""
    offsets = None
    if blocks[0].offsets is not None:
        offsets = np.concatenate([[0], np.cumsum(np.concatenate([b.counts for b in blocks]))]).astype(np.int64)
    return Embeddings(
        values=np.concatenate([b.values for b in blocks]),
        norms=np.concatenate([b.norms for b in blocks]),
        n_tokens=np.concatenate([b.n_tokens for b in blocks]),
        truncated=np.concatenate([b.truncated for b in blocks]),
        offsets=offsets,
    )
