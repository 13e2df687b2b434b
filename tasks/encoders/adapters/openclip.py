"""Any open_clip model: from the hub, a folder, open_clip's own name ``architecture/tag``, or a training run.

Preprocessing, activation and tokenizer follow the checkpoint's configuration. Captions are padded to the longest of
the batch if that leaves the vectors unchanged (a causal text tower, or one with a mask), although open_clip always
computes 77 tokens.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from capim.store.errors import RequestError
from capim.store.types import EncoderSpec
from capim.tasks.encoders import checkpoint
from capim.tasks.encoders.adapters.loaded_encoder import LoadedEncoder, Tokenized, max_length_of
from capim.tasks.encoders.pixels import pipeline_of_transform
from capim.tasks.encoders.weights import COMPUTED, matches, weights_file, weights_in

_PRECISIONS = {"float32": "fp32", "bfloat16": "pure_bf16", "float16": "pure_fp16"}


def load(spec: EncoderSpec, *, device: str, trust_remote_code: bool) -> LoadedEncoder:
    """Load an open_clip model."""
    import open_clip
    from open_clip.transform import PreprocessCfg, image_transform_v2

    place, tag = checkpoint.folder_of(spec), checkpoint.open_clip_tag(spec)
    if tag:
        config, name = tag.config, tag.architecture
    else:
        config = checkpoint.json_file(place / "open_clip_config.json").get("model_cfg") or {}
        name = f"local-dir:{place}"
    if not config:
        raise RequestError(
            f"encoder {spec.name!r}: {spec.checkpoint} has no open_clip_config.json; expected "
            f"{checkpoint.OPEN_CLIP_FORMS}; or use adapter hf_dual if it is a transformers checkpoint"
        )
    file = place if place.is_file() else weights_file(place, checkpoint.source_of(spec)[1], spec)
    tensors = weights_in(file, tag.key if tag else "")
    text, settings = dict(config["text_cfg"]), dict[str, Any]()
    if text.get("hf_model_name"):
        # the text tower's architecture is described in a second repository: use its pinned folder
        tower = checkpoint.related_folder(spec, text["hf_model_name"])
        settings["text_cfg"] = text | {"hf_model_name": str(tower), "hf_model_pretrained": False}
    with _without_warnings_of_open_clip():
        model = open_clip.create_model(
            name,
            load_weights=False,
            pretrained_text=False,
            precision=_PRECISIONS[spec.precision],
            force_preprocess_cfg=dict(tag.preprocess) if tag else None,
            **settings,
        )
    _load_weights(model, tensors)
    transform = image_transform_v2(PreprocessCfg(**model.visual.preprocess_cfg), is_train=False)
    accepts_shorter, encode_text = _text_forward(model)
    return LoadedEncoder(
        spec,
        device,
        modules=[model],
        forwards={"image": model.encode_image, "caption": encode_text},
        pixels=lambda images: {"image": torch.stack([transform(image) for image in images])},
        tokens=_tokens(spec, _tokenizer(spec, place, name, config["text_cfg"]), fixed=not accepts_shorter),
        pixel_input="image",
        pixel_pipeline=pipeline_of_transform(transform),
        patch_size=int(getattr(model.visual, "patch_size", (0,))[0]),
        pads_to_longest=accepts_shorter,
    )


def _load_weights(model: Any, tensors: dict[str, Any]) -> None:
    """Load all weights, renamed as in open_clip's own ``load_checkpoint``, but never interpolated."""
    from open_clip.convert import convert_state_dict
    from open_clip.model import convert_to_custom_text_state_dict

    state = convert_state_dict(model, tensors)
    if "positional_embedding" in state and not hasattr(model, "positional_embedding"):
        state = convert_to_custom_text_state_dict(state)
    own = model.state_dict()
    for name in {"logit_scale", "logit_bias"} & own.keys() & state.keys():
        # files have them with a dimension or without
        state[name] = state[name].reshape(own[name].shape) if state[name].numel() == 1 else state[name]
    computed = {name for name in state.keys() - own.keys() if matches(name, COMPUTED)}
    model.load_state_dict({name: tensor for name, tensor in state.items() if name not in computed})


