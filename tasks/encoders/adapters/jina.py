"""jina-clip v1 and v2, whose Python code comes with the checkpoint: run only by consent, at pinned commits.

Two things stand between that code and transformers 5, and both are dealt with here. It imports a function that
transformers renamed. And ``from_pretrained`` builds models without storage, which leaves buffers that are not in the
checkpoint uninitialised: so the model is built as usual and its weights are loaded strictly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL.Image import Image

from store.errors import RequestError
from store.types import Embeddings, EncoderSpec, Modality
from tasks.encoders.captions import Template, max_length_of, pad_rows
from tasks.encoders.checkpoints.checkpoint import companion_folder, folder_of
from tasks.encoders.checkpoints.related_repositories import PIN
from tasks.encoders.checkpoints.weights import MissingWeightsError, loaded_quietly
from tasks.encoders.encoder import Prepared
from tasks.encoders.pixels import in_rgb
from tasks.encoders.tensors import DTYPES, dense_embeddings, move

_MAX_LENGTH = 512  # the default of the model's own encode_text


class Jina:
    """A jina-clip model; see :class:`tasks.encoders.encoder.Encoder`."""

    joins_images = True
    pads_to_longest = True

    def __init__(self, spec: EncoderSpec, model: Any, image_processor: Any, tokenizer: Any, device: str) -> None:
        self.spec = spec
        self.device = device
        self._model = model.to(device=torch.device(device), dtype=DTYPES[spec.precision]).eval()
        self.modules = (model,)
        self.forwards: dict[Modality, Callable[..., Any]] = {
            "image": model.get_image_features,
            "caption": model.get_text_features,
        }
        self._image_processor = image_processor
        self._tokenizer = tokenizer
        self._tokenizing = threading.Lock()  # a fast tokenizer must not be used by two threads at once
        self._template = Template.of(spec)
        self._max_length = max_length_of(spec, default=_MAX_LENGTH, limit=min(8192, tokenizer.model_max_length))

    def prepare_images(self, images: Sequence[Image]) -> Prepared:
        """Pixels as the checkpoint's own processor makes them."""
        pixels = self._image_processor(in_rgb(images))["pixel_values"]
        return Prepared(
            modality="image",
            inputs={"pixel_values": torch.as_tensor(np.asarray(pixels)) if not torch.is_tensor(pixels) else pixels},
            n_tokens=np.zeros(len(images), dtype=np.int32),
            truncated=np.zeros(len(images), dtype=np.bool_),
        )

    def prepare_captions(self, captions: Sequence[str]) -> Prepared:
        """Token ids, padded to the longest; the model finds the padding by its id."""
        texts = [self._template.fill(caption) for caption in captions]
        with self._tokenizing:
            lengths = [len(row) for row in self._tokenizer(texts, verbose=False)["input_ids"]]
            rows = self._tokenizer(texts, truncation=True, max_length=self._max_length)["input_ids"]
        ids, mask = pad_rows(rows, pad=self._tokenizer.pad_token_id, width=None)
        return Prepared(
            modality="caption",
            inputs={"input_ids": torch.from_numpy(ids)},
            n_tokens=mask.sum(axis=1).astype(np.int32),
            truncated=np.asarray(lengths) > self._max_length,
        )

    def embed(self, prepared: Prepared) -> Embeddings:
        """Features, cut to the first ``dim`` components (Matryoshka) where the spec asks for fewer, normalised."""
        with torch.inference_mode():
            inputs = move(prepared.inputs, torch.device(self.device), DTYPES[self.spec.precision])
            features = self.forwards[prepared.modality](**inputs)
            if self.spec.options.get("truncate_dim"):
                features = features[:, : self.spec.dim]
            return dense_embeddings(features, prepared, self.spec)


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> Jina:
    """Load a jina-clip model with its own code.

    Raises:
        RequestError: No consent to run that code.
    """
    if not trust_remote_code:
        raise RequestError(
            f"encoder {spec.name!r}: {spec.checkpoint} brings Python code that would run on this machine "
            f"(at {spec.revision}); read it, then allow it with --trust-remote-code"
        )
    from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer
    from transformers.dynamic_module_utils import get_class_from_dynamic_module

    restore_clip_loss()
    folder = folder_of(spec)
    code = [name for key, name in spec.options.items() if key.startswith(PIN)]
    trusted: dict[str, Any] = {"trust_remote_code": True, "code_revision": code[0] if code else None}
    config = AutoConfig.from_pretrained(folder, **trusted)
    config._name_or_path = str(folder)  # noqa: SLF001 - where the model's own code looks for its tokenizer
    text = getattr(config.text_config, "hf_model_name_or_path", None)
    if text and PIN + text in spec.options:
        config.text_config.hf_model_name_or_path = str(companion_folder(spec, text))
    # AutoModel.from_config would take the code's newest commit instead of the pinned one
    name = config.auto_map["AutoModel"]
    with loaded_quietly():
        model = get_class_from_dynamic_module(name, str(folder), code_revision=trusted["code_revision"])(config)
    try:
        model.load_state_dict(_state(folder, spec), strict=True)
    except RuntimeError as error:
        raise MissingWeightsError(f"encoder {spec.name!r}: {spec.checkpoint} does not fit: {error}") from error
    return Jina(
        spec,
        model,
        AutoImageProcessor.from_pretrained(folder, **trusted),
        AutoTokenizer.from_pretrained(folder, trust_remote_code=True),
        device,
    )


def restore_clip_loss() -> None:
    """Give transformers' CLIP module back the name by which jina's code imports its loss function."""
    import transformers.models.clip.modeling_clip as clip

    if not hasattr(clip, "clip_loss"):
        clip.clip_loss = clip.image_text_contrastive_loss


def _state(folder: Path, spec: EncoderSpec) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    if (folder / "model.safetensors").is_file():
        return dict(load_file(folder / "model.safetensors"))
    if (folder / "pytorch_model.bin").is_file():
        return dict(torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True))
    raise MissingWeightsError(f"encoder {spec.name!r}: {folder} holds no weights; download it again")
