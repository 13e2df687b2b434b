"""sentence-transformers models for images and text: one vector per item, or many (``MultiVectorEncoder``).

Their own modules preprocess, pool and project. Captions are encoded as ``encode_query`` does, images as
``encode_document``, each with the prompt of its role from ``config_sentence_transformers.json``; the options
``caption_role``, ``caption_prompt``, ``image_role`` and ``image_prompt`` say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image

from capim.store.errors import RequestError
from capim.store.types import EncoderSpec, Modality
from capim.store.vectors import layout_of_tokens
from capim.tasks.encoders.adapters.late_interaction import image_layout, moved, patch_grids
from capim.tasks.encoders.adapters.loaded_encoder import LoadedEncoder
from capim.tasks.encoders.checkpoints.checkpoint import json_file
from capim.tasks.encoders.checkpoints.complete import complete_folder
from capim.tasks.encoders.checkpoints.weights import loaded_quietly
from capim.tasks.encoders.encoder import Inputs
from capim.tasks.encoders.tensors import DTYPES, rows_of_items


class SentenceTransformers(LoadedEncoder):
    """A sentence-transformers model; the vectors are its sentence embedding, or its token embeddings that count."""

    joins_images = False  # the model's own preprocessing need not return one row per image

    def __init__(self, spec: EncoderSpec, device: str, *, model: Any) -> None:
        super().__init__(
            spec,
            device,
            modules=[model],
            image_token=str(getattr(model.processor, "image_token", None) or ""),
            forwards={
                "image": _forward(model, _task(spec, "image")),
                "caption": _forward(model, _task(spec, "caption")),
            },
        )
        self.dtype = model.dtype
        self._model = model
        self._limit = getattr(model[0], "query_length", None) or model.max_seq_length or np.inf

    def pixels(self, images: list[Image]) -> Inputs:
        """The outputs of the model's own preprocessing."""
        with self._tokenizing:
            return self._preprocessed(images, "image")

    def tokens(self, texts: list[str]) -> tuple[Inputs, NDArray[np.integer], NDArray[np.bool_]]:
        """The outputs of the model's own preprocessing; a caption that fills the model counts as truncated."""
        features = self._preprocessed(texts, "caption")
        mask = features.get("attention_mask")
        n_tokens = mask.sum(dim=1).numpy() if torch.is_tensor(mask) else np.zeros(len(texts), dtype=np.int32)
        return features, n_tokens, n_tokens >= self._limit

    def layouts(self, modality: Modality, inputs: Inputs) -> tuple[str, ...] | None:
        """The grids of patches of images, the tokens of captions, of those that the model's mask leaves.

        Not known where the model has no token ids, merges vectors, or names no token for a patch.
        """
        from sentence_transformers.multi_vector_encoder.modules import BaseTokenPooling, MultiVectorMask

        batch: Any = inputs
        tokenizer, processor = self._model.tokenizer, self._model.processor
        if self.spec.vectors == "single" or "input_ids" not in batch or not hasattr(tokenizer, "convert_ids_to_tokens"):
            return None
        read, mask = batch["attention_mask"].bool(), dict(batch)
        for module in self._model:
            if isinstance(module, BaseTokenPooling):
                return None
            if isinstance(module, MultiVectorMask):
                mask = module(mask, task=_task(self.spec, modality))
        kept = mask["attention_mask"].bool()
        if modality == "caption":
            chosen = [ids[has].tolist() for ids, has in zip(batch["input_ids"], kept, strict=True)]
            return tuple(layout_of_tokens(tokenizer.convert_ids_to_tokens(ids)) for ids in chosen)
        token = getattr(tokenizer, "image_token", None) or getattr(processor, "image_token", None)
        if token is None or not hasattr(processor, "image_processor"):
            return None
        found = []
        for ids, real, has, grid in zip(
            batch["input_ids"], read, kept, patch_grids(batch, processor, len(read)), strict=True
        ):
            tokens = tokenizer.convert_ids_to_tokens(ids[real].tolist())
            found.append(moved(image_layout(tokens, str(token), grid=grid), has[real].tolist()))
        return tuple(found)

    def _preprocessed(self, items: list[Any], modality: Modality) -> Inputs:
        prompt, task = str(self.spec.options[f"{modality}_prompt"]), _task(self.spec, modality)
        features = self._model.preprocess(items, prompt=prompt or None, **({"task": task} if task else {}))
        return rows_of_items(features, len(items))


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> SentenceTransformers:
    """Load a sentence-transformers folder, or a late-interaction model of transformers (``…ForRetrieval``)."""
    from sentence_transformers import MultiVectorEncoder, SentenceTransformer

    folder = complete_folder(spec)
    _check_kind(spec, folder)
    with loaded_quietly():
        model = {"single": SentenceTransformer, "multi": MultiVectorEncoder}[spec.vectors](
            str(folder),
            device=device,
            trust_remote_code=trust_remote_code,
            model_kwargs={"torch_dtype": DTYPES[spec.precision]},
        )
    return SentenceTransformers(spec, device, model=model)


def _check_kind(spec: EncoderSpec, folder: Path) -> None:
    """Refuse a checkpoint of the other kind: the library would convert it, with a projection of random numbers."""
    architectures = (json_file(folder / "config.json") or {}).get("architectures") or [""]
    usual = "MultiVectorEncoder" if architectures[0].endswith(("ForRetrieval", "HF_ColBERT")) else "SentenceTransformer"
    declared = (json_file(folder / "config_sentence_transformers.json") or {}).get("model_type", usual)
    vectors = "multi" if declared in ("MultiVectorEncoder", "ColBERT") else "single"
    if vectors != spec.vectors:
        raise RequestError(
            f"encoder {spec.name!r}: {spec.checkpoint} is a {declared}, so that vectors must be {vectors!r}, got "
            f"{spec.vectors!r}"
        )


def _task(spec: EncoderSpec, modality: Modality) -> str | None:
    role = str(spec.options[f"{modality}_role"])
    return None if role == "none" else role


def _forward(model: Any, task: str | None) -> Callable[..., Any]:
    def forward(**features: Any) -> Any:
        output = model(features, **({"task": task} if task else {}))
        if "sentence_embedding" not in output:
            return output["token_embeddings"], output["attention_mask"]
        return output["sentence_embedding"][:, : model.truncate_dim]

    return forward
