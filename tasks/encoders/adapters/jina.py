"""jina-clip v1 and v2, which come with Python code of their own: run only with consent, at pinned commits.

That code needs two adjustments for transformers 5. It imports a function that transformers renamed. And
``from_pretrained`` would build the model without storage and leave buffers that are not in the checkpoint
uninitialised, so the model is built normally and its weights are loaded strictly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL.Image import Image

from capim.store.errors import RequestError
from capim.store.types import EncoderSpec
from capim.tasks.encoders.adapters import adapter_named, pins_of
from capim.tasks.encoders.adapters.loaded_encoder import LoadedEncoder, Tokenized, max_length_of, tokenize
from capim.tasks.encoders.checkpoint import complete_folder, json_file, related_folder
from capim.tasks.encoders.encoder import Inputs
from capim.tasks.encoders.tensors import DTYPES
from capim.tasks.encoders.weights import read_tensors, weights_file

_MAX_LENGTH = 512  # the default of the model's own encode_text


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> LoadedEncoder:
    """Load a jina-clip model with its own code.

    Option ``truncate_dim`` keeps the first ``dim`` components (Matryoshka).

    Raises:
        RequestError: Without consent to run that code.
    """
    if not trust_remote_code:
        raise RequestError(
            f"encoder {spec.name!r}: {spec.checkpoint} brings Python code that would run on this machine "
            f"(at {spec.revision}); read it, then allow it with --trust-remote-code"
        )
    from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer
    from transformers.dynamic_module_utils import get_class_from_dynamic_module

    restore_clip_loss()
    folder = complete_folder(spec)
    pins, name = pins_of(spec), str(json_file(folder / "config.json")["auto_map"]["AutoModel"])
    trusted: dict[str, Any] = {"trust_remote_code": True, "code_revision": pins.get(name.partition("--")[0])}
    config = AutoConfig.from_pretrained(folder, **trusted)
    config._name_or_path = str(folder)  # noqa: SLF001 - where the model's own code looks for its tokenizer
    text = getattr(config.text_config, "hf_model_name_or_path", None)
    if text in pins:
        config.text_config.hf_model_name_or_path = str(related_folder(spec, text))
    # AutoModel.from_config would take the code's newest commit instead of the pinned one
    model = get_class_from_dynamic_module(name, str(folder), code_revision=trusted["code_revision"])(config)
    weights = weights_file(folder, adapter_named(spec.adapter).weights, spec)
    model.load_state_dict(read_tensors(weights), strict=True)
    image_processor = AutoImageProcessor.from_pretrained(folder, **trusted)
    tokenizer = AutoTokenizer.from_pretrained(folder, **trusted)
    max_length = max_length_of(spec, default=_MAX_LENGTH, limit=min(8192, tokenizer.model_max_length))
    kept = slice(spec.dim if spec.options.get("truncate_dim") else None)

    def pixels(images: list[Image]) -> Inputs:
        values = image_processor(images)["pixel_values"]
        return {"pixel_values": values if torch.is_tensor(values) else torch.as_tensor(np.asarray(values))}

    def tokens(texts: list[str]) -> Tokenized:
        # padded to the longest caption; the model recognises padding by its id
        (ids, _), n_tokens, truncated = tokenize(tokenizer, texts, max_length=max_length, width=None)
        return {"input_ids": ids}, n_tokens, truncated

    return LoadedEncoder(
        spec,
        device,
        modules=[model.to(DTYPES[spec.precision])],
        forwards={
            "image": lambda **inputs: model.get_image_features(**inputs)[:, kept],
            "caption": lambda **inputs: model.get_text_features(**inputs)[:, kept],
        },
        pixels=pixels,
        tokens=tokens,
    )


def restore_clip_loss() -> None:
    """Restore the name in transformers' CLIP module by which jina's code imports its loss function."""
    import transformers.models.clip.modeling_clip as clip

    if not hasattr(clip, "clip_loss"):
        clip.clip_loss = clip.image_text_contrastive_loss
