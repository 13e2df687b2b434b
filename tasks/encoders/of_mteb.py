"""mteb's table of models: the facts about an encoder with ``adapter = "mteb"``, without loading it.

Its checkpoint is mteb's name of the model, its revision the commit that mteb pins. Loader, prompts and roles are
mteb's, so its identity includes the version of mteb, and the task that the prompts are from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from capim.store.errors import RequestError, unknown
from capim.store.types import EncoderSpec
from capim.tasks.encoders.adapters import ADAPTERS, MTEB

TASK = "Flickr30kT2IRetrieval"
"""The task with the prompts, unless an option names another: captions search among photographs."""
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
    if meta.n_parameters:
        row["parameters"] = round(meta.n_parameters / 1e6, 2)
    return row


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
        yield {
            "name": meta.name,
            "vectors": _KINDS.get(meta.model_type[0], meta.model_type[0]),
            "dim": meta.embed_dim if isinstance(meta.embed_dim, int) else None,
            "millions": round(meta.n_parameters / 1e6, 2) if meta.n_parameters else None,
            "memory_mb": round(meta.memory_usage_mb) if meta.memory_usage_mb else None,
            "licence": str(meta.license or "unknown"),
            "revision": meta.revision,
            "needs": why_not(meta),
        }
