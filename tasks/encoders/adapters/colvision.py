"""Late-interaction models of colpali_engine: one 128-dimensional vector per image patch and per caption token.

The vectors are taken before the model's own normalisation, so that their norms can be kept; padding is dropped by the
attention mask and never stored. A checkpoint is either whole or a LoRA adapter over a base model in a second
repository, which is pinned too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor

from store.errors import RequestError
from store.types import Embeddings, EncoderSpec, Modality
from tasks.encoders.captions import Template, max_length_of
from tasks.encoders.checkpoints.checkpoint import base_folder, folder_of
from tasks.encoders.checkpoints.related_repositories import adapter_over_pinned_base
from tasks.encoders.checkpoints.weights import loaded_quietly, refuse_fewer_weights, refuse_missing_weights
from tasks.encoders.encoder import Prepared
from tasks.encoders.pixels import in_rgb
from tasks.encoders.tensors import DTYPES, move, ragged_embeddings


@dataclass(frozen=True, kw_only=True)
class Family:
    """What is particular about one architecture of colpali_engine.

    Attributes:
        model: Class of the model.
        processor: Class of its processor.
        projection: The layer whose output are the vectors, not yet normalised.
        joins_images: All images give tensors of one shape.
        prefix_attention: Captions need ``token_type_ids`` of zeros: without them PaliGemma attends causally when
            there is padding and in both directions when there is none, and a caption's vectors would depend on its
            neighbours.
        language_head: The model computes logits, of which one row is enough: the vocabulary is 257,216 wide.
        padding: Side on which captions are padded.
    """

    model: str
    processor: str
    projection: str = "custom_text_proj"
    joins_images: bool = False
    prefix_attention: bool = False
    language_head: bool = False
    padding: Literal["left", "right"] = "left"


FAMILIES: dict[str, Family] = {
    "paligemma": Family(
        model="ColPali",
        processor="ColPaliProcessor",
        joins_images=True,
        prefix_attention=True,
        language_head=True,
        padding="right",
    ),
    "qwen2_vl": Family(model="ColQwen2", processor="ColQwen2Processor"),
    "qwen2_5_vl": Family(model="ColQwen2_5", processor="ColQwen2_5_Processor"),
    "idefics3": Family(model="ColIdefics3", processor="ColIdefics3Processor", projection="linear"),  # ColSmol
}


class ColVision:
    """A late-interaction model; see :class:`tasks.encoders.encoder.Encoder`."""

    pads_to_longest = True

    def __init__(self, spec: EncoderSpec, model: Any, processor: Any, family: Family, device: str) -> None:
        self.spec = spec
        self.device = device
        self.joins_images = family.joins_images
        self._model = model.to(torch.device(device)).eval()
        self.modules = (model,)
        self.forwards: dict[Modality, Callable[..., Any]] = {"image": model, "caption": model}
        self._projected: list[Tensor] = []
        projection = getattr(model, family.projection)
        projection.register_forward_hook(lambda _module, _inputs, output: self._projected.append(output))
        self._processor = processor
        self._tokenizing = threading.Lock()  # a fast tokenizer must not be used by two threads at once
        self._family = family
        self._template = Template.of(spec)
        limit = getattr(model.config.get_text_config(), "max_position_embeddings", 512)
        self._max_length = max_length_of(spec, default=min(limit, 512), limit=limit)

    def prepare_images(self, images: Sequence[Image]) -> Prepared:
        """The processor's pixels and image prompt."""
        with self._tokenizing:  # the processor tokenises its image prompt
            batch = dict(self._processor.process_images(in_rgb(images)))
        batch.pop("labels", None)
        return Prepared(
            modality="image",
            inputs=batch,
            n_tokens=batch["attention_mask"].sum(dim=1).numpy().astype(np.int32),
            truncated=np.zeros(len(images), dtype=np.bool_),
        )

    def prepare_captions(self, captions: Sequence[str]) -> Prepared:
        """Token ids of the captions in their template, cut at the model's length.

        A caption that spells the placeholder of a picture is text all the same: it is pulled apart.
        """
        picture = str(self._processor.image_token)
        texts = [self._template.fill(caption.replace(picture, " ".join(picture))) for caption in captions]
        with self._tokenizing:
            batch = dict(self._processor.process_texts(texts))
        lengths = batch["attention_mask"].sum(dim=1).numpy().astype(np.int32)
        if lengths.max() > self._max_length:
            batch = {name: self._cut(value, batch["attention_mask"]) for name, value in batch.items()}
        if self._family.prefix_attention:
            batch["token_type_ids"] = torch.zeros_like(batch["input_ids"])
        return Prepared(
            modality="caption",
            inputs=batch,
            n_tokens=np.minimum(lengths, self._max_length).astype(np.int32),
            truncated=lengths > self._max_length,
        )

    def embed(self, prepared: Prepared) -> Embeddings:
        """The projected last hidden states, padding dropped."""
        with torch.inference_mode():
            inputs = move(prepared.inputs, torch.device(self.device), self._model.dtype)
            keep = inputs["attention_mask"].bool()
            self._projected.clear()  # a pass that ran out of memory may have left its vectors here
            self.forwards[prepared.modality](**inputs, **({"logits_to_keep": 1} if self._family.language_head else {}))
            return ragged_embeddings(self._projected.pop(), keep, prepared, self.spec)

    def _cut(self, values: Tensor, mask: Tensor) -> Tensor:
        """The first tokens of every row, as many as the model takes, on the side where the family wants them."""
        if self._family.padding == "right":
            return values[:, : self._max_length]
        rows = [row[kept.bool()][: self._max_length].flip(0) for row, kept in zip(values, mask, strict=True)]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).flip(1)


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> ColVision:
    """Load a colpali_engine checkpoint, whole or as an adapter over its base, with every weight accounted for."""
    import colpali_engine.models
    from transformers import AutoConfig, AutoImageProcessor

    folder = folder_of(spec)
    base = base_folder(spec, folder)
    config = AutoConfig.from_pretrained(base or folder)
    if config.model_type not in FAMILIES:
        raise RequestError(
            f"encoder {spec.name!r}: {spec.checkpoint} is a {config.model_type!r} model; adapter colvision knows "
            f"{', '.join(FAMILIES)}"
        )
    family = FAMILIES[config.model_type]
    with loaded_quietly():
        model = _load_model(getattr(colpali_engine.models, family.model), spec, folder, base)
        processor = getattr(colpali_engine.models, family.processor).from_pretrained(folder)
    # Pillow resizes as in training; torchvision's resize differs by up to 0.015
    processor.image_processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    return ColVision(spec, model, processor, family, device)


def _load_model(cls: Any, spec: EncoderSpec, folder: Path, base: Path | None) -> Any:
    settings = {"dtype": DTYPES[spec.precision], "output_loading_info": True, "attn_implementation": "sdpa"}
    if base is None:
        model, report = cls.from_pretrained(folder, **settings)
    else:
        with adapter_over_pinned_base(folder, base) as pinned:
            model, report = cls.from_pretrained(pinned, **settings)
        # the report is the adapter's alone
        of_base = [name for name in model.state_dict() if "lora_" not in name and "lm_head" not in name]
        refuse_fewer_weights(base, of_base, spec)
    # the language head is never used
    refuse_missing_weights([k for k in report["missing_keys"] if "lm_head" not in k], report["mismatched_keys"], spec)
    if hasattr(model, "model") and hasattr(model.model, "tie_weights"):
        model.model.tie_weights()  # gives the unused head storage, without which the model cannot be moved
    return model
