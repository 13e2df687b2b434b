"""Any sentence-transformers model that takes images and captions; its own modules preprocess, pool and project."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL.Image import Image

from store.types import Embeddings, EncoderSpec, Modality
from tasks.encoders.captions import Template
from tasks.encoders.checkpoints.checkpoint import folder_of
from tasks.encoders.checkpoints.weights import loaded_quietly
from tasks.encoders.encoder import Prepared
from tasks.encoders.pixels import in_rgb
from tasks.encoders.tensors import DTYPES, dense_embeddings, move


class SentenceTransformers:
    """A sentence-transformers model; see :class:`tasks.encoders.encoder.Encoder`."""

    joins_images = False  # what a model's own preprocessing returns need not have one row per image
    pads_to_longest = True

    def __init__(self, spec: EncoderSpec, model: Any, device: str) -> None:
        self.spec = spec
        self.device = device
        self._model = model.eval()
        self.modules = (model,)
        self.forwards: dict[Modality, Callable[..., Any]] = {"image": model, "caption": model}
        self._preparing = threading.Lock()  # a fast tokenizer must not be used by two threads at once
        self._template = Template.of(spec)

    def prepare_images(self, images: Sequence[Image]) -> Prepared:
        """What the model's own preprocessing makes of the pictures."""
        return self._prepared("image", in_rgb(images))

    def prepare_captions(self, captions: Sequence[str]) -> Prepared:
        """What the model's own preprocessing makes of the captions."""
        return self._prepared("caption", [self._template.fill(caption) for caption in captions])

    def embed(self, prepared: Prepared) -> Embeddings:
        """The sentence embedding, before any normalisation of ours."""
        with torch.inference_mode():
            inputs = move(prepared.inputs, torch.device(self.device), self._model.dtype)
            output = self.forwards[prepared.modality](inputs)
            return dense_embeddings(output["sentence_embedding"], prepared, self.spec)

    def _prepared(self, modality: Modality, items: list[Any]) -> Prepared:
        with self._preparing:
            features = dict(self._model.preprocess(items))
        mask = features.get("attention_mask")
        n_tokens = mask.sum(dim=1).numpy() if torch.is_tensor(mask) else np.zeros(len(items))
        longest = self._model.max_seq_length or 0
        return Prepared(
            modality=modality,
            inputs=features,
            n_tokens=n_tokens.astype(np.int32),
            # the library cuts silently: a caption that fills the model may have been cut
            truncated=np.asarray(
                n_tokens >= longest if longest and modality == "caption" else np.zeros(len(items), bool)
            ),
        )


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
    return SentenceTransformers(spec, model, device)
