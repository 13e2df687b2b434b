"""A model in a user's Python file, in the form of COCO-SM; such files run unchanged.

The file defines ``model``, ``embedding_dim``, ``image_forward_fn(model, images, device, transform)``,
``text_forward_fn(model, texts, device, transform)`` and the optional transforms ``image_preprocess`` and
``text_preprocess``, which are passed through. Images are lists of PIL images, texts lists of strings, results tensors
or arrays of shape ``(n, embedding_dim)``; they are normalised here. https://github.com/unum-cloud/coco-sm

Files that the module opens belong in a list ``files = ["weights.pt"]``, in the module or in the encoder's table of a
suite: see :mod:`tasks.encoders.checkpoints.module_files`.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image

from store.errors import RequestError
from store.types import Embeddings, EncoderSpec
from tasks.encoders.adapters.loaded_encoder import LoadedEncoder
from tasks.encoders.checkpoints.checkpoint import local_path
from tasks.encoders.encoder import Inputs, Prepared

_NEEDED = ("model", "embedding_dim", "image_forward_fn", "text_forward_fn")


class ModuleEncoder(LoadedEncoder):
    """The model of a user's file, whose own functions preprocess; the number of tokens is unknown."""

    def __init__(self, spec: EncoderSpec, device: str, *, module: ModuleType) -> None:
        model = module.model
        image, text = getattr(module, "image_preprocess", None), getattr(module, "text_preprocess", None)
        super().__init__(
            spec,
            device,
            modules=[model] if isinstance(model, torch.nn.Module) else [],
            forwards={
                "image": lambda items: torch.as_tensor(module.image_forward_fn(model, items, device, image)),
                "caption": lambda items: torch.as_tensor(module.text_forward_fn(model, items, device, text)),
            },
        )

    def pixels(self, images: list[Image]) -> Inputs:
        """The images themselves."""
        return {"items": images}

    def tokens(self, texts: list[str]) -> tuple[Inputs, NDArray[np.integer], NDArray[np.bool_]]:
        """The captions themselves."""
        return {"items": texts}, np.zeros(len(texts), dtype=np.int32), np.zeros(len(texts), dtype=np.bool_)

    def embed(self, prepared: Prepared) -> Embeddings:
        """The result of the file's function, normalised; a precision below float32 is by autocast."""
        with torch.autocast(self.device.split(":")[0], dtype=self.dtype, enabled=self.dtype != torch.float32):
            return super().embed(prepared)


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> ModuleEncoder:
    """Run a user's file and take the model that it defines.

    Raises:
        RequestError: It is not a Python file, fails, lacks a required name, or has another dimension than the spec.
    """
    path = local_path(spec.checkpoint)
    if path is None or path.suffix != ".py":
        raise RequestError(f"encoder {spec.name!r}: adapter module takes a Python file, got {spec.checkpoint!r}")
    module = _run(path, spec)
    missing = [name for name in _NEEDED if not hasattr(module, name)]
    if missing:
        raise RequestError(f"encoder {spec.name!r}: {path} does not define {', '.join(missing)}")
    if module.embedding_dim != spec.dim:
        raise RequestError(
            f"encoder {spec.name!r}: {path} has embedding_dim = {module.embedding_dim}, but the spec has "
            f"dim = {spec.dim}"
        )
    return ModuleEncoder(spec, device, module=module)


def _run(path: Path, spec: EncoderSpec) -> ModuleType:
    source = importlib.util.spec_from_file_location(f"capim_module_{path.stem}", path)
    if source is None or source.loader is None:
        raise RequestError(f"encoder {spec.name!r}: {path} cannot be imported")
    module = importlib.util.module_from_spec(source)
    try:
        source.loader.exec_module(module)
    except Exception as error:
        raise RequestError(f"encoder {spec.name!r}: {path} failed: {type(error).__name__}: {error}") from error
    return module
