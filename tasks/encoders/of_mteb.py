"""mteb's table of models: the facts about an encoder with ``adapter = "mteb"``, without loading it.

Its checkpoint is mteb's name of the model, its revision the commit that mteb pins. Loader, prompts and roles are
mteb's, so its identity includes the version of mteb, and the task that the prompts are from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from capim.store.errors import RequestError, unknown
from capim.store.types import EncoderSpec
from capim.tasks.corpora import CORPORA
from capim.tasks.encoders.adapters import ADAPTERS, MTEB

TASK = "Flickr30kT2IRetrieval"
"""The task with the prompts, unless an option names another: captions search among photographs."""
_FEW = 5  # languages that are named
_KINDS = {"dense": "single", "late-interaction": "multi"}


def model_meta(name: str) -> Any:
    """Return mteb's ``ModelMeta`` of a model that sees images and runs here.

    Raises:
        RequestError: If mteb is not installed, or has no such model, or one without vectors here; says which.
    """
    if missing := ADAPTERS[MTEB].missing:
        raise RequestError(f"adapter {MTEB!r} needs {', '.join(missing)}; install it with: {ADAPTERS[MTEB].install}")
    known = {meta.name: meta for meta in _metas()}
    if name not in known:
        raise RequestError(unknown("model of mteb for images", name, known) + " (capim list encoders --all)")
    if reason := why_not(known[name], installed=False):
        raise RequestError(f"mteb's {name} {reason}")
    return known[name]


def _metas() -> list[Any]:
    import mteb

    return [meta for meta in mteb.get_model_metas() if meta.name and {"image", "text"} <= set(meta.modalities)]


def why_not(meta: Any, *, installed: bool = True) -> str:
    """Return why a model of mteb's table cannot be an encoder here; empty if it can, as far as known without loading.

    ``installed``: count requirements that are not installed, or in another version.
    """
    if kind := set(meta.model_type) - _KINDS.keys():
        return f"is a {', '.join(sorted(kind))} model, which has no vectors to store"
    if "API" in (meta.framework or []) or not meta.open_weights:
        return "runs at a service: adapter 'http' (docs/endpoint.md)"
    if meta.name.startswith("mteb/baseline"):
        return "is random"
    missing = meta._missing_dependencies(meta._resolve_extras_groups()) if installed else []  # noqa: SLF001
    return f"needs {', '.join(each.partition(';')[0] + _found(each) for each in missing)}" if missing else ""


def _found(requirement: str) -> str:
    return f" ({requirement.rpartition('(')[2]}" if requirement.endswith(")") else ""


def row_of(checkpoint: str) -> dict[str, object]:
    """Return the values that a suite's row of the adapter may leave out, in the form of ``catalog.toml``."""
    meta = model_meta(checkpoint)
    row: dict[str, object] = {"licence": str(meta.license or "unknown"), "vectors": _KINDS[meta.model_type[0]]}
    if isinstance(meta.embed_dim, int):
        row["dim"] = meta.embed_dim
    if (precision := _precision(meta)) is not None:
        row["precision"] = precision
    return row | facts_of(meta)


def facts_of(meta: Any) -> dict[str, Any]:
    """Return what mteb's table knows about a model, by the names of ``catalog.toml``; an unknown fact is left out.

    ``trained_on`` has the corpora of capim among its training data, and those that mteb counts as the same data. An
    empty set in mteb means unknown.
    """
    seen = meta.get_training_datasets() or set()
    languages = meta.languages or []
    facts = {
        "parameters": round((meta.n_parameters or 0) / 1e6, 2),
        "memory_mb": round(meta.memory_usage_mb or 0),
        "context": int(meta.max_tokens) if meta.max_tokens and math.isfinite(meta.max_tokens) else None,
        "languages": "many" if len(languages) > _FEW else ", ".join(languages),
        "released": meta.release_date,
        "trained_on": [name for name, entry in CORPORA.items() if seen & {name, *entry.known_as}],
    }
    return {name: fact for name, fact in facts.items() if fact}


def _precision(meta: Any) -> str | None:
    """Return the precision in which its loader loads it, if mteb states it."""
    named = meta.loader_kwargs.get("torch_dtype") or meta.output_dtypes
    value = getattr(named, "value", named)
    return value if value in ("bfloat16", "float16", "float32") else None


def resolved(spec: EncoderSpec) -> EncoderSpec:
    """Return the spec at the commit that mteb pins, with the task of the prompts and the roles as options.

    Raises:
        RequestError: As in :func:`model_meta`, or if a requirement is not installed.
    """
    meta = model_meta(spec.checkpoint)
    if reason := why_not(meta):
        raise RequestError(f"encoder {spec.name!r}: mteb's {spec.checkpoint} {reason}")
    revision = meta.revision if spec.revision == "main" else spec.revision
    options = {"task": TASK, "caption_role": "query", "image_role": "document", **spec.options}
    return replace(spec, revision=revision, options=options)


def rows() -> Iterator[Mapping[str, Any]]:
    """Yield a row for every model of mteb that sees images and reads text, for ``capim list encoders --all``."""
    model_meta("openai/clip-vit-base-patch32")  # raises if mteb is not installed
    for meta in _metas():
        facts = facts_of(meta)
        yield {
            "name": meta.name,
            "vectors": _KINDS.get(meta.model_type[0], meta.model_type[0]),
            "dim": meta.embed_dim if isinstance(meta.embed_dim, int) else None,
            "millions": facts.get("parameters"),
            **{name: facts.get(name) for name in ("memory_mb", "context", "released", "languages", "trained_on")},
            "licence": str(meta.license or "unknown"),
            "revision": meta.revision,
            "needs": why_not(meta),
        }
