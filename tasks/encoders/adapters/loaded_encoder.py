"""The part of an encoder that does not depend on the family of the model.

An adapter is a subclass that says how images and captions become the model's inputs (:meth:`LoadedEncoder.pixels`,
:meth:`LoadedEncoder.tokens`) and names the two forward passes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Tensor, nn

from capim.store.types import Embeddings, EncoderSpec, Modality
from capim.tasks.encoders.captions import caption_template
from capim.tasks.encoders.device import full_float32
from capim.tasks.encoders.encoder import Inputs, Prepared
from capim.tasks.encoders.pixels import PixelPipeline, in_rgb
from capim.tasks.encoders.tensors import DTYPES, dense_embeddings, move, ragged_embeddings


class LoadedEncoder:
    """Template, preparation and forward pass; see :class:`tasks.encoders.encoder.Encoder`.

    Args:
        spec: Resolved.
        device: Where the forward pass runs.
        modules: The networks that hold the weights; moved to the device, in evaluation mode.
        forwards: The forward pass of each modality: inputs by name to features of shape ``(n, dim)``; for multi-vectors
            a pair: features of shape ``(n, longest, dim)``, and a mask of shape ``(n, longest)`` of those that count.
        pixel_input: Name of the input that holds the pixels.
        pixel_pipeline: Makes the pixels, as fast as we can; None: :meth:`pixels` does.
        patch_size: Pixels per side of an image patch; 0 if unknown.
        image_token: The text that stands for an image where a processor reads text and images together.
    """

    joins_images = True
    pads_to_longest = True

    def __init__(
        self,
        spec: EncoderSpec,
        device: str,
        *,
        modules: Sequence[nn.Module],
        forwards: dict[Modality, Callable[..., Any]],
        pixel_input: str = "",
        pixel_pipeline: PixelPipeline | None = None,
        patch_size: int = 0,
        image_token: str = "",
    ) -> None:
        self.spec = spec
        self.device = device
        self.modules = tuple(module.to(torch.device(device)).eval() for module in modules)
        self.forwards = forwards
        self.dtype = DTYPES[spec.precision]
        self._pixel_input = pixel_input
        self._pixel_pipeline = pixel_pipeline
        self._patch_size = patch_size
        self._image_token = image_token
        self._before, self._after = caption_template(spec)
        self._tokenizing = threading.Lock()  # a fast tokenizer must not be used by two threads at once

    def pixels(self, images: list[Image]) -> Inputs:
        """The model's inputs for RGB images, by the library's own preprocessing."""
        raise NotImplementedError

    def tokens(self, texts: list[str]) -> tuple[Inputs, NDArray[np.integer], NDArray[np.bool_]]:
        """The model's inputs for captions in their template, their numbers of tokens, and which were truncated."""
        raise NotImplementedError

    def layouts(self, _modality: Modality, _inputs: Inputs) -> tuple[str, ...] | None:
        """For each item what its vectors stand for; None where an item has one vector."""
        return None

    def prepare_images(self, images: Sequence[Image]) -> Prepared:
        """Pixels as the checkpoint's own preprocessing makes them."""
        rgb = in_rgb(images)
        pipeline = self._pixel_pipeline
        inputs = self.pixels(rgb) if pipeline is None else {self._pixel_input: pipeline.tensor(rgb)}
        return Prepared(
            modality="image",
            inputs=inputs,
            n_tokens=self._patches(inputs, len(images)).astype(np.int32),
            truncated=np.zeros(len(images), dtype=np.bool_),
            layouts=self.layouts("image", inputs),
        )

    def prepare_captions(self, captions: Sequence[str]) -> Prepared:
        """Captions in their template, tokenised and padded as the model needs.

        A caption that contains the image token is text too: spaces are put between its characters.
        """
        if token := self._image_token:
            captions = [caption.replace(token, " ".join(token)) for caption in captions]
        texts = [f"{self._before}{caption}{self._after}" for caption in captions]
        with self._tokenizing:
            inputs, n_tokens, truncated = self.tokens(texts)
        return Prepared(
            modality="caption",
            inputs=inputs,
            n_tokens=np.asarray(n_tokens, dtype=np.int32),
            truncated=truncated,
            layouts=self.layouts("caption", inputs),
        )

    def embed(self, prepared: Prepared) -> Embeddings:
        """The features of the forward pass, normalised, without padding."""
        with full_float32():
            inputs = move(prepared.inputs, torch.device(self.device), self.dtype)
            features = self.forwards[prepared.modality](**inputs)
            if self.spec.vectors == "single":
                return dense_embeddings(features, prepared, self.spec)
            vectors, keep = features
            return ragged_embeddings(vectors, keep.bool(), prepared, self.spec)

    def _patches(self, inputs: Mapping[str, Any], n: int) -> NDArray[np.integer]:
        """Patches of each image that the model sees; 0 if unknown."""
        mask = inputs.get("attention_mask", inputs.get("pixel_attention_mask"))
        if isinstance(mask, Tensor):
            counts: NDArray[np.integer] = mask.sum(dim=1).numpy()
            return counts
        if not self._patch_size:
            return np.zeros(n, dtype=np.int32)
        height, width = inputs[self._pixel_input].shape[-2:]
        return np.full(n, (height // self._patch_size) * (width // self._patch_size))
