"""Move and join prepared batches; turn features into checked, normalised embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capim.store.errors import WorkError
from capim.store.types import Embeddings, EncoderSpec, Precision
from capim.store.vectors import offsets_of
from capim.tasks.encoders.encoder import Inputs, Prepared, joined_layouts

DTYPES: dict[Precision, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def as_tensor(values: Any) -> Tensor:
    """Return torch's view of the result of a library or a user's function, also of a reversed or big-endian array.

    Raises:
        TypeError, ValueError, RuntimeError: If it is not an array of numbers.
    """
    if isinstance(values, np.ndarray):
        values = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
    return torch.as_tensor(values)


def move(inputs: Inputs, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Return inputs on the device, floating tensors in the model's type; from pinned memory the copy is asynchronous.

    A list of tensors, from :func:`rows_of_items`, becomes one tensor again.
    """
    moved: dict[str, Any] = dict(inputs)
    for name, value in inputs.items():
        tensor = torch.cat(value) if isinstance(value, list) and value and isinstance(value[0], Tensor) else value
        if isinstance(tensor, Tensor):
            to = dtype if tensor.is_floating_point() else tensor.dtype
            moved[name] = tensor.to(device=device, dtype=to, non_blocking=tensor.is_pinned())
    return moved


def rows_of_items(inputs: Mapping[str, Any], n_items: int) -> dict[str, Any]:
    """Return the inputs with one entry per item: patches of all images in one tensor become a list of one per image.

    Processors that keep the aspect ratio return ``image_grid_thw``, shape ``(n_images, 3)``: the patches of each image.
    """
    grid = inputs.get("image_grid_thw")
    counts = [] if grid is None else grid.prod(dim=1).tolist()
    return {
        name: list(value.split(counts)) if counts and name == "pixel_values" and len(value) != n_items else value
        for name, value in inputs.items()
    }


def join(parts: Sequence[Prepared], *, pinned: bool) -> Prepared:
    """Join several prepared batches, at least one, in order; tensors must agree in all but the first axis.

    ``pinned`` puts the tensors in pinned memory, so that copying them to a GPU is asynchronous.
    """
    inputs: dict[str, Any] = dict(parts[0].inputs)
    for name, first in parts[0].inputs.items():
        values: list[Any] = [part.inputs[name] for part in parts]
        if isinstance(first, Tensor):
            shape = (sum(len(value) for value in values), *first.shape[1:])
            out = torch.empty(shape, dtype=first.dtype, pin_memory=True) if pinned else None
            inputs[name] = first if len(values) == 1 and not pinned else torch.cat(values, out=out)
        elif first is not None and not isinstance(first, str | int):
            inputs[name] = list(chain.from_iterable(values))
    return replace(
        parts[0],
        inputs=inputs,
        n_tokens=np.concatenate([part.n_tokens for part in parts]),
        truncated=np.concatenate([part.truncated for part in parts]),
        layouts=joined_layouts(parts),
    )


class Uploads:
    """Copies of the next batch to a CUDA device on a separate stream, while the model computes the present one."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._stream = torch.cuda.Stream(self._device) if self._device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def begin(self, prepared: Prepared) -> Prepared:
        """Return the batch with its tensors on the device, once :meth:`finish` was called; unchanged on other devices.

        A batch that does not fit stays on the CPU: the forward pass copies the part that it can take.
        """
        if self._stream is None:
            return prepared
        try:
            with torch.cuda.stream(self._stream):
                inputs = {
                    name: value.to(self._device, non_blocking=value.is_pinned()) if isinstance(value, Tensor) else value
                    for name, value in prepared.inputs.items()
                }
        except torch.OutOfMemoryError:
            return prepared
        return replace(prepared, inputs=inputs)

    def finish(self) -> None:
        """Let the model wait for all started copies."""
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)


def unit_embeddings(
    features: Tensor, prepared: Prepared, spec: EncoderSpec, *, keep: Tensor | None = None
) -> Embeddings:
    """Return unit vectors from unnormalised features of any type, on any device.

    Args:
        features: Shape ``(n, dim)``, or with ``keep`` ``(n, longest, dim)``: multi-vectors.
        prepared: The items.
        spec: Spec of the model.
        keep: Shape ``(n, longest)``, False for padding, which is dropped and never stored as zeros.

    Raises:
        WorkError: If a feature is NaN or infinite, a vector is zero, an item keeps no vector, or the shape is wrong.
    """
    expected = (len(prepared), *(() if keep is None else keep.shape[1:]), spec.dim)
    if tuple(features.shape) != expected:
        raise WorkError(
            f"encoder {spec.name!r}: {prepared.modality} features have shape {tuple(features.shape)}, expected "
            f"{expected}; is dim = {spec.dim} right for {spec.checkpoint}?"
        )
    vectors, offsets = features.detach().to(dtype=torch.float32).cpu(), None
    if keep is not None:
        kept = keep.cpu().bool()
        vectors, counts = vectors[kept], kept.sum(dim=1)
        offsets = offsets_of(counts.numpy())
    norms = torch.linalg.vector_norm(vectors, dim=1)
    values = (vectors / norms[:, None]).numpy()
    if keep is not None:  # NaN for an item with any zero vector, or without vectors
        norms = torch.segment_reduce(torch.where(norms == 0, torch.nan, norms), "mean", lengths=counts)
    bad = np.flatnonzero(~(torch.isfinite(norms) & (norms > 0)).numpy())
    if bad.size:
        raise WorkError(
            f"encoder {spec.name!r} gave a vector that is NaN, infinite or zero for {bad.size} of {len(prepared)} "
            f"{prepared.modality}s, first at position {int(bad[0])} of its batch; this batch was not stored. "
            f"The precision is {spec.precision}: try --precision float32, or run: capim check {spec.name}"
        )
    return Embeddings(
        values=values,
        norms=norms.numpy(),
        n_tokens=prepared.n_tokens,
        truncated=prepared.truncated,
        offsets=offsets,
        layouts=prepared.layouts,
    )
