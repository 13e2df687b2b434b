"""A model in a user's Python file: two plain functions, or the form of COCO-SM.

**Plain functions**: ``encode_images(images)`` and ``encode_captions(texts)`` take a list of RGB images of PIL or of
captions, and return an array of shape ``(n, dim)``; for ``vectors = "multi"`` a list of ``n`` arrays of shape
``(vectors, dim)``. In a suite: ``adapter = "my_model.py"``. See ``docs/own_model.md``.

**COCO-SM**: the file defines ``model``, ``embedding_dim``, ``image_forward_fn(model, images, device, transform)``,
``text_forward_fn(model, texts, device, transform)`` and the optional transforms ``image_preprocess`` and
``text_preprocess``, which are passed through; such files run unchanged. https://github.com/unum-cloud/coco-sm

Vectors are normalised here. Files that the module opens have to be in a list ``files = ["weights.pt"]``, in the module
or in the encoder's table of a suite: see :func:`tasks.encoders.identity.declared_files`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from capim.store.errors import RequestError, WorkError
from capim.store.plugins import loaded_module, shown_path, what_failed
from capim.store.types import EncoderSpec, Modality
from capim.tasks.encoders.adapters.loaded_encoder import LoadedEncoder
from capim.tasks.encoders.checkpoint import local_path
from capim.tasks.encoders.device import is_out_of_memory
from capim.tasks.encoders.tensors import DTYPES, as_tensor

NAMES: Mapping[Modality, str] = {"image": "encode_images", "caption": "encode_captions"}
_COCO_SM = ("model", "embedding_dim", "image_forward_fn", "text_forward_fn")


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> LoadedEncoder:
    """Run a user's file and return the model that it defines.

    Raises:
        RequestError: If it is not a Python file, fails, lacks a required name, or has another dimension than the spec.
    """
    path = local_path(spec.checkpoint)
    if path is None or path.suffix != ".py":
        raise RequestError(f"encoder {spec.name!r}: adapter module takes a Python file, got {spec.checkpoint!r}")
    module = loaded_module(path, f"encoder {spec.name!r}")
    plain = [hasattr(module, name) for name in NAMES.values()]
    if all(plain):
        return encoder_of_functions(spec, device, functions=functions_of(module), where=path)
    needed = tuple(NAMES.values()) if any(plain) else _COCO_SM
    if missing := [name for name in needed if not hasattr(module, name)]:
        other = "" if any(plain) else f" (or the two functions {', '.join(NAMES.values())}: docs/own_model.md)"
        raise RequestError(f"encoder {spec.name!r}: {path} does not define {', '.join(missing)}{other}")
    if module.embedding_dim != spec.dim:
        raise RequestError(
            f"encoder {spec.name!r}: {path} has embedding_dim = {module.embedding_dim}, but the spec has "
            f"dim = {spec.dim}"
        )
    model, image, text = (getattr(module, name, None) for name in ("model", "image_preprocess", "text_preprocess"))
    return encoder_of_functions(
        spec,
        device,
        functions={
            "image": lambda items: module.image_forward_fn(model, items, device, image),
            "caption": lambda items: module.text_forward_fn(model, items, device, text),
        },
        where=path,
        names={"image": "image_forward_fn", "caption": "text_forward_fn"},
        modules=[model] if isinstance(model, torch.nn.Module) else [],
    )


def functions_of(source: Any) -> dict[Modality, Callable[[list[Any]], Any]]:
    """Return the functions of an object or module under the two known names."""
    return {modality: getattr(source, name) for modality, name in NAMES.items()}


def encoder_of_functions(
    spec: EncoderSpec,
    device: str,
    *,
    functions: Mapping[Modality, Callable[[list[Any]], Any]],
    where: Path | str,
    names: Mapping[Modality, str] = NAMES,
    modules: Sequence[nn.Module] = (),
) -> LoadedEncoder:
    """Return the encoder of two functions that take a list, of RGB images or of captions in their template.

    They return an array or tensor of shape ``(n, dim)``; for ``vectors = "multi"`` a list of ``n`` of shape
    ``(vectors, dim)``. Vectors are normalised here; a precision below float32 uses autocast; the number of tokens is
    unknown. Results are checked: ``embed`` raises ``WorkError`` if a function fails, or returns another number of
    items, another shape, or a vector that is NaN, infinite or zero.

    Args:
        spec: The resolved spec.
        device: Device of networks in the functions, if they have any.
        functions: The functions, by modality.
        where: The file of the functions, or the name of their owner, for messages.
        names: The names of the functions there.
        modules: Networks that the functions use, moved to the device.
    """
    return LoadedEncoder(
        spec,
        device,
        modules=modules,
        forwards={m: _checked(function, spec, device, m, where, names[m]) for m, function in functions.items()},
        pixels=lambda images: {"items": images},
    )


def _checked(
    function: Callable[[list[Any]], Any],
    spec: EncoderSpec,
    device: str,
    modality: Modality,
    where: Path | str,
    name: str,
) -> Callable[..., Any]:
    """Return the forward pass of a user's function, on the CPU."""
    file, dtype = str(where.resolve()) if isinstance(where, Path) else "", DTYPES[spec.precision]

    def error(what: str) -> WorkError:
        return WorkError(f"encoder {spec.name!r}: {name} of {shown_path(str(where))} {what}")

    def rows(returned: Any, row: str, n: int | None = None) -> Tensor:
        """Return rows of ``dim`` finite numbers that are not all zero, ``n`` of them or at least one."""
        try:
            found = as_tensor(returned).detach().to(dtype=torch.float32).cpu()
        except (TypeError, ValueError, RuntimeError) as cause:
            raise error(f"returned {type(returned).__name__}, expected an array of numbers") from cause
        if found.ndim != 2 or found.shape[1] != spec.dim or len(found) != (n or len(found)) or not len(found):
            expected = f"({n or 'vectors'}, {spec.dim})"
            raise error(f"returned shape {tuple(found.shape)}, expected {expected}: each row is {row}")
        bad = ~(torch.isfinite(found).all(dim=1) & (found != 0).any(dim=1))
        if bad.any():
            raise error(
                f"returned NaN, infinity or only zeros in {int(bad.sum())} of {len(found)} rows, first in row "
                f"{int(bad.nonzero()[0])}: each row is {row}"
            )
        return found

    def forward(items: list[Any]) -> Tensor | tuple[Tensor, Tensor]:
        try:
            with torch.autocast(device.split(":", maxsplit=1)[0], dtype=dtype, enabled=dtype != torch.float32):
                returned = function(items)
        except Exception as cause:
            if is_out_of_memory(cause):
                raise  # the batch is halved
            raise error(f"failed with {what_failed(cause, file)}") from cause
        if spec.vectors == "single":
            return rows(returned, f"a {modality}", len(items))
        try:
            found = list(returned)
        except TypeError as cause:
            raise error(f"returned {type(returned).__name__}, expected a list of arrays") from cause
        if len(found) != len(items):
            raise error(f"returned {len(found)} arrays for {len(items)} {modality}s")
        vectors = [rows(each, f"a vector of {modality} {i}") for i, each in enumerate(found)]
        padded = nn.utils.rnn.pad_sequence(vectors, batch_first=True)
        return padded, torch.arange(padded.shape[1]) < torch.tensor([len(each) for each in vectors])[:, None]

    return forward
