"""Any sentence-transformers model for images and captions; its own modules preprocess, pool and project."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image

from store.types import EncoderSpec
from tasks.encoders.adapters.loaded_encoder import LoadedEncoder
from tasks.encoders.checkpoints.checkpoint import folder_of
from tasks.encoders.checkpoints.weights import loaded_quietly
from tasks.encoders.encoder import Inputs
from tasks.encoders.tensors import DTYPES


class SentenceTransformers(LoadedEncoder):
    """A sentence-transformers model; the vector is its sentence embedding."""

    joins_images = False  # the model's own preprocessing need not return one row per image

    def __init__(self, spec: EncoderSpec, device: str, *, model: Any) -> None:
        def forward(**features: Any) -> Any:
            return model(features)["sentence_embedding"]

        super().__init__(spec, device, modules=[model], forwards={"image": forward, "caption": forward})
        self.dtype = model.dtype
        self._model = model

    def pixels(self, images: list[Image]) -> Inputs:
        """The outputs of the model's own preprocessing."""
        with self._tokenizing:
            return dict(self._model.preprocess(images))

    def tokens(self, texts: list[str]) -> tuple[Inputs, NDArray[np.integer], NDArray[np.bool_]]:
        """The outputs of the model's own preprocessing; a caption that fills the model counts as truncated."""
        features = dict(self._model.preprocess(texts))
        mask = features.get("attention_mask")
        n_tokens = mask.sum(dim=1).numpy() if torch.is_tensor(mask) else np.zeros(len(texts), dtype=np.int32)
        return features, n_tokens, n_tokens >= (self._model.max_seq_length or np.inf)


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> SentenceTransformers:
    """Load a sentence-transformers folder."""
    from sentence_transformers import SentenceTransformer

    with loaded_quietly():
        model = SentenceTransformer(
            str(folder_of(spec)),
            device=device,
            trust_remote_code=trust_remote_code,
            model_kwargs={"torch_dtype": DTYPES[spec.precision]},
        )
    return SentenceTransformers(spec, device, model=model)
