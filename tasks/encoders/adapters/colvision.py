"""Models of colpali_engine: one vector per image patch and caption token (Col), or one per item (Bi).

Many vectors are taken before the model's own normalisation, so that their norms can be stored; padding is dropped by
the attention mask. A Bi model pools and normalises by itself. A checkpoint is either complete or a LoRA adapter over a
base model in a second repository. Captions are queries in the form of the processor's own ``process_queries``, images
are documents with the processor's prompt, unless the options ``caption_template`` and ``image_prompt`` say otherwise;
``resolve`` writes both into the options.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Tensor

from capim.store.errors import RequestError
from capim.store.types import EncoderSpec, Modality
from capim.store.vectors import layout_of_tokens
from capim.tasks.encoders.adapters.late_interaction import (
    FAMILIES,
    KINDS,
    LateInteractionFamily,
    image_layout,
    patch_grids,
)
from capim.tasks.encoders.adapters.loaded_encoder import LoadedEncoder
from capim.tasks.encoders.captions import max_length_of
from capim.tasks.encoders.checkpoints.checkpoint import adapter_over_pinned_base, base_folder, json_file
from capim.tasks.encoders.checkpoints.complete import complete_folder
from capim.tasks.encoders.checkpoints.weights import loaded_quietly
from capim.tasks.encoders.encoder import Inputs
from capim.tasks.encoders.tensors import DTYPES


class ColVision(LoadedEncoder):
    """A model of colpali_engine."""

    def __init__(
        self, spec: EncoderSpec, device: str, *, model: Any, processor: Any, family: LateInteractionFamily
    ) -> None:
        logits = {"logits_to_keep": 1} if family.language_head else {}
        projected: list[Tensor] = []
        if spec.vectors == "multi":
            getattr(model, family.projection).register_forward_hook(
                lambda _module, _inputs, output: projected.append(output)
            )

        def forward(**inputs: Any) -> Any:
            projected.clear()  # a forward pass that ran out of memory may have left its vectors here
            pooled = model(**inputs, **logits)
            return (projected.pop(), inputs["attention_mask"]) if projected else pooled

        super().__init__(
            spec,
            device,
            modules=[model],
            forwards={"image": forward, "caption": forward},
            image_token=str(processor.image_token),
        )
        self.joins_images = family.joins_images
        self._processor = processor
        self._family = family
        self._image_prompt = str(spec.options["image_prompt"])
        processor.visual_prompt_prefix = self._image_prompt
        limit = getattr(model.config.get_text_config(), "max_position_embeddings", 512)
        self._max_length = max_length_of(spec, default=min(limit, 512), limit=limit)

    def pixels(self, images: list[Image]) -> Inputs:
        """The processor's pixels and image prompt."""
        with self._tokenizing:  # the processor tokenises its image prompt
            if self._family.chat:
                turn = self._turn({"type": "image"}, {"type": "text", "text": self._image_prompt})
                batch = self._read(text=[turn] * len(images), images=[[image] for image in images])
            else:
                batch = dict(self._processor.process_images(images))
        batch.pop("labels", None)
        return batch

    def tokens(self, texts: list[str]) -> tuple[Inputs, NDArray[np.integer], NDArray[np.bool_]]:
        """The processor's token ids and mask."""
        if self._family.chat:
            batch = self._read(text=[self._turn({"type": "text", "text": text}) for text in texts])
        else:
            batch = dict(self._processor.process_texts(texts))
        lengths = batch["attention_mask"].sum(dim=1).numpy()
        if lengths.max() > self._max_length:
            batch = {name: self._truncated(value, batch["attention_mask"]) for name, value in batch.items()}
        if self._family.prefix_attention:
            batch["token_type_ids"] = torch.zeros_like(batch["input_ids"])
        return batch, np.minimum(lengths, self._max_length), lengths > self._max_length

    def layouts(self, modality: Modality, inputs: Inputs) -> tuple[str, ...] | None:
        """The grids of patches of images, the tokens of captions; none for a Bi model, which has one vector."""
        if self.spec.vectors == "single":
            return None
        batch: Any = inputs
        kept = zip(batch["input_ids"], batch["attention_mask"].bool(), strict=True)
        tokens = [self._processor.tokenizer.convert_ids_to_tokens(ids[mask].tolist()) for ids, mask in kept]
        if modality == "caption":
            return tuple(layout_of_tokens(each) for each in tokens)
        grids = patch_grids(inputs, self._processor, len(tokens))
        # in a conversation, the processor's own image token stands for a whole image
        token = str((self._processor.tokenizer if self._family.chat else self._processor).image_token)
        return tuple(image_layout(each, token, grid=grid) for each, grid in zip(tokens, grids, strict=True))

    def _turn(self, *content: dict[str, str]) -> str:
        """One turn of a conversation, as the checkpoint's chat template writes it."""
        message = [{"role": "user", "content": list(content)}]
        return str(self._processor.tokenizer.apply_chat_template(message, tokenize=False))

    def _read(self, **items: Any) -> dict[str, Any]:
        return dict(self._processor(**items, padding="longest", return_tensors="pt"))

    def _truncated(self, values: Tensor, mask: Tensor) -> Tensor:
        """The first tokens of every row, as many as the model takes, padded on the side of the family."""
        if self._family.padding == "right":
            return values[:, : self._max_length]
        rows = [row[kept.bool()][: self._max_length].flip(0) for row, kept in zip(values, mask, strict=True)]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).flip(1)


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> ColVision:
    """Load a colpali_engine checkpoint, complete or LoRA over its base."""
    import colpali_engine.models
    from transformers import AutoConfig, AutoImageProcessor

    folder = complete_folder(spec)
    base = base_folder(spec, folder)
    config = AutoConfig.from_pretrained(base or folder)
    if config.model_type not in FAMILIES:
        raise RequestError(
            f"encoder {spec.name!r}: {spec.checkpoint} is a {config.model_type!r} model; adapter colvision loads "
            f"{', '.join(FAMILIES)}, and adapter sentence_transformers the late-interaction models of transformers"
        )
    family = FAMILIES[config.model_type]
    with loaded_quietly():
        name = _class_of(spec, family, folder, known=dir(colpali_engine.models))
        model = _load_model(getattr(colpali_engine.models, name), spec, folder, base)
        processor = getattr(colpali_engine.models, family.processor).from_pretrained(folder)
    # Pillow resizes as in training; torchvision's resize differs by up to 0.015
    processor.image_processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    return ColVision(spec, device, model=model, processor=processor, family=family)


