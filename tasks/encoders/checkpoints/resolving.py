"""Fix every revision of a spec, so that its fingerprint names one state of the files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from capim.store.errors import RequestError, WorkError
from capim.store.types import EncoderSpec
from capim.tasks.encoders.adapters.open_clip_tags import open_clip_tag
from capim.tasks.encoders.adapters.own_code import is_own_code, state_of
from capim.tasks.encoders.adapters.table import adapter_named
from capim.tasks.encoders.catalog import catalog, spec_of
from capim.tasks.encoders.checkpoints.checkpoint import (
    PIN,
    ReadJson,
    digest_of,
    json_file,
    local_path,
    related_repositories,
    repository_of,
)
from capim.tasks.encoders.checkpoints.hub import commit_of, hub_json
from capim.tasks.encoders.checkpoints.module_files import declared_files
from capim.tasks.encoders.checkpoints.prompts import prompts_of
from capim.tasks.encoders.endpoints.options import resolve_endpoint

_DIGEST = re.compile(r"(?:(?P<given>.+)\+)?(?P<digest>sha256-[0-9a-f]{16})")


def resolve(spec: EncoderSpec) -> EncoderSpec:
    """The spec with every revision fixed: a commit of the hub, or the digest of a folder's files. Loads no model.

    Repositories that the checkpoint also needs (a base model, a tokenizer, code) are fixed as options
    ``revision:<repository>``, and so are the files that a module names. The revision of a module is what the user gave,
    if anything, and the digest of the file: ``second-try+sha256-…``. The roles and prompts of captions and images
    become options too, where the family has them: :func:`tasks.encoders.checkpoints.prompts.prompts_of`. The version of
    the package that an adapter comes from is an option ``revision:<package>``, and the revision of a model without a
    checkpoint.

    Raises:
        RequestError: The checkpoint does not exist, its files are not those that the spec names, or the package of the
            adapter is of another version.
        WorkError: The hub cannot be reached and the cache does not know the revision.
    """
    if spec.adapter == "http":
        return resolve_endpoint(spec)
    spec = _with_code(spec)
    if spec.checkpoint == spec.adapter:  # the code is the model
        return spec
    tag = open_clip_tag(spec)
    path = None if tag else local_path(spec.checkpoint)
    if path is None:
        repository = tag.repository if tag else repository_of(spec.checkpoint)
        revision = commit_of(repository, spec.revision)
        read: ReadJson = tag.read if tag else _reader(repository, revision)
    elif spec.adapter == "module" and path.is_file():
        return _with_files(replace(spec, revision=_module_revision(spec, path)), path)
    else:
        revision = digest_of(path)
        if spec.resolved and spec.revision != revision:
            raise RequestError(
                f"encoder {spec.name!r}: the files of {path} have digest {revision}, but the spec names "
                f"{spec.revision}; the files have changed, or this is the wrong folder"
            )
        read = _reader(str(path), revision)
    return _with_prompts(_with_related(replace(spec, revision=revision), read), read)


def _with_code(spec: EncoderSpec) -> EncoderSpec:
    """The spec with the state of its adapter's code, unless the adapter is one of capim, which has a version number."""
    adapter = adapter_named(spec.adapter)
    if not adapter.release and not is_own_code(spec.adapter):
        return spec
    name, state = (adapter.package, adapter.release) if adapter.release else state_of(spec.adapter)
    known = spec.options.get(PIN + name, state)
    if known != state:
        raise RequestError(
            f"encoder {spec.name!r} was made with {name} {known}, but {state} is here, which may give other vectors; "
            f"bring {name} {known} back, or encode again with a spec that does not name it"
        )
    unnamed = spec.checkpoint == spec.adapter and not spec.resolved
    revision = f"{name}-{state}" if unnamed else spec.revision
    return replace(spec, revision=revision, options={**spec.options, PIN + name: state})


def _reader(checkpoint: str, revision: str) -> ReadJson:
    """Reads JSON files of a folder, or of a hub repository at a commit."""
    path = local_path(checkpoint)
    return lambda name: hub_json(checkpoint, revision, name) if path is None else json_file(path / name)


def _with_related(spec: EncoderSpec, read: ReadJson) -> EncoderSpec:
    pins = {}
    for name in related_repositories(spec.adapter, read):
        if name != repository_of(spec.checkpoint):
            path = local_path(name)
            revision = str(spec.options.get(PIN + name, "main"))
            pins[PIN + name] = commit_of(name, revision) if path is None else _pinned_digest(spec, name, path)
    return replace(spec, options={**spec.options, **pins}) if pins else spec


