"""Any open_clip model: from the hub, from a folder, or by open_clip's own name ``architecture/tag``.

Preprocessing, activation and tokenizer follow the checkpoint's configuration. Captions are padded to the longest of
the batch where that leaves the vectors unchanged (a causal text tower, or one with a mask), although open_clip always
computes 77 tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Tensor

from capim.store.errors import RequestError
from capim.store.types import EncoderSpec
from capim.tasks.encoders.adapters.loaded_encoder import LoadedEncoder
from capim.tasks.encoders.adapters.open_clip_tags import open_clip_tag
from capim.tasks.encoders.captions import max_length_of
from capim.tasks.encoders.checkpoints.checkpoint import folder_of, json_file, related_folder, repository_of
from capim.tasks.encoders.checkpoints.hub import snapshot
from capim.tasks.encoders.checkpoints.weight_files import OPEN_CLIP_WEIGHTS
from capim.tasks.encoders.checkpoints.weights import weights_file
from capim.tasks.encoders.encoder import Inputs
from capim.tasks.encoders.pixels import pipeline_of_transform

_PRECISIONS = {"float32": "fp32", "bfloat16": "pure_bf16", "float16": "pure_fp16"}


class OpenClip(LoadedEncoder):
    """An open_clip model."""

    def __init__(self, spec: EncoderSpec, device: str, *, model: Any, transform: Any, tokenizer: Any) -> None:
        accepts_shorter, encode_text = _text_forward(model)
        super().__init__(
            spec,
            device,
            modules=[model],
            forwards={"image": model.encode_image, "caption": encode_text},
            pixel_input="image",
            pixel_pipeline=pipeline_of_transform(transform),
            patch_size=int(getattr(model.visual, "patch_size", (0,))[0]),
        )
        self.pads_to_longest = accepts_shorter
        self._transform = transform
        self._tokenizer = tokenizer
        inner = getattr(tokenizer, "tokenizer", None)  # open_clip's own tokenizer pads with 0 and has none
        self._pad = int(getattr(inner, "pad_token_id", 0) or 0)
        self._pads_with_end = int(getattr(inner, "eos_token_id", None) == self._pad)
        self._max_length = max_length_of(spec, default=tokenizer.context_length, limit=tokenizer.context_length)

    def pixels(self, images: list[Image]) -> Inputs:
        """The outputs of the checkpoint's transform."""
        return {"image": torch.stack([self._transform(image) for image in images])}

    def tokens(self, texts: list[str]) -> tuple[Inputs, NDArray[np.integer], NDArray[np.bool_]]:
        """Token ids of the checkpoint's tokenizer, without columns of mere padding where possible."""
        ids, truncated = self._tokenize(texts)
        # a word may have the same id as the padding: the last token that is not padding counts
        used = (ids != self._pad) * torch.arange(1, ids.shape[1] + 1)
        n_tokens = (used.max(dim=1).values + self._pads_with_end).clamp(1, self._max_length)
        if self.pads_to_longest:
            ids = ids[:, : int(n_tokens.max())]
        return {"text": ids.contiguous()}, n_tokens.numpy(), truncated.numpy()

    def _tokenize(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        """Ids, and which captions were truncated: those that fill one column more than the model takes."""
        length = self._max_length
        if getattr(self._tokenizer, "reduction_fn", None) or getattr(self._tokenizer, "tokenizer_mode", ""):
            # the last token of a truncated caption is not its end here: a full row may have been truncated
            ids: Tensor = self._tokenizer(texts, context_length=length)
            return ids, (ids != self._pad).all(dim=1)
        ids = self._tokenizer(texts, context_length=length + 1)
        truncated = ids[:, length - self._pads_with_end] != self._pad
        ids = ids[:, :length].clone()
        rows = truncated.nonzero().flatten().tolist()
        if rows:
            ids[rows] = self._tokenizer([texts[row] for row in rows], context_length=length)
        return ids, truncated


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> OpenClip:
    """Load an open_clip model."""
    import open_clip

    tag = open_clip_tag(spec)
    if tag is not None:
        folder = snapshot(tag.repository, spec.revision, tag.weights)
        config: Any = tag.config
        name = tag.architecture
        # the preprocessing that belongs to the weights, under the names of open_clip's arguments
        settings: dict[str, Any] = {f"image_{key}": value for key, value in tag.preprocess.items()}
        settings["pretrained"] = str(weights_file(folder, tag.weights, spec))
    else:
        folder = folder_of(spec)
        described = json_file(folder / "open_clip_config.json")
        if described is None:
            raise RequestError(
                f"encoder {spec.name!r}: {spec.checkpoint} has no open_clip_config.json; name it as architecture/tag, "
                "or use adapter hf_dual if it is a transformers checkpoint"
            )
        config = described["model_cfg"]
        name, settings = f"local-dir:{folder}", {}
        weights_file(folder, OPEN_CLIP_WEIGHTS, spec)
    text = dict(config["text_cfg"])
    if text.get("hf_model_name"):
        # the text tower's architecture is described in a second repository: use its pinned folder
        tower = related_folder(spec, text["hf_model_name"])
        settings["text_cfg"] = text | {"hf_model_name": str(tower), "hf_model_pretrained": False}
    model, transform = open_clip.create_model_from_pretrained(name, precision=_PRECISIONS[spec.precision], **settings)
    tokenizer = _tokenizer(spec, folder, name, config["text_cfg"])
    return OpenClip(spec, device, model=model, transform=transform, tokenizer=tokenizer)


def _tokenizer(spec: EncoderSpec, folder: Path, name: str, text: dict[str, Any]) -> Any:
    """The tokenizer that the configuration names: open_clip's own, the folder's, or one from a second repository."""
    import open_clip

    named = text.get("hf_tokenizer_name")
    language = {"language": str(spec.options["language"])} if "language" in spec.options else {}
    if not named or named == repository_of(spec.checkpoint) or (folder / "tokenizer_config.json").is_file():
        return open_clip.get_tokenizer(name, **language)
    return open_clip.tokenizer.HFTokenizer(
        str(related_folder(spec, named)),
        context_length=text.get("context_length", open_clip.tokenizer.DEFAULT_CONTEXT_LENGTH),
        tokenizer_mode=text.get("tokenizer_mode"),
        **{**text.get("tokenizer_kwargs", {}), **language},
    )


def _text_forward(model: Any) -> tuple[bool, Callable[..., Tensor]]:
    """Whether captions may be padded to the longest of a batch only, and a text forward pass that accepts that."""
    from open_clip.hf_model import HFTextEncoder
    from open_clip.model import CLIP

    if isinstance(getattr(model, "text", None), HFTextEncoder):
        return True, model.encode_text
    if type(model) is not CLIP or model.attn_mask is None or model.text_pool_type not in ("argmax", "eos"):
        return False, model.encode_text

    def encode_text(text: Tensor) -> Tensor:
        """``CLIP.encode_text`` for any number of tokens: what comes after the end of a caption cannot reach it."""
        from open_clip.transformer import text_global_pool

        n = text.shape[1]
        kind = model.transformer.get_cast_dtype()
        x = model.token_embedding(text).to(kind) + model.positional_embedding[:n].to(kind)
        x = model.ln_final(model.transformer(x, attn_mask=model.attn_mask[:n, :n]))
        pooled = text_global_pool(x, text, model.text_pool_type, eos_token_id=getattr(model, "text_eos_id", None))
        if isinstance(model.text_projection, torch.nn.Linear):
            projected: Tensor = model.text_projection(pooled)
            return projected
        unprojected: Tensor = pooled if model.text_projection is None else pooled @ model.text_projection
        return unprojected

    return True, encode_text
