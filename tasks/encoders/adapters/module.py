"""A model in a user's Python file: two plain functions, or the form of COCO-SM.

**Plain functions**: ``encode_images(images)`` and ``encode_captions(texts)`` take a list of RGB images of PIL or of
captions, and return an array of shape ``(n, dim)``; for ``vectors = "multi"`` a list of ``n`` arrays of shape
``(vectors, dim)``. In a suite: ``adapter = "my_model.py"``. See ``docs/own_model.md``.

**COCO-SM**: the file defines ``model``, ``embedding_dim``, ``image_forward_fn(model, images, device, transform)``,
``text_forward_fn(model, texts, device, transform)`` and the optional transforms ``image_preprocess`` and
``text_preprocess``, which are passed through; such files run unchanged. https://github.com/unum-cloud/coco-sm

Vectors are normalised here. Files that the module opens belong in a list ``files = ["weights.pt"]``, in the module or
in the encoder's table of a suite: see :mod:`tasks.encoders.checkpoints.module_files`.
"""

from __future__ import annotations

import torch

from capim.store.errors import RequestError
from capim.store.own_code import loaded_module
from capim.store.types import EncoderSpec
from capim.tasks.encoders.adapters.functions import NAMES, FunctionEncoder, functions_of
from capim.tasks.encoders.checkpoints.checkpoint import local_path

_COCO_SM = ("model", "embedding_dim", "image_forward_fn", "text_forward_fn")


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> FunctionEncoder:
    """Run a user's file and take the model that it defines.

    Raises:
        RequestError: It is not a Python file, fails, lacks a required name, or has another dimension than the spec.
    """
    path = local_path(spec.checkpoint)
    if path is None or path.suffix != ".py":
        raise RequestError(f"encoder {spec.name!r}: adapter module takes a Python file, got {spec.checkpoint!r}")
    module = loaded_module(path, f"encoder {spec.name!r}")
    plain = [hasattr(module, name) for name in NAMES.values()]
    if all(plain):
        return functions_of(module, spec, device, where=path)
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
    return FunctionEncoder(
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
