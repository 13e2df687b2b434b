"""Roles and prompts: how a model that treats queries and documents differently takes captions and images.

``resolve`` writes what a checkpoint's files say into the options of the spec, so that it enters the fingerprint; what a
suite gives there wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from capim.store.errors import RequestError
from capim.store.types import EncoderSpec
from capim.tasks.encoders.adapters.late_interaction import FAMILIES
from capim.tasks.encoders.adapters.table import adapter_named
from capim.tasks.encoders.checkpoints.checkpoint import ReadJson

ROLES = {"caption": "query", "image": "document"}
"""The usual role of each modality: captions search among images."""
_KNOWN = ("query", "document", "none")


def prompts_of(spec: EncoderSpec, described: Sequence[ReadJson]) -> dict[str, str]:
    """The options that hold the roles and prompts of captions and images; none for a family without them.

    Args:
        spec: Of any adapter.
        described: Read the JSON files of the checkpoint and, for a LoRA adapter, of its base model.

    Raises:
        RequestError: A role of the spec's options is unknown.
    """
    if spec.adapter == "sentence_transformers":
        return _of_sentence_transformers(spec, _first(described, "config_sentence_transformers.json"))
    # the base model names the architecture; the adapter may too, as a class that only its author knows
    family = FAMILIES.get(str((described[-1]("config.json") or {}).get("model_type")))
    if spec.adapter != "colvision" or family is None:
        return {}  # the adapter refuses an unknown family with the reason
    template = family.query_template(_first(described, "tokenizer_config.json"), spec.vectors)
    return {"caption_template": template, "image_prompt": family.image_prompt}


def roles_line(spec: EncoderSpec) -> str:
    """The role and prompt of captions and of images of a resolved spec, in one line; empty for a model without roles.

    Examples:
        >>> spec = EncoderSpec(name="x", adapter="colvision", checkpoint="a/b", dim=8,
        ...     options={"caption_template": "Query: {caption}", "image_prompt": "Describe this image"})
        >>> roles_line(spec)
        "captions as query with 'Query: {caption}', images as document with 'Describe this image'"
    """
    parts = []
    for modality, usual in ROLES.items() if adapter_named(spec.adapter).roles else ():
        role = spec.options.get(f"{modality}_role", usual)
        given = [spec.options.get(f"{modality}_{name}") for name in ("prompt", "template")]
        texts = " and ".join(repr(text) for text in given if text) or "nothing added to the processor's own form"
        parts.append(f"{modality}s as {role} with {texts}")
    return ", ".join(parts)


def _of_sentence_transformers(spec: EncoderSpec, config: Mapping[str, Any]) -> dict[str, str]:
    """The prompts that ``encode_query`` and ``encode_document`` would take, by modality."""
    prompts = dict(config.get("prompts") or {})
    for role in ("query", "document"):  # PyLate saved the marker of a role apart from its prompt
        prefix = config.get(f"{role}_prefix") or ""
        prompts[role] = prefix + (prompts.get(role) or "").removeprefix(prefix)
    options = {}
    for modality, usual in ROLES.items():
        role = options[f"{modality}_role"] = str(spec.options.get(f"{modality}_role", usual))
        if role not in _KNOWN:
            raise RequestError(
                f"encoder {spec.name!r}: {modality}_role must be {' or '.join(map(repr, _KNOWN))}, got {role!r}"
            )
        name = config.get("default_prompt_name") if role == "none" else role
        options[f"{modality}_prompt"] = str(prompts.get(name) or "")
    return options


def _first(described: Sequence[ReadJson], file: str) -> Mapping[str, Any]:
    """The contents of a file in the first checkpoint that has it."""
    return next((contents for read in described if (contents := read(file)) is not None), {})
