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

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Tensor, nn

from capim.store.errors import RequestError, WorkError
from capim.store.plugins import loaded_module, shown_path, what_failed
from capim.store.types import Embeddings, EncoderSpec, Modality
from capim.tasks.encoders.adapters.loaded_encoder import LoadedEncoder
from capim.tasks.encoders.checkpoints.checkpoint import local_path
from capim.tasks.encoders.encoder import Inputs, Prepared
from capim.tasks.encoders.tensors import ragged_embeddings

# --- An encoder of two plain functions: images to vectors, and captions to vectors.


NAMES: Mapping[Modality, str] = {"image": "encode_images", "caption": "encode_captions"}


class FunctionEncoder(LoadedEncoder):
    """Two functions that take a list, of RGB images or of captions in their template, and return its vectors.

    They return an array or tensor of shape ``(n, dim)``; for ``vectors = "multi"`` a list of ``n`` of shape
    ``(vectors, dim)``. Vectors are normalised here; a precision below float32 is by autocast; the number of tokens is
    unknown.

    Args:
        spec: Resolved.
        device: Where networks of the functions run, if they have any.
        functions: By modality.
        where: The file of the functions, or the name of what has them, for messages.
        names: The names of the functions there.
        modules: Networks that the functions use, moved to the device.
    """

    def __init__(
        self,
        spec: EncoderSpec,
        device: str,
        *,
        functions: Mapping[Modality, Callable[[list[Any]], Any]],
        where: Path | str,
        names: Mapping[Modality, str] = NAMES,
        modules: Sequence[nn.Module] = (),
    ) -> None:
        self._where = {m: f"encoder {spec.name!r}: {name} of {shown_path(str(where))}" for m, name in names.items()}
        self._file = str(where.resolve()) if isinstance(where, Path) else ""
        forwards: dict[Modality, Callable[..., Any]] = {m: self._checked(m, f) for m, f in functions.items()}
        super().__init__(spec, device, modules=modules, forwards=forwards)

    def pixels(self, images: list[Image]) -> Inputs:
        """The images themselves."""
        return {"items": images}

    def tokens(self, texts: list[str]) -> tuple[Inputs, NDArray[np.integer], NDArray[np.bool_]]:
        """The captions themselves."""
        return {"items": texts}, np.zeros(len(texts), dtype=np.int32), np.zeros(len(texts), dtype=np.bool_)

    def embed(self, prepared: Prepared) -> Embeddings:
        """What the function returns, checked and normalised.

        Raises:
            WorkError: The function fails, or returns another number of items, another shape, or a vector that is NaN,
                infinite or zero.
        """
        with torch.autocast(self.device.split(":")[0], dtype=self.dtype, enabled=self.dtype != torch.float32):
            if self.spec.vectors == "single":
                return super().embed(prepared)
            items = self.forwards[prepared.modality](**prepared.inputs)
        counts = torch.tensor([len(item) for item in items])
        padded = torch.nn.utils.rnn.pad_sequence(items, batch_first=True)
        keep = torch.arange(padded.shape[1])[None, :] < counts[:, None]
        return ragged_embeddings(padded, keep, prepared, self.spec)

    def _checked(self, modality: Modality, function: Callable[[list[Any]], Any]) -> Callable[..., Any]:
        """The function, which returns one tensor, or a list of them for multi-vectors, on the CPU."""

        def checked(items: list[Any]) -> Tensor | list[Tensor]:
            try:
                returned = function(items)
            except Exception as error:  # noqa: BLE001 - the user's code
                self._refuse(modality, f"failed with {what_failed(error, self._file)}", error)
            if self.spec.vectors == "single":
                return self._rows(modality, returned, f"a {modality}", len(items))
            try:
                found = list(returned)
            except TypeError as error:
                self._refuse(modality, f"returned {type(returned).__name__}, expected a list of arrays", error)
            if len(found) != len(items):
                self._refuse(modality, f"returned {len(found)} arrays for {len(items)} {modality}s")
            return [self._rows(modality, each, f"a vector of {modality} {i}") for i, each in enumerate(found)]

        return checked

    def _rows(self, modality: Modality, returned: Any, row: str, n: int | None = None) -> Tensor:
        """Rows of ``dim`` finite numbers that are not all zero, ``n`` of them or at least one."""
        try:
            rows = torch.as_tensor(returned).detach().to(dtype=torch.float32).cpu()
        except (TypeError, ValueError, RuntimeError) as error:
            self._refuse(modality, f"returned {type(returned).__name__}, expected an array of numbers", error)
        dim = self.spec.dim
        if rows.ndim != 2 or rows.shape[1] != dim or len(rows) != (n or len(rows)) or not len(rows):
            expected = f"({n or 'vectors'}, {dim})"
            self._refuse(modality, f"returned shape {tuple(rows.shape)}, expected {expected}: each row is {row}")
        bad = ~(torch.isfinite(rows).all(dim=1) & (rows != 0).any(dim=1))
        if bad.any():
            self._refuse(
                modality,
                f"returned NaN, infinity or only zeros in {int(bad.sum())} of {len(rows)} rows, first in row "
                f"{int(bad.nonzero()[0])}: each row is {row}",
            )
        return rows

    def _refuse(self, modality: Modality, what: str, cause: Exception | None = None) -> NoReturn:
        raise WorkError(f"{self._where[modality]} {what}") from cause


def functions_of(source: Any, spec: EncoderSpec, device: str, *, where: Path | str) -> FunctionEncoder:
    """The encoder of an object or module that has the two functions under their names."""
    functions = {modality: getattr(source, name) for modality, name in NAMES.items()}
    return FunctionEncoder(spec, device, functions=functions, where=where)


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