def _with_prompts(spec: EncoderSpec, read: ReadJson) -> EncoderSpec:
    """The spec with the roles and prompts that the checkpoint's files give captions and images."""
    described = [read]  # a LoRA adapter leaves the architecture to its base model
    base = (read("adapter_config.json") or {}).get("base_model_name_or_path") if spec.adapter == "colvision" else None
    if base:
        described.append(_reader(str(base), str(spec.options.get(PIN + base, spec.revision))))
    options = {**prompts_of(spec, described), **spec.options}
    return replace(spec, options=options) if options != spec.options else spec


def _module_revision(spec: EncoderSpec, path: Path) -> str:
    """The digest of a module's file, after what the user gave as the revision."""
    digest = digest_of(path)
    known = _DIGEST.fullmatch(spec.revision)
    if known is not None and known["digest"] != digest:
        raise RequestError(
            f"encoder {spec.name!r}: {path} has digest {digest}, but the spec names {known['digest']}; the file has "
            "changed, or this is the wrong file"
        )
    given = known["given"] if known is not None else spec.revision if spec.revision != "main" else None
    return f"{given}+{digest}" if given else digest


def _with_files(spec: EncoderSpec, module: Path) -> EncoderSpec:
    """The spec of a module with the digests of the files that its table or the module itself names."""
    in_table = [name.removeprefix(PIN) for name in spec.options if name.startswith(PIN)]
    pins = {}
    for name in dict.fromkeys([*in_table, *(declared_files(module) or [])]):
        path = module.parent / Path(name).expanduser()
        if not path.exists():
            raise RequestError(
                f"encoder {spec.name!r}: {module} needs the file {name!r}, which does not exist ({path})"
            )
        pins[PIN + name] = _pinned_digest(spec, name, path)
    return replace(spec, options={**spec.options, **pins}) if pins else spec


def _pinned_digest(spec: EncoderSpec, name: str, path: Path) -> str:
    """The digest of another file or folder that a model needs.

    Raises:
        RequestError: The spec names another digest.
    """
    digest, known = digest_of(path), str(spec.options.get(PIN + name, ""))
    if _DIGEST.fullmatch(known) and known != digest:
        raise RequestError(
            f"encoder {spec.name!r}: {path} has digest {digest}, but the spec names {known}; the files have changed "
            "since the spec was resolved"
        )
    return digest


# --- Write the rows of a suite file that pin every model to a commit.


class PinnedEncoder(NamedTuple):
    """A model of the catalog: resolved, or the reason why that failed."""

    name: str
    spec: EncoderSpec | None
    fault: str = ""


def pin(names: Sequence[str] | None = None) -> Iterator[PinnedEncoder]:
    """Resolve catalog rows, all of them by default, without loading models; a failure does not stop the others.

    Raises:
        RequestError: A name is unknown.
    """
    for spec in [spec_of(name) for name in names or catalog()]:
        try:
            yield PinnedEncoder(spec.name, resolve(spec))
        except (RequestError, WorkError) as error:
            yield PinnedEncoder(spec.name, None, str(error))


def pinned_toml(pins: Sequence[PinnedEncoder]) -> str:
    """The ``[[encoder]]`` tables of a suite file; a model that could not be resolved is a comment with the reason.

    Examples:
        >>> spec = EncoderSpec(name="x", adapter="hf_dual", checkpoint="a/b", dim=8, revision="c0ffee")
        >>> pinned, failed = PinnedEncoder("x", spec), PinnedEncoder("y", None, "no network")
        >>> print(pinned_toml([pinned, failed]))
        [[encoder]]
        name = "x"
        adapter = "hf_dual"
        checkpoint = "a/b"
        revision = "c0ffee"
        dim = 8
        <BLANKLINE>
        # y: no network
        <BLANKLINE>
    """
    return "\n".join(
        _table(entry.spec) if entry.spec else f"# {entry.name}: {' '.join(entry.fault.split())}\n" for entry in pins
    )


def _table(spec: EncoderSpec) -> str:
    plain = EncoderSpec(name=spec.name, adapter=spec.adapter, checkpoint="", dim=spec.dim, vectors=spec.vectors)
    always = ("name", "adapter", "checkpoint", "revision", "dim")
    usual = {"vectors": "single", "precision": plain.precision, "storage": plain.storage}
    changed = [name for name, value in usual.items() if getattr(spec, name) != value]
    lines = [f"{name} = {json.dumps(getattr(spec, name))}" for name in (*always, *changed)]
    if spec.options:
        options = ", ".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in sorted(spec.options.items()))
        lines.append(f"options = {{ {options} }}")
    return "\n".join(["[[encoder]]", *lines, ""])
