"""Any open_clip model: from the hub, from a folder, or by open_clip's own ``architecture/tag``.

Preprocessing, activation and tokenizer are what the checkpoint's configuration says. Captions of a causal text tower
need no padding at all, and those of a masked one only to the longest of the batch, although open_clip always computes
77 tokens: the vectors are the same and most of the work is saved.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor

from store.errors import RequestError
from store.types import Embeddings, EncoderSpec, Modality
from tasks.encoders.adapters.open_clip_tags import open_clip_tag
from tasks.encoders.captions import Template, max_length_of
from tasks.encoders.checkpoints.checkpoint import companion_folder, folder_of, repository_of
from tasks.encoders.checkpoints.hub import snapshot
from tasks.encoders.checkpoints.weight_files import OPEN_CLIP_WEIGHTS
from tasks.encoders.checkpoints.weights import MissingWeightsError
from tasks.encoders.encoder import Prepared
from tasks.encoders.pixels import Recipe, agrees, in_rgb
from tasks.encoders.tensors import DTYPES, dense_embeddings, move


class OpenClip:
    """An open_clip model; see :class:`tasks.encoders.encoder.Encoder`."""

    joins_images = True

    def __init__(self, spec: EncoderSpec, model: Any, transform: Any, tokenizer: Any, device: str) -> None:
        self.spec = spec
        self.device = device
        self._model = model.to(torch.device(device)).eval()
        self.modules = (model,)
        trims, encode_text = _text_forward(model)
        self.pads_to_longest = trims
        self.forwards: dict[Modality, Callable[..., Any]] = {"image": model.encode_image, "caption": encode_text}
        self._transform = transform
        self._recipe = _recipe_of(transform)
        self._tokenizer = tokenizer
        self._tokenizing = threading.Lock()  # a fast tokenizer must not be used by two threads at once
        inner = getattr(tokenizer, "tokenizer", None)  # open_clip's own tokenizer pads with 0 and has none
        self._pad = int(getattr(inner, "pad_token_id", 0) or 0)
        self._pads_with_end = getattr(inner, "eos_token_id", None) == self._pad
        self._template = Template.of(spec)
        self._max_length = max_length_of(spec, default=tokenizer.context_length, limit=tokenizer.context_length)
        self._patch = int(getattr(model.visual, "patch_size", (0,))[0]) if hasattr(model.visual, "patch_size") else 0

    def prepare_images(self, images: Sequence[Image]) -> Prepared:
        """Pixels as the checkpoint's transform makes them."""
        upright = in_rgb(images)
        if self._recipe is not None:
            pixels = self._recipe.tensor(upright)
        else:
            pixels = torch.stack([self._transform(image) for image in upright])
        patches = (pixels.shape[-2] // self._patch) * (pixels.shape[-1] // self._patch) if self._patch else 0
        return Prepared(
            modality="image",
            inputs={"image": pixels},
            n_tokens=np.full(len(images), patches, dtype=np.int32),
            truncated=np.zeros(len(images), dtype=np.bool_),
        )

    def prepare_captions(self, captions: Sequence[str]) -> Prepared:
        """Token ids as the checkpoint's tokenizer makes them, without columns of mere padding where possible."""
        texts = [self._template.fill(caption) for caption in captions]
        with self._tokenizing:
            ids, truncated = self._tokenize(texts)
        # the padding's id may be that of a word too: what counts is the last token that is no padding
        used = (ids != self._pad) * torch.arange(1, ids.shape[1] + 1)
        n_tokens = (used.max(dim=1).values + int(self._pads_with_end)).clamp(1, self._max_length)
        if self.pads_to_longest:
            ids = ids[:, : int(n_tokens.max())]
        return Prepared(
            modality="caption",
            inputs={"text": ids.contiguous()},
            n_tokens=n_tokens.numpy().astype(np.int32),
            truncated=truncated.numpy(),
        )

    def _tokenize(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        """Ids and which captions were cut; room for one token more than the model takes shows that in one pass."""
        length = self._max_length
        if getattr(self._tokenizer, "reduction_fn", None) or getattr(self._tokenizer, "tokenizer_mode", ""):
            # these put something else than the end of the caption last: a full row may have been cut
            ids: Tensor = self._tokenizer(texts, context_length=length)
            return ids, (ids != self._pad).all(dim=1)
        ids = self._tokenizer(texts, context_length=length + 1)
        truncated = ids[:, length - int(self._pads_with_end)] != self._pad
        ids = ids[:, :length].clone()
        rows = truncated.nonzero().flatten().tolist()
        if rows:
            ids[rows] = self._tokenizer([texts[row] for row in rows], context_length=length)
        return ids, truncated

    def embed(self, prepared: Prepared) -> Embeddings:
        """Projected features, normalised."""
        with torch.inference_mode():
            inputs = move(prepared.inputs, torch.device(self.device), DTYPES[self.spec.precision])
            return dense_embeddings(self.forwards[prepared.modality](**inputs), prepared, self.spec)


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> OpenClip:
    """Load an open_clip model; a checkpoint without its weights is an error, not a random model."""
    import open_clip

    tag = open_clip_tag(spec.checkpoint)
    if tag is not None:
        folder = snapshot(tag.repository, spec.revision, tag.weights)
        config: dict[str, Any] = {"model_cfg": tag.config, "preprocess_cfg": tag.preprocess}
        weights = _weights_in(folder, spec, tag.filename)
        name, settings = tag.architecture, {"pretrained": str(weights), **_forced(tag.preprocess)}
    else:
        folder = folder_of(spec)
        config = _config_in(folder, spec)
        _weights_in(folder, spec, None)
        name, settings = f"local-dir:{folder}", {}
    text = dict(config["model_cfg"]["text_cfg"])
    if text.get("hf_model_name"):
        # the text tower's architecture is read from a second repository: from its pinned folder
        text |= {"hf_model_name": str(companion_folder(spec, text["hf_model_name"])), "hf_model_pretrained": False}
        settings["text_cfg"] = text
    try:
        model, transform = open_clip.create_model_from_pretrained(
            name,
            precision={"float32": "fp32", "bfloat16": "pure_bf16", "float16": "pure_fp16"}[spec.precision],
            **settings,
        )
    except RuntimeError as error:
        if "state_dict" in str(error) or "pretrained" in str(error).lower():
            raise MissingWeightsError(f"encoder {spec.name!r}: {spec.checkpoint} does not fit: {error}") from error
        raise
    return OpenClip(spec, model, transform, _tokenizer(spec, folder, name, config["model_cfg"]["text_cfg"]), device)


def _forced(preprocess: Mapping[str, Any]) -> dict[str, Any]:
    """The preprocessing that belongs to a tag's weights, by the names that open_clip's loader takes it by."""
    return {f"image_{name}": value for name, value in preprocess.items()}


def _config_in(folder: Path, spec: EncoderSpec) -> dict[str, Any]:
    file = folder / "open_clip_config.json"
    if not file.is_file():
        raise RequestError(
            f"encoder {spec.name!r}: {spec.checkpoint} has no open_clip_config.json; name it as architecture/tag, or "
            "use adapter hf_dual if it is a transformers checkpoint"
        )
    config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return config


def _weights_in(folder: Path, spec: EncoderSpec, filename: str | None) -> Path:
    for name in (*([filename] if filename else []), *OPEN_CLIP_WEIGHTS):
        if (folder / name).is_file():
            return folder / name
    raise MissingWeightsError(
        f"encoder {spec.name!r}: {folder} holds none of {', '.join(OPEN_CLIP_WEIGHTS)}; download it again"
    )


def _tokenizer(spec: EncoderSpec, folder: Path, name: str, text: dict[str, Any]) -> Any:
    """The tokenizer that the configuration names: open_clip's own, the folder's, or that of a second repository."""
    import open_clip

    named = text.get("hf_tokenizer_name")
    language = {"language": str(spec.options["language"])} if "language" in spec.options else {}
    if not named or named == repository_of(spec.checkpoint) or (folder / "tokenizer_config.json").is_file():
        return open_clip.get_tokenizer(name, **language)
    return open_clip.tokenizer.HFTokenizer(
        str(companion_folder(spec, named)),
        context_length=text.get("context_length", open_clip.tokenizer.DEFAULT_CONTEXT_LENGTH),
        tokenizer_mode=text.get("tokenizer_mode"),
        **{**text.get("tokenizer_kwargs", {}), **language},
    )


def _recipe_of(transform: Any) -> Recipe | None:
    """open_clip's own resize and crop, with one pass over the pixels after it instead of five."""
    steps = list(getattr(transform, "transforms", []))
    names = [type(step).__name__ for step in steps]
    if names[-1:] != ["Normalize"] or names[-2] not in ("ToTensor", "MaybeToTensor"):
        return None

    def fit(image: Image) -> Image:
        for step in steps[:-2]:
            image = step(image)
        return image

    recipe = Recipe(fit=fit, mean=tuple(map(float, steps[-1].mean)), std=tuple(map(float, steps[-1].std)))
    return recipe if agrees(recipe, transform) else None


def _text_forward(model: Any) -> tuple[bool, Callable[..., Tensor]]:
    """Whether captions may be cut to the longest of a batch, and the text tower that takes them so."""
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