@contextlib.contextmanager
def _without_warnings_of_open_clip() -> Iterator[None]:
    """Suppress the warning that the model is random, which is true for a moment."""

    def keep(record: logging.LogRecord) -> bool:
        return "initialized randomly" not in record.getMessage()

    logging.root.addFilter(keep)
    try:
        yield
    finally:
        logging.root.removeFilter(keep)


def _tokens(spec: EncoderSpec, tokenizer: Any, *, fixed: bool) -> Callable[[list[str]], Tokenized]:
    """Return a reader of captions by the checkpoint's tokenizer; unless ``fixed``, without columns of padding only."""
    inner = getattr(tokenizer, "tokenizer", None)  # open_clip's own tokenizer pads with 0 and has none
    pad = int(getattr(inner, "pad_token_id", 0) or 0)
    pads_with_end = int(getattr(inner, "eos_token_id", None) == pad)
    length = max_length_of(spec, default=tokenizer.context_length, limit=tokenizer.context_length)
    # here the last token of a truncated caption is not its end: a full row may have been truncated
    keeps_no_end = getattr(tokenizer, "reduction_fn", None) or getattr(tokenizer, "tokenizer_mode", "")

    def tokens(texts: list[str]) -> Tokenized:
        ids: Tensor
        if keeps_no_end:
            ids = tokenizer(texts, context_length=length)
            truncated = (ids != pad).all(dim=1)
        else:  # truncated captions fill one column more than the model takes
            ids = tokenizer(texts, context_length=length + 1)
            truncated = ids[:, length - pads_with_end] != pad
            ids = ids[:, :length].clone()
            if rows := truncated.nonzero().flatten().tolist():
                ids[rows] = tokenizer([texts[row] for row in rows], context_length=length)
        # a word may have the same id as the padding: the last token that is not padding counts
        used = (ids != pad) * torch.arange(1, ids.shape[1] + 1)
        n_tokens = (used.max(dim=1).values + pads_with_end).clamp(1, length)
        if not fixed:
            ids = ids[:, : int(n_tokens.max())]
        return {"text": ids.contiguous()}, n_tokens.numpy(), truncated.numpy()

    return tokens


def _tokenizer(spec: EncoderSpec, place: Path, name: str, text: Mapping[str, Any]) -> Any:
    """Return the tokenizer of the configuration: open_clip's own, the folder's, or one from a second repository."""
    import open_clip

    named = text.get("hf_tokenizer_name")
    language = {"language": str(spec.options["language"])} if "language" in spec.options else {}
    in_folder = (place / "tokenizer_config.json").is_file()
    if not named or named == checkpoint.repository_of(spec.checkpoint) or in_folder:
        return open_clip.get_tokenizer(name, **language)
    return open_clip.tokenizer.HFTokenizer(
        str(checkpoint.related_folder(spec, named)),
        context_length=text.get("context_length", open_clip.tokenizer.DEFAULT_CONTEXT_LENGTH),
        tokenizer_mode=text.get("tokenizer_mode"),
        **{**text.get("tokenizer_kwargs", {}), **language},
    )


def _text_forward(model: Any) -> tuple[bool, Callable[..., Any]]:
    """Return whether captions need padding only to the longest of a batch, and a text forward pass for such batches."""
    from open_clip.hf_model import HFTextEncoder
    from open_clip.model import CLIP

    if isinstance(getattr(model, "text", None), HFTextEncoder):
        return True, model.encode_text
    if type(model) is not CLIP or model.attn_mask is None or model.text_pool_type not in ("argmax", "eos"):
        return False, model.encode_text

    def encode_text(text: Tensor) -> Any:
        """Compute ``CLIP.encode_text`` for any number of tokens: tokens after the end of a caption do not affect it."""
        from open_clip.transformer import text_global_pool

        n = text.shape[1]
        kind = model.transformer.get_cast_dtype()
        x = model.token_embedding(text).to(kind) + model.positional_embedding[:n].to(kind)
        x = model.ln_final(model.transformer(x, attn_mask=model.attn_mask[:n, :n]))
        pooled = text_global_pool(x, text, model.text_pool_type, eos_token_id=getattr(model, "text_eos_id", None))
        if isinstance(model.text_projection, torch.nn.Linear):
            return model.text_projection(pooled)
        return pooled if model.text_projection is None else pooled @ model.text_projection

    return True, encode_text
