"""Dual encoders of transformers: one tower for images, one for captions, one vector each.

What differs between the families is small and easy to get wrong, so it is a table: how captions are padded, whether
the model wants a mask, whether captions are lower-cased. The vector is ``pooler_output`` of ``get_image_features``
and ``get_text_features``, which transformers leaves unnormalised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from PIL.Image import Image

from store.errors import RequestError
from store.types import Embeddings, EncoderSpec, Modality
from tasks.encoders.captions import Template, max_length_of, pad_rows
from tasks.encoders.checkpoints.checkpoint import folder_of
from tasks.encoders.checkpoints.weights import loaded_quietly, refuse_missing_weights
from tasks.encoders.encoder import Prepared
from tasks.encoders.pixels import in_rgb, recipe_of
from tasks.encoders.tensors import DTYPES, dense_embeddings, move


@dataclass(frozen=True, kw_only=True)
class Family:
    """What is particular about one architecture.

    Attributes:
        padding: ``longest``: to the longest caption of the batch, which the model ignores. ``fixed``: always to the
            model's length, because it was trained to see the padding.
        mask: Whether the attention mask is passed. SigLIP was trained without one: passing it turns vectors around.
        lower_case: Whether captions are lower-cased, as in training; not every tokenizer does it itself.
        max_length: Tokens, where the text tower has more positions than the model was trained with.
    """

    padding: Literal["longest", "fixed"]
    mask: bool
    lower_case: bool = False
    max_length: int | None = None


FAMILIES: dict[str, Family] = {
    # also MetaCLIP 1: attention is causal, so that padding after the end of a caption cannot reach it, masked or not
    "clip": Family(padding="longest", mask=False),
    "metaclip_2": Family(padding="longest", mask=False),
    # https://huggingface.co/docs/transformers/model_doc/siglip: trained with padding="max_length", no mask
    "siglip": Family(padding="fixed", mask=False, lower_case=True),  # also SigLIP 2 at fixed resolution
    "siglip2": Family(padding="fixed", mask=False, lower_case=True),  # SigLIP 2 NaFlex
    "altclip": Family(padding="longest", mask=True, max_length=77),
    "chinese_clip": Family(padding="longest", mask=True, max_length=52),  # context_length of cn_clip.tokenize
}


class HFDual:
    """A transformers dual encoder; see :class:`tasks.encoders.encoder.Encoder`."""

    joins_images = True

    def __init__(
        self, spec: EncoderSpec, model: Any, image_processor: Any, tokenizer: Any, family: Family, device: str
    ) -> None:
        self.spec = spec
        self.device = device
        self.pads_to_longest = family.padding == "longest"
        self._model = model.to(torch.device(device)).eval()
        self.modules = (model,)
        self.forwards: dict[Modality, Callable[..., Any]] = {
            "image": model.get_image_features,
            "caption": model.get_text_features,
        }
        self._image_processor = image_processor
        self._recipe = recipe_of(image_processor)
        self._tokenizer = tokenizer
        self._tokenizing = threading.Lock()  # a fast tokenizer must not be used by two threads at once
        self._family = family
        self._template = Template.of(spec)
        positions = model.config.text_config.max_position_embeddings
        self._max_length = max_length_of(spec, default=family.max_length or positions, limit=positions)
        self._patch = int(getattr(model.config.vision_config, "patch_size", 0))

    def prepare_images(self, images: Sequence[Image]) -> Prepared:
        """Pixels as the checkpoint's processor makes them."""
        upright = in_rgb(images)
        if self._recipe is not None:
            inputs = {"pixel_values": self._recipe.tensor(upright)}
        else:
            inputs = dict(self._image_processor(images=upright, return_tensors="pt"))
        if "pixel_attention_mask" in inputs:
            patches = inputs["pixel_attention_mask"].sum(dim=1).numpy()
        else:
            height, width = inputs["pixel_values"].shape[-2:]
            patches = np.full(len(images), (height // self._patch) * (width // self._patch) if self._patch else 0)
        return Prepared(
            modality="image",
            inputs=inputs,
            n_tokens=patches.astype(np.int32),
            truncated=np.zeros(len(images), dtype=np.bool_),
        )

    def prepare_captions(self, captions: Sequence[str]) -> Prepared:
        """Token ids, padded as the family needs."""
        texts = [self._template.fill(caption) for caption in captions]
        if self._family.lower_case:
            texts = [text.lower() for text in texts]
        with self._tokenizing:
            ids = self._tokenizer(texts, verbose=False)["input_ids"]
            long = [row for row, tokens in enumerate(ids) if len(tokens) > self._max_length]
            if long:
                cut = self._tokenizer([texts[row] for row in long], truncation=True, max_length=self._max_length)
                for row, tokens in zip(long, cut["input_ids"], strict=True):
                    ids[row] = tokens
        width = None if self.pads_to_longest else self._max_length
        padded, mask = pad_rows(ids, pad=self._tokenizer.pad_token_id, width=width)
        inputs = {"input_ids": torch.from_numpy(padded)}
        if self._family.mask:
            inputs["attention_mask"] = torch.from_numpy(mask)
        truncated = np.zeros(len(captions), dtype=np.bool_)
        truncated[long] = True
        return Prepared(
            modality="caption", inputs=inputs, n_tokens=mask.sum(axis=1).astype(np.int32), truncated=truncated
        )

    def embed(self, prepared: Prepared) -> Embeddings:
        """Projected features, normalised."""
        with torch.inference_mode():
            inputs = move(prepared.inputs, torch.device(self.device), self._model.dtype)
            output = self.forwards[prepared.modality](**inputs)
            vectors = output if isinstance(output, torch.Tensor) else output.pooler_output
            return dense_embeddings(vectors, prepared, self.spec)


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> HFDual:
    """Load a transformers dual encoder from its folder, with every weight accounted for; code in it is never run."""
    from transformers import AutoConfig, AutoImageProcessor, AutoModel, AutoTokenizer

    folder = folder_of(spec)
    config = AutoConfig.from_pretrained(folder)
    if config.model_type not in FAMILIES:
        raise RequestError(
            f"encoder {spec.name!r}: {spec.checkpoint} is a {config.model_type!r} model; adapter hf_dual knows "
            f"{', '.join(FAMILIES)}"
        )
    with loaded_quietly():
        # the type is given because transformers 5 would otherwise keep that of the file
        model, report = AutoModel.from_pretrained(
            folder,
            dtype=DTYPES[spec.precision],
            output_loading_info=True,
            attn_implementation="sdpa",
        )
    refuse_missing_weights(report["missing_keys"], report["mismatched_keys"], spec)
    return HFDual(
        spec,
        model,
        # Pillow resizes as in training; torchvision's resize differs by up to 0.015
        AutoImageProcessor.from_pretrained(folder, backend="pil"),
        AutoTokenizer.from_pretrained(folder),
        FAMILIES[config.model_type],
        device,
    )
