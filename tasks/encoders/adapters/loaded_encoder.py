"""Code that adapters share: an encoder made of functions of its family, and the tokenisation of captions.

An adapter turns images and captions into the model's inputs, and names the two forward passes; templates, limits,
threads, devices, normalisation and the counting of patches and tokens are here.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Tensor, nn

from capim.store.errors import RequestError, WorkError
from capim.store.types import Embeddings, EncoderSpec, Modality
from capim.tasks.encoders.device import full_float32
from capim.tasks.encoders.encoder import Inputs, Prepared
from capim.tasks.encoders.pixels import PixelPipeline
from capim.tasks.encoders.tensors import DTYPES, move, unit_embeddings

_PLACEHOLDER = "{caption}"
# names of the token embeddings in text towers
_WORD_TABLES = ("token_embedding", "word_embeddings", "embed_tokens", "tok_embeddings", "wte")
Tokenized: TypeAlias = tuple[Inputs, NDArray[np.integer], NDArray[np.bool_]]
"""The model's inputs for some captions, their numbers of tokens, and a mask of the truncated ones."""


def uncounted(texts: list[str]) -> Tokenized:
    """Return captions as the input ``items``, for a model that does not report how it reads them."""
    return {"items": texts}, np.zeros(len(texts), dtype=np.int32), np.zeros(len(texts), dtype=np.bool_)


