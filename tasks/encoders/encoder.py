"""The interface of a loaded model: prepare on the CPU, embed on the device.

Preparation (resize, crop, tokenise) is separate from the forward pass so that it can run in worker threads while the
device is busy. :func:`encode_images` and :func:`encode_captions` do both for a few items.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from capim.store.types import Embeddings, EncoderSpec, Modality
from capim.store.vectors import Ragged

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor, nn

    from capim.tasks.encoders.adapters.endpoint import EndpointClient

Inputs: TypeAlias = "Mapping[str, Tensor | list[Any] | str | int | None]"


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Items of one modality, ready for one forward pass, still on the CPU.

    Attributes:
        modality: Images or captions.
        inputs: The model's inputs by name. Tensors and lists have one row per item; any other value applies to all.
        n_tokens: int32, shape ``(n,)``: tokens that the model sees, with special tokens, without padding; for
            images the number of patches; 0 if unknown.
        truncated: bool, shape ``(n,)``: True if the item was longer than the model takes.
        layouts: For each item the meaning of its vectors (``store.vectors``); None: unknown.
    """

    modality: Modality
    inputs: Inputs
    n_tokens: NDArray[np.int32]
    truncated: NDArray[np.bool_]
    layouts: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.n_tokens)

    def part(self, start: int, stop: int) -> Prepared:
        """Return rows ``start:stop``, without copying."""
        rows = slice(start, stop)
        return replace(
            self,
            inputs={name: v if v is None or isinstance(v, str | int) else v[rows] for name, v in self.inputs.items()},
            n_tokens=self.n_tokens[rows],
            truncated=self.truncated[rows],
            layouts=None if self.layouts is None else self.layouts[rows],
        )


def service_of(encoder: Encoder) -> EndpointClient | None:
    """Return the service of an encoder behind a URL; None for a model that runs here."""
    service: EndpointClient | None = getattr(encoder, "service", None)
    return service


class Encoder(Protocol):
    """A loaded model. Vectors do not depend on batch size, batch neighbours or order.

    Attributes:
        spec: The resolved spec.
        device: Device of the forward pass, e.g. ``cpu`` or ``cuda:0``.
        joins_images: True if images prepared in separate calls have tensors of one shape and may share a forward pass.
        pads_to_longest: True if captions are padded to the longest of their batch, so that batches of similar lengths
            are cheap; False if every caption is padded to one fixed length.
        modules: The networks that hold the weights; empty if an adapter does not know them.
        forwards: The two forward passes.
    """

    spec: EncoderSpec
    device: str
    joins_images: bool
    pads_to_longest: bool
    modules: Sequence[nn.Module]
    forwards: dict[Modality, Callable[..., Any]]

    def prepare_images(self, images: Sequence[Image]) -> Prepared:
        """Preprocess at least one RGB image; thread-safe, CPU only."""
        ...

    def prepare_captions(self, captions: Sequence[str]) -> Prepared:
        """Tokenise at least one caption; thread-safe, CPU only."""
        ...

    def embed(self, prepared: Prepared) -> Embeddings:
        """Run the forward pass: unit-norm float32 in the order of the input; one thread at a time.

        Raises:
            WorkError: If a vector is NaN, infinite or zero, or has the wrong dimension.
        """
        ...


def encode_images(encoder: Encoder, images: Sequence[Image]) -> Embeddings:
    """Return embeddings of images from one forward pass, in the given order; no items give no vectors."""
    return encoder.embed(encoder.prepare_images(images)) if images else empty_embeddings(encoder.spec)


def encode_captions(encoder: Encoder, captions: Sequence[str]) -> Embeddings:
    """Return embeddings of captions from one forward pass, in the given order; no items give no vectors."""
    return encoder.embed(encoder.prepare_captions(captions)) if captions else empty_embeddings(encoder.spec)


def empty_embeddings(spec: EncoderSpec) -> Embeddings:
    """Return embeddings of no items."""
    return Embeddings(
        values=np.empty((0, spec.dim), dtype=np.float32),
        norms=np.empty(0, dtype=np.float32),
        n_tokens=np.empty(0, dtype=np.int32),
        truncated=np.empty(0, dtype=np.bool_),
        offsets=np.zeros(1, dtype=np.int64) if spec.vectors == "multi" else None,
    )


def take(embeddings: Embeddings, items: NDArray[np.int64]) -> Embeddings:
    """Return the items at the given positions, in that order; a position may occur several times.

    Examples:
        >>> two = Embeddings(values=np.eye(3, dtype=np.float32), norms=np.ones(2, np.float32),
        ...     n_tokens=np.ones(2, np.int32), truncated=np.zeros(2, bool), offsets=np.array([0, 2, 3]))
        >>> take(two, np.array([1, 0, 1])).offsets.tolist()
        [0, 1, 3, 4]
    """
    vectors = Ragged.from_counts(embeddings.values, embeddings.counts).take(items)
    return Embeddings(
        values=vectors.values,
        norms=embeddings.norms[items],
        n_tokens=embeddings.n_tokens[items],
        truncated=embeddings.truncated[items],
        offsets=None if embeddings.offsets is None else vectors.offsets,
        layouts=None if (layouts := embeddings.layouts) is None else tuple(layouts[item] for item in items.tolist()),
    )


def concatenate(parts: Sequence[Embeddings]) -> Embeddings:
    """Return the items of several parts, at least one, in order."""
    if len(parts) == 1:
        return parts[0]
    vectors = Ragged.concatenate([Ragged.from_counts(part.values, part.counts) for part in parts])
    return Embeddings(
        values=vectors.values,
        norms=np.concatenate([part.norms for part in parts]),
        n_tokens=np.concatenate([part.n_tokens for part in parts]),
        truncated=np.concatenate([part.truncated for part in parts]),
        offsets=None if parts[0].offsets is None else vectors.offsets,
        layouts=joined_layouts(parts),
    )


def joined_layouts(parts: Sequence[Embeddings] | Sequence[Prepared]) -> tuple[str, ...] | None:
    """Return the layouts of several parts, in order; None if they are unknown."""
    known = [part.layouts for part in parts if part.layouts is not None]
    return tuple(chain.from_iterable(known)) if len(known) == len(parts) else None
