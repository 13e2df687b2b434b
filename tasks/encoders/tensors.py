"""Move and join prepared batches; turn features into checked, normalised embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capim.store.errors import WorkError
from capim.store.types import Embeddings, EncoderSpec, Precision
from capim.store.vectors import Ragged
from capim.tasks.encoders.encoder import Inputs, Prepared, joined_layouts

DTYPES: dict[Precision, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def move(inputs: Inputs, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Inputs on the device, floating tensors in the model's type; from pinned memory the copy is asynchronous.

    A list of tensors, which :func:`rows_of_items` made, becomes one tensor again.
    """
    moved: dict[str, Any] = {}
    for name, value in inputs.items():
        if isinstance(value, list) and value and isinstance(value[0], Tensor):
            value = torch.cat(value)  # noqa: PLW2901
        if isinstance(value, Tensor):
            to = dtype if value.is_floating_point() else value.dtype
            moved[name] = value.to(device=device, dtype=to, non_blocking=value.is_pinned())
        else:
            moved[name] = value
    return moved


def rows_of_items(inputs: Mapping[str, Any], n_items: int) -> dict[str, Any]:
    """The inputs with one entry per item: the patches of all images in one tensor become a list of one per image.

    Processors that keep the aspect ratio return ``image_grid_thw``, shape ``(n_images, 3)``: how many patches each has.
    """
    grid = inputs.get("image_grid_thw")
    counts = [] if grid is None else grid.prod(dim=1).tolist()
    return {
        name: list(value.split(counts)) if counts and name == "pixel_values" and len(value) != n_items else value
        for name, value in inputs.items()
    }


def join(parts: Sequence[Prepared], *, pinned: bool) -> Prepared:
    """Several prepared batches, at least one, as one, in their order; tensors must agree in all but the first axis.

    ``pinned`` puts the tensors in pinned memory, so that copying them to a GPU is asynchronous.
    """
    inputs: dict[str, Any] = {}
    for name, first in parts[0].inputs.items():
        values: list[Any] = [part.inputs[name] for part in parts]
        if isinstance(first, Tensor):
            shape = (sum(len(value) for value in values), *first.shape[1:])
            out = torch.empty(shape, dtype=first.dtype, pin_memory=True) if pinned else None
            inputs[name] = first if len(values) == 1 and not pinned else torch.cat(values, out=out)
        else:
            inputs[name] = first if isinstance(first, str) else [item for value in values for item in value]
    return Prepared(
        modality=parts[0].modality,
        inputs=inputs,
        n_tokens=np.concatenate([part.n_tokens for part in parts]),
        truncated=np.concatenate([part.truncated for part in parts]),
        layouts=joined_layouts(parts),
    )


class Uploads:
    """Copies the next batch to a CUDA device on a stream of its own, while the model computes the present one."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._stream = torch.cuda.Stream(self._device) if self._device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def begin(self, prepared: Prepared) -> Prepared:
        """The batch with its tensors on the device, once :meth:`finish` was called; unchanged on other devices.

        A batch that does not fit stays where it is: the forward pass copies the part that it can take.
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
        """Let the model wait for all copies that were begun."""
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)


def dense_embeddings(features: Tensor, prepared: Prepared, spec: EncoderSpec) -> Embeddings:
    """One unit vector per item from unnormalised features of shape ``(n, dim)``, any type, any device.

    Raises:
        WorkError: A feature is NaN or infinite, a vector is zero, or the shape is not ``(n, dim)``.
    """
    expected = (len(prepared), spec.dim)
    if tuple(features.shape) != expected:
        raise WorkError(
            f"encoder {spec.name!r}: {prepared.modality} features have shape {tuple(features.shape)}, expected "
            f"{expected}; is dim = {spec.dim} right for {spec.checkpoint}?"
        )
    vectors = features.detach().to(dtype=torch.float32).cpu()
    norms = torch.linalg.vector_norm(vectors, dim=1)
    _check_norms(norms, prepared, spec)
    return Embeddings(
        values=(vectors / norms[:, None]).numpy(),
        norms=norms.numpy(),
        n_tokens=prepared.n_tokens,
        truncated=prepared.truncated,
    )


def ragged_embeddings(features: Tensor, keep: Tensor, prepared: Prepared, spec: EncoderSpec) -> Embeddings:
    """Many unit vectors per item; padding is dropped, never stored as zeros.

    ``features`` are unnormalised, shape ``(n, longest, dim)``; ``keep``, shape ``(n, longest)``, is False for padding.

    Raises:
        WorkError: As :func:`dense_embeddings`, and if an item keeps no vector.
    """
    if features.ndim != 3 or features.shape[0] != len(prepared) or features.shape[2] != spec.dim:
        raise WorkError(
            f"encoder {spec.name!r}: {prepared.modality} features have shape {tuple(features.shape)}, expected "
            f"({len(prepared)}, vectors, {spec.dim})"
        )
    kept = keep.cpu()
    counts = kept.sum(dim=1)
    vectors = features.detach().to(dtype=torch.float32).cpu()[kept]
    norms = torch.linalg.vector_norm(vectors, dim=1)
    # NaN where any vector of an item is zero, or where it has none
    means = torch.segment_reduce(torch.where(norms == 0, torch.nan, norms), "mean", lengths=counts)
    _check_norms(means, prepared, spec)
    ragged = Ragged.from_counts((vectors / norms[:, None]).numpy(), counts.numpy())
    return Embeddings(
        values=ragged.values,
        norms=means.numpy(),
        n_tokens=prepared.n_tokens,
        truncated=prepared.truncated,
        offsets=ragged.offsets,
        layouts=prepared.layouts,
    )


def _check_norms(norms: Tensor, prepared: Prepared, spec: EncoderSpec) -> None:
    bad = np.flatnonzero(~(torch.isfinite(norms) & (norms > 0)).numpy())
    if bad.size:
        raise WorkError(
            f"encoder {spec.name!r} gave a vector that is NaN, infinite or zero for {bad.size} of {len(prepared)} "
            f"{prepared.modality}s, first at position {int(bad[0])} of its batch; this batch was not stored. "
            f"The precision is {spec.precision}: try --precision float32, or run: capim check {spec.name}"
        )
