"""Models of colpali_engine: one vector per image patch and caption token (Col), or one per item (Bi).

Multi-vectors are taken before the model's own normalisation, so that their norms can be stored; padding is dropped by
the attention mask. A Bi model pools and normalises by itself. A checkpoint is either complete or a LoRA adapter over a
base model in a second repository. Captions are queries in the form of the processor's own ``process_queries``, images
are documents with the processor's prompt, unless the options ``caption_template`` and ``image_prompt`` override them;
``resolve`` writes both into the options.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor

from capim.store.errors import RequestError
from capim.store.types import MODALITIES, EncoderSpec, Modality
from capim.tasks.encoders.adapters.late_interaction import FAMILIES, KINDS, LateInteractionFamily, layouts_of
from capim.tasks.encoders.adapters.loaded_encoder import LoadedEncoder, Tokenized, max_length_of
from capim.tasks.encoders.adapters.recognition import colpali_engine_classes
from capim.tasks.encoders.checkpoint import base_folder, complete_folder, json_file
from capim.tasks.encoders.encoder import Inputs
from capim.tasks.encoders.tensors import DTYPES


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> LoadedEncoder:
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
    name = _class_of(spec, family, folder, known=dir(colpali_engine.models))
    model = _load_model(getattr(colpali_engine.models, name), spec, folder, base)
    processor = getattr(colpali_engine.models, family.processor).from_pretrained(folder)
    # Pillow resizes as in training; torchvision's resize differs by up to 0.015
    processor.image_processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    prompt = processor.visual_prompt_prefix = str(spec.options["image_prompt"])
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", 512)
    max_length = max_length_of(spec, default=min(limit, 512), limit=limit)

    def turn(*content: dict[str, str]) -> str:
        """Return one turn of a conversation in the checkpoint's chat template."""
        message = [{"role": "user", "content": list(content)}]
        return str(processor.tokenizer.apply_chat_template(message, tokenize=False))

    def pixels(images: list[Image]) -> Inputs:
        if not family.chat:
            batch = processor.process_images(images)
            return {name: values for name, values in batch.items() if name != "labels"}
        texts = [turn({"type": "image"}, {"type": "text", "text": prompt})] * len(images)
        items = [[image] for image in images]
        return dict(processor(text=texts, images=items, padding="longest", return_tensors="pt"))

    def tokens(texts: list[str]) -> Tokenized:
        turns = [turn({"type": "text", "text": text}) for text in texts] if family.chat else []
        chat = {"text": turns, "padding": "longest", "return_tensors": "pt"}
        batch = dict(processor(**chat) if family.chat else processor.process_texts(texts))
        mask = batch["attention_mask"]
        lengths = mask.sum(dim=1).numpy()
        if lengths.max() > max_length:
            batch = {name: _first_tokens(value, mask, max_length, family.padding) for name, value in batch.items()}
        if family.prefix_attention:
            batch["token_type_ids"] = torch.zeros_like(batch["input_ids"])
        return batch, np.minimum(lengths, max_length), lengths > max_length

    def layouts(modality: Modality, inputs: Any) -> tuple[str, ...] | None:
        if spec.vectors == "single":
            return None
        kept, tokenizer = inputs["attention_mask"], processor.tokenizer
        # in a conversation, the processor's own image token means a whole image
        token = str((tokenizer if family.chat else processor).image_token)
        return layouts_of(modality, inputs, kept, tokenizer=tokenizer, processor=processor, image_token=token)

    return LoadedEncoder(
        spec,
        device,
        modules=[model],
        forwards=dict.fromkeys(MODALITIES, _forward(model, family, spec)),
        pixels=pixels,
        tokens=tokens,
        layouts=layouts,
        image_token=str(processor.image_token),
        joins_images=family.joins_images,
    )


def _forward(model: Any, family: LateInteractionFamily, spec: EncoderSpec) -> Callable[..., Any]:
    """Return the forward pass: for multi-vectors the projection's outputs and the mask, else the pooled vector."""
    logits = {"logits_to_keep": 1} if family.language_head else {}
    projected: list[Tensor] = []
    if spec.vectors == "multi":
        projection = getattr(model, family.projection)
        projection.register_forward_hook(lambda _module, _inputs, output: projected.append(output))

    def forward(**inputs: Any) -> Any:
        projected.clear()  # a forward pass that ran out of memory may have left its vectors here
        pooled = model(**inputs, **logits)
        return (projected.pop(), inputs["attention_mask"]) if projected else pooled

    return forward


def _first_tokens(values: Tensor, mask: Tensor, n: int, padding: str) -> Tensor:
    """Return the first ``n`` tokens of every row, padded on the given side."""
    if padding == "right":
        return values[:, :n]
    rows = [row[kept.bool()][:n].flip(0) for row, kept in zip(values, mask, strict=True)]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).flip(1)


def _class_of(spec: EncoderSpec, family: LateInteractionFamily, folder: Path, *, known: Sequence[str]) -> str:
    """Return the class of colpali_engine that the checkpoint names, or the usual one of its family.

    Raises:
        RequestError: If it gives the other kind of vectors than the spec says.
    """
    for name in filter(known.__contains__, colpali_engine_classes(lambda file: json_file(folder / file))):
        if name.startswith(KINDS[spec.vectors]):
            return name
        if other := [kind for kind, prefix in KINDS.items() if name.startswith(prefix)]:
            raise RequestError(
                f"encoder {spec.name!r}: {spec.checkpoint} holds a {name}, so that vectors must be {other[0]!r}, "
                f"got {spec.vectors!r}"
            )
    return KINDS[spec.vectors] + family.name


def _load_model(cls: Any, spec: EncoderSpec, folder: Path, base: Path | None) -> Any:
    """Return the model of a class, complete or LoRA over its base."""
    settings: dict[str, Any] = {"dtype": DTYPES[spec.precision], "attn_implementation": "sdpa"}
    if not hasattr(cls, "_checkpoint_conversion_mapping"):
        settings["key_mapping"] = {}  # colpali_engine 0.3 requests this table, which transformers 5 has moved
    if base is None:
        model = cls.from_pretrained(folder, **settings)
    else:
        # a copy that names its base model by folder, not by a repository that may change
        changes = {"base_model_name_or_path": str(base.resolve()), "revision": None}
        with tempfile.TemporaryDirectory(prefix="capim-adapter-") as name:
            for file in folder.iterdir():
                if file.name != "adapter_config.json":
                    (Path(name) / file.name).symlink_to(file.resolve())
            config = json_file(folder / "adapter_config.json") | changes
            (Path(name) / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
            model = cls.from_pretrained(Path(name), **settings)
    if hasattr(model, "model") and hasattr(model.model, "tie_weights"):
        model.model.tie_weights()  # gives the unused head storage, without which the model cannot be moved
    return model
