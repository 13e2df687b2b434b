"""A user's own model in a Python file, as COCO-SM defined it; the file is used as it is.

The file defines ``model``, ``embedding_dim``, ``image_forward_fn(model, images, device, transform)``,
``text_forward_fn(model, texts, device, transform)`` and the optional transforms ``image_preprocess`` and
``text_preprocess``, which are passed through. Images are lists of PIL pictures, texts lists of strings, results
tensors (or arrays) of shape ``(n, embedding_dim)``; they are normalised here.
https://github.com/unum-cloud/coco-sm
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from PIL.Image import Image

from store.errors import RequestError
from store.types import Embeddings, EncoderSpec, Modality
from tasks.encoders.captions import Template
from tasks.encoders.checkpoints.checkpoint import local_path
from tasks.encoders.encoder import Prepared
from tasks.encoders.pixels import in_rgb
from tasks.encoders.tensors import DTYPES, dense_embeddings

_NEEDED = ("model", "embedding_dim", "image_forward_fn", "text_forward_fn")


class Module:
    """A model in a user's file; see :class:`tasks.encoders.encoder.Encoder`."""

    joins_images = True
    pads_to_longest = True

    def __init__(self, spec: EncoderSpec, module: ModuleType, device: str) -> None:
        self.spec = spec
        self.device = device
        model = module.model
        if isinstance(model, torch.nn.Module):
            model = model.to(torch.device(device)).eval()
        self.modules: tuple[torch.nn.Module, ...] = ()
        self._template = Template.of(spec)
        image, text = getattr(module, "image_preprocess", None), getattr(module, "text_preprocess", None)
        self.forwards: dict[Modality, Callable[..., Any]] = {
            "image": lambda items: module.image_forward_fn(model, items, device, image),
            "caption": lambda items: module.text_forward_fn(model, items, device, text),
        }

    def prepare_images(self, images: Sequence[Image]) -> Prepared:
        """The pictures themselves: the file's own function preprocesses them."""
        return _untouched("image", in_rgb(images))

    def prepare_captions(self, captions: Sequence[str]) -> Prepared:
        """The captions themselves; how many tokens they have only the file knows."""
        return _untouched("caption", [self._template.fill(caption) for caption in captions])

    def embed(self, prepared: Prepared) -> Embeddings:
        """What the file's function returns, normalised."""
        precision = DTYPES[self.spec.precision]
        lowered = torch.autocast(self.device.split(":")[0], dtype=precision, enabled=precision != torch.float32)
        with torch.inference_mode(), lowered:
            features = self.forwards[prepared.modality](prepared.inputs["items"])
        return dense_embeddings(torch.as_tensor(features), prepared, self.spec)


def _untouched(modality: Modality, items: list[Any]) -> Prepared:
    return Prepared(
        modality=modality,
        inputs={"items": items},
        n_tokens=np.zeros(len(items), dtype=np.int32),
        truncated=np.zeros(len(items), dtype=np.bool_),
    )


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> Module:
    """Run a user's file and take the model that it defines.

    Raises:
        RequestError: It is no Python file, lacks a name of the contract, fails, or its dimension is another.
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
            f"encoder {spec.name!r}: {path} says embedding_dim = {module.embedding_dim}, the spec says dim = {spec.dim}"
        )
    return Module(spec, module, device)


def _run(path: Path, spec: EncoderSpec) -> ModuleType:
    found = importlib.util.spec_from_file_location(f"capim_module_{path.stem}", path)
    if found is None or found.loader is None:
        raise RequestError(f"encoder {spec.name!r}: {path} cannot be imported")
    module = importlib.util.module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except Exception as error:
        raise RequestError(f"encoder {spec.name!r}: {path} failed: {type(error).__name__}: {error}") from error
    return module