def _class_of(spec: EncoderSpec, family: LateInteractionFamily, folder: Path, *, known: Sequence[str]) -> str:
    """The class of colpali_engine that the checkpoint names, or the usual one of its family.

    Raises:
        RequestError: It gives the other kind of vectors than the spec says.
    """
    trained = (json_file(folder / "adapter_config.json") or {}).get("auto_mapping") or {}
    declared = [
        *((json_file(folder / "config.json") or {}).get("architectures") or []),
        trained.get("base_model_class"),
    ]
    for name in declared:
        if name in known and name.startswith(tuple(KINDS.values())):
            if name.startswith(KINDS[spec.vectors]):
                return str(name)
            other = next(kind for kind, prefix in KINDS.items() if name.startswith(prefix))
            raise RequestError(
                f"encoder {spec.name!r}: {spec.checkpoint} holds a {name}, so that vectors must be {other!r}, "
                f"got {spec.vectors!r}"
            )
    return KINDS[spec.vectors] + family.name


def _load_model(cls: Any, spec: EncoderSpec, folder: Path, base: Path | None) -> Any:
    settings: dict[str, Any] = {"dtype": DTYPES[spec.precision], "attn_implementation": "sdpa"}
    if not hasattr(cls, "_checkpoint_conversion_mapping"):
        settings["key_mapping"] = {}  # colpali_engine 0.3 asks transformers for this table, which version 5 has moved
    if base is None:
        model = cls.from_pretrained(folder, **settings)
    else:
        with adapter_over_pinned_base(folder, base) as pinned:
            model = cls.from_pretrained(pinned, **settings)
    if hasattr(model, "model") and hasattr(model.model, "tie_weights"):
        model.model.tie_weights()  # gives the unused head storage, without which the model cannot be moved
    return model
