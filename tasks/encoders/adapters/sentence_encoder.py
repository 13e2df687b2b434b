"""sentence-transformers models for images and text: one vector per item, or many (``MultiVectorEncoder``).

Their own modules preprocess, pool and project. Captions are encoded as in ``encode_query``, images as in
``encode_document``, each with the prompt of its role from ``config_sentence_transformers.json``; the options
``caption_role``, ``caption_prompt``, ``image_role`` and ``image_prompt`` override them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from capim.store.errors import RequestError
from capim.store.types import MODALITIES, EncoderSpec, Modality
from capim.tasks.encoders.adapters.late_interaction import layouts_of
from capim.tasks.encoders.adapters.loaded_encoder import LoadedEncoder, Tokenized
from capim.tasks.encoders.adapters.recognition import sentence_transformers_kind
from capim.tasks.encoders.checkpoint import complete_folder, json_file
from capim.tasks.encoders.encoder import Inputs
from capim.tasks.encoders.tensors import DTYPES, rows_of_items


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> LoadedEncoder:
    """Load a sentence-transformers folder, or a late-interaction model of transformers (``…ForRetrieval``)."""
    from sentence_transformers import MultiVectorEncoder, SentenceTransformer

    folder = complete_folder(spec, may_be_blind=True)
    _check_kind(spec, folder)
    model = {"single": SentenceTransformer, "multi": MultiVectorEncoder}[spec.vectors](
        str(folder),
        device=device,
        trust_remote_code=trust_remote_code,
        model_kwargs={"torch_dtype": DTYPES[spec.precision]},
    )
    roles = {m: str(spec.options[f"{m}_role"]) for m in MODALITIES}
    tasks = {m: {} if role == "none" else {"task": role} for m, role in roles.items()}
    limit = getattr(model[0], "query_length", None) or model.max_seq_length or np.inf

    def preprocessed(items: list[Any], modality: Modality) -> Inputs:
        if modality == "image" and not model.supports("image"):
            raise RequestError(
                f"encoder {spec.name!r}: {spec.checkpoint} reads {' and '.join(model.modalities)}, not images; its "
                "captions can be encoded: capim embed --only captions"
            )
        prompt = str(spec.options[f"{modality}_prompt"]) or None
        return rows_of_items(model.preprocess(items, prompt=prompt, **tasks[modality]), len(items))

    def tokens(texts: list[str]) -> Tokenized:
        features = preprocessed(texts, "caption")
        mask = features.get("attention_mask")
        n_tokens = mask.sum(dim=1).numpy() if torch.is_tensor(mask) else np.zeros(len(texts), dtype=np.int32)
        return features, n_tokens, n_tokens >= limit  # a caption that fills the model counts as truncated

    return LoadedEncoder(
        spec,
        device,
        modules=[model],
        forwards={modality: partial(_forward, model, task) for modality, task in tasks.items()},
        pixels=lambda images: preprocessed(images, "image"),
        tokens=tokens,
        layouts=lambda m, inputs: _layouts(model, m, inputs, tasks[m]) if spec.vectors == "multi" else None,
        image_token=str(getattr(model.processor, "image_token", None) or ""),
        joins_images=False,  # the model's own preprocessing need not return one row per image
        dtype=model.dtype,
    )


def _layouts(model: Any, modality: Modality, inputs: Any, task: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the grids of patches of images, or the tokens of captions, after the model's mask.

    None if the model has no token ids, merges vectors, or names no token for a patch.
    """
    from sentence_transformers.multi_vector_encoder.modules import BaseTokenPooling, MultiVectorMask

    tokenizer, processor = model.tokenizer, model.processor
    if "input_ids" not in inputs or not hasattr(tokenizer, "convert_ids_to_tokens"):
        return None
    mask = dict(inputs)
    for module in model:
        if isinstance(module, BaseTokenPooling):
            return None
        if isinstance(module, MultiVectorMask):
            mask = module(mask, **task)
    token = getattr(tokenizer, "image_token", None) or getattr(processor, "image_token", None)
    if modality == "image" and (token is None or not hasattr(processor, "image_processor")):
        return None
    kept = mask["attention_mask"]
    return layouts_of(modality, inputs, kept, tokenizer=tokenizer, processor=processor, image_token=str(token))


def _check_kind(spec: EncoderSpec, folder: Path) -> None:
    """Refuse a checkpoint of the other kind: the library would convert it, with a projection of random numbers."""
    declared, vectors = sentence_transformers_kind(lambda name: json_file(folder / name))
    if vectors != spec.vectors:
        raise RequestError(
            f"encoder {spec.name!r}: {spec.checkpoint} is a {declared}, so that vectors must be {vectors!r}, got "
            f"{spec.vectors!r}"
        )


def _forward(model: Any, task: Mapping[str, str], /, **features: Any) -> Any:
    output = model(features, **task)
    if "sentence_embedding" not in output:
        return output["token_embeddings"], output["attention_mask"]
    return output["sentence_embedding"][:, : model.truncate_dim]