@dataclass(eq=False)
class LoadedEncoder:
    """Template, preparation and forward pass; see :class:`tasks.encoders.encoder.Encoder`.

    Attributes:
        spec: The resolved spec.
        device: Device of the forward pass.
        modules: The networks that hold the weights; moved to the device, in evaluation mode.
        forwards: The forward pass of each modality: inputs by name to features of shape ``(n, dim)``; for multi-vectors
            a pair: features of shape ``(n, longest, dim)``, and a mask of shape ``(n, longest)`` of the valid ones.
        pixels: The model's inputs for RGB images, by the library's own preprocessing.
        tokens: The model's inputs for captions in their template, with their numbers of tokens; by default tokens are
            not counted, and the captions themselves are the input ``items``. Called by one thread at a time.
        layouts: For each item the meaning of its vectors, from the inputs of a modality; None: one vector per item.
        pixel_input: Name of the input that holds the pixels.
        pixel_pipeline: A faster way to make the pixels; None: ``pixels``.
        patch_size: Pixels per side of an image patch; 0 if unknown.
        image_token: The placeholder text of an image, or an empty string, if ``pixels`` may tokenise too: it is then
            called by one thread at a time. None: it does not.
        joins_images: As in :class:`tasks.encoders.encoder.Encoder`.
        pads_to_longest: As in :class:`tasks.encoders.encoder.Encoder`.
        dtype: Type of the floating inputs; by default the spec's precision.
    """

    spec: EncoderSpec
    device: str
    _: KW_ONLY
    modules: Sequence[nn.Module]
    forwards: dict[Modality, Callable[..., Any]]
    pixels: Callable[[list[Image]], Inputs]
    tokens: Callable[[list[str]], Tokenized] = uncounted
    layouts: Callable[[Modality, Any], tuple[str, ...] | None] = lambda _modality, _inputs: None
    pixel_input: str = ""
    pixel_pipeline: PixelPipeline | None = None
    patch_size: int = 0
    image_token: str | None = None
    joins_images: bool = True
    pads_to_longest: bool = True
    dtype: torch.dtype = None  # type: ignore[assignment]  # depends on the precision: see __post_init__

    def __post_init__(self) -> None:
        self.modules = tuple(module.to(torch.device(self.device)).eval() for module in self.modules)
        self.dtype = self.dtype or DTYPES[self.spec.precision]
        self._before, self._after = caption_template(self.spec)
        self._vocabulary = _vocabulary(self.modules)
        self._tokenizing = threading.Lock()  # a fast tokenizer must not be used by two threads at once

    def prepare_images(self, images: Sequence[Image]) -> Prepared:
        """Return pixels from the checkpoint's own preprocessing."""
        # RGB images are not copied, which would cost as much as resizing them
        rgb = [image if image.mode == "RGB" else image.convert("RGB") for image in images]
        if self.pixel_pipeline is not None:
            inputs: Inputs = {self.pixel_input: self.pixel_pipeline.tensor(rgb)}
        else:
            with contextlib.nullcontext() if self.image_token is None else self._tokenizing:
                inputs = self.pixels(rgb)
        return self._as_prepared("image", inputs, self._patches(inputs, len(images)), np.zeros(len(images), np.bool_))

    def prepare_captions(self, captions: Sequence[str]) -> Prepared:
        """Return captions in their template, tokenised and padded for the model.

        A caption that contains the image token is text too: spaces are put between its characters.
        """
        if token := self.image_token:
            captions = [caption.replace(token, " ".join(token)) for caption in captions]
        texts = [f"{self._before}{caption}{self._after}" for caption in captions]
        with self._tokenizing:
            inputs, n_tokens, truncated = self.tokens(texts)
        ids = inputs.get("input_ids", inputs.get("text"))
        if self._vocabulary and isinstance(ids, Tensor) and (highest := int(ids.max())) >= self._vocabulary:
            raise WorkError(
                f"encoder {self.spec.name!r}: the tokenizer of {self.spec.checkpoint} gives token {highest}, but the "
                f"model has vectors for {self._vocabulary} tokens, from 0 on: tokenizer and weights are of two models; "
                "put the files of the right tokenizer next to the weights"
            )
        return self._as_prepared("caption", inputs, n_tokens, truncated)

    def _as_prepared(
        self, modality: Modality, inputs: Inputs, n_tokens: NDArray[np.integer], truncated: NDArray[np.bool_]
    ) -> Prepared:
        counts = np.asarray(n_tokens, dtype=np.int32)
        layouts = self.layouts(modality, inputs)
        return Prepared(modality=modality, inputs=inputs, n_tokens=counts, truncated=truncated, layouts=layouts)

    def embed(self, prepared: Prepared) -> Embeddings:
        """Return the features of the forward pass, normalised, without padding."""
        with full_float32():
            inputs = move(prepared.inputs, torch.device(self.device), self.dtype)
            found = self.forwards[prepared.modality](**inputs)
            features, keep = found if self.spec.vectors == "multi" else (found, None)
            return unit_embeddings(features, prepared, self.spec, keep=keep)

    def _patches(self, inputs: Mapping[str, Any], n: int) -> NDArray[np.integer]:
        """Return the number of patches of each image that the model sees; 0 if unknown."""
        mask = inputs.get("attention_mask", inputs.get("pixel_attention_mask"))
        if isinstance(mask, Tensor):
            counts: NDArray[np.integer] = mask.sum(dim=1).numpy()
            return counts
        if not self.patch_size:
            return np.zeros(n, dtype=np.int32)
        height, width = inputs[self.pixel_input].shape[-2:]
        return np.full(n, (height // self.patch_size) * (width // self.patch_size))


def _vocabulary(modules: Sequence[nn.Module]) -> int:
    """Return the number of tokens with an embedding in the networks, from 0 on; 0 if unknown.

    A larger token ends the process on a GPU; on a CPU it is an ``IndexError`` without a name.
    """
    tables = [(n, m) for each in modules for n, m in each.named_modules() if isinstance(m, nn.Embedding)]
    of_words = [m.num_embeddings for name, m in tables if name.rpartition(".")[2] in _WORD_TABLES]
    return max(of_words or (m.num_embeddings for _, m in tables), default=0)


def caption_template(spec: EncoderSpec) -> tuple[str, str]:
    """Return the texts before and after every caption, from option ``caption_template`` with its ``{caption}``.

    Raises:
        RequestError: If it does not contain ``{caption}`` exactly once.

    Examples:
        >>> caption_template(EncoderSpec(name="x", adapter="hf_dual", checkpoint="a/b", dim=8,
        ...     options={"caption_template": "a photo of {caption}."}))
        ('a photo of ', '.')
    """
    template = str(spec.options.get("caption_template", _PLACEHOLDER))
    if template.count(_PLACEHOLDER) != 1:
        raise RequestError(
            f"encoder {spec.name!r}: caption_template must contain {_PLACEHOLDER} exactly once, got {template!r}"
        )
    before, after = template.split(_PLACEHOLDER)
    return before, after


def max_length_of(spec: EncoderSpec, *, default: int, limit: int) -> int:
    """Return the tokens after which a caption is truncated: option ``max_length`` of a spec, or the model's default.

    Raises:
        RequestError: If it is more than the model has positions for, or less than 3.
    """
    length = spec.options.get("max_length", default)
    if not isinstance(length, int) or not 3 <= length <= limit:
        raise RequestError(f"encoder {spec.name!r}: max_length must be from 3 to {limit}, got {length!r}")
    return length


def tokenize(
    tokenizer: Any, texts: Sequence[str], *, max_length: int, width: int | None
) -> tuple[tuple[Tensor, Tensor], NDArray[np.integer], NDArray[np.bool_]]:
    """Return token ids of a transformers tokenizer; captions of more than ``max_length`` tokens are truncated.

    Args:
        tokenizer: A tokenizer with a padding token; captions are padded on the right.
        texts: The captions.
        max_length: Most tokens of a caption, including special ones.
        width: Number of columns; None: as many as the longest caption has tokens.

    Returns:
        Ids and mask, int64 of shape ``(n, width)``, the mask 1 for a token and 0 for padding; the number of tokens of
        each caption; and a mask of the captions longer than ``max_length``.
    """
    rows = tokenizer(list(texts), verbose=False)["input_ids"]
    truncated = np.asarray([len(row) > max_length for row in rows], dtype=np.bool_)
    long = np.flatnonzero(truncated).tolist()
    if long:
        cut = tokenizer([texts[row] for row in long], truncation=True, max_length=max_length)["input_ids"]
        for row, ids in zip(long, cut, strict=True):
            rows[row] = ids
    lengths = np.asarray([len(row) for row in rows])
    mask = np.arange(lengths.max() if width is None else width) < lengths[:, None]
    ids = np.full(mask.shape, tokenizer.pad_token_id, dtype=np.int64)
    ids[mask] = np.concatenate(rows)
    return (torch.from_numpy(ids), torch.from_numpy(mask.astype(np.int64))), lengths, truncated
