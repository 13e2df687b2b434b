"""Dual encoders of transformers: one tower for images, one for captions, one vector each.

The families (``recognition.DUAL_FAMILIES``) differ in how captions are padded, whether the model takes an attention
mask, and whether captions are lower-cased. The vector is ``pooler_output`` of ``get_image_features`` and
``get_text_features``, which transformers leaves unnormalised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from capim.store.errors import RequestError
from capim.store.types import EncoderSpec
from capim.tasks.encoders.adapters.loaded_encoder import LoadedEncoder, Tokenized, max_length_of, tokenize
from capim.tasks.encoders.adapters.recognition import DUAL_FAMILIES
from capim.tasks.encoders.checkpoint import complete_folder
from capim.tasks.encoders.pixels import pipeline_of_processor
from capim.tasks.encoders.tensors import DTYPES


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> LoadedEncoder:
    """Load a transformers dual encoder; code in its repository is never run."""
    from transformers import AutoConfig, AutoImageProcessor, AutoModel, AutoTokenizer

    folder = complete_folder(spec)
    config = AutoConfig.from_pretrained(folder)
    if config.model_type not in DUAL_FAMILIES:
        raise RequestError(
            f"encoder {spec.name!r}: {spec.checkpoint} is a {config.model_type!r} model; adapter hf_dual loads "
            f"{', '.join(DUAL_FAMILIES)}"
        )
    family = DUAL_FAMILIES[config.model_type]
    # without dtype, transformers 5 takes the type of the file
    model = AutoModel.from_pretrained(folder, dtype=DTYPES[spec.precision], attn_implementation="sdpa")
    # Pillow resizes as in training; torchvision's resize differs by up to 0.015
    image_processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    positions = model.config.text_config.max_position_embeddings
    max_length = max_length_of(spec, default=family.max_length or positions, limit=positions)

    def tokens(texts: list[str]) -> Tokenized:
        texts = [text.lower() for text in texts] if family.lower_case else texts
        width = max_length if family.padding == "fixed" else None
        (ids, mask), n_tokens, truncated = tokenize(tokenizer, texts, max_length=max_length, width=width)
        mask[:, 0] = 1  # an empty caption has no token in TIPSv2, and would have a vector of zeros
        return {"input_ids": ids, **({"attention_mask": mask} if family.mask else {})}, n_tokens, truncated

    return LoadedEncoder(
        spec,
        device,
        modules=[model],
        forwards={"image": _pooled(model.get_image_features), "caption": _pooled(model.get_text_features)},
        pixels=lambda images: dict(image_processor(images=images, return_tensors="pt")),
        tokens=tokens,
        pixel_input="pixel_values",
        pixel_pipeline=pipeline_of_processor(image_processor),
        patch_size=int(getattr(model.config.vision_config, "patch_size", 0)),
        pads_to_longest=family.padding == "longest",
    )


def _pooled(features: Callable[..., Any]) -> Callable[..., Any]:
    def forward(**inputs: Any) -> Any:
        output = features(**inputs)
        return getattr(output, "pooler_output", output)

    return forward
