"""Fix every revision of a spec, so that its fingerprint identifies one state of everything that changes a vector.

This includes the commit of a repository or the digest of a folder, the commits of other repositories that it names, the
roles and prompts that its files give captions and images, the state of code outside capim, and the files that a user's
module opens. Values in a suite take precedence over those in the files.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from capim.store.errors import RequestError
from capim.store.types import EncoderSpec, is_commit
from capim.tasks.encoders import of_mteb
from capim.tasks.encoders.adapters import OWN_CODE_FORM, PIN, adapter_named, is_own_code, pins_of
from capim.tasks.encoders.adapters.late_interaction import FAMILIES
from capim.tasks.encoders.adapters.recognition import ReadJson
from capim.tasks.encoders.checkpoint import (
    digest_of,
    json_reader,
    local_path,
    open_clip_tag,
    related_repositories,
    repository_of,
    source_of,
)
from capim.tasks.hub import commit_of

ROLES = {"caption": "query", "image": "document"}
"""The default role of each modality: captions search among images."""
_KNOWN_ROLES = ("query", "document", "none")
_DIGEST = re.compile(r"(?:(?P<given>.+)\+)?(?P<digest>sha256-[0-9a-f]{16})")
_packages = cache(packages_distributions)  # reads the lists of files of all packages, half a second


def resolve(spec: EncoderSpec) -> EncoderSpec:
    """Return the spec with every revision fixed: a commit of the hub, or a digest of a folder's files. Loads no model.

    Repositories that the checkpoint also needs (a base model, a tokenizer, code) are fixed as options
    ``revision:<repository>``, and so are the files that a module names. The revision of a module is the user's, if any,
    and the digest of the file: ``second-try+sha256-…``. The roles and prompts of captions and images become
    options too, if the family has them: :func:`prompts_of`. The version of an adapter's package is an option
    ``revision:<package>``, and the revision of a model without a checkpoint.

    Raises:
        RequestError: If the checkpoint does not exist, if its files differ from those that the spec names, or if the
            adapter's package has another version.
        WorkError: If the hub cannot be reached and the cache does not know the revision.
    """
    adapter = adapter_named(spec.adapter)
    if adapter.is_remote:
        from capim.tasks.encoders.adapters.endpoint import resolve_endpoint  # imports torch

        return resolve_endpoint(spec)
    if adapter.library:
        spec = of_mteb.resolved(spec)
    spec = _with_code(spec)
    if spec.checkpoint == spec.adapter:  # the code is the model
        return spec
    tag = open_clip_tag(spec)
    path = local_path(spec.checkpoint)
    if path is None:
        repository, _ = source_of(spec)
        revision = commit_of(repository, spec.revision)
        read: ReadJson = tag.read if tag else json_reader(repository, revision)
    elif adapter.is_file and path.is_file():
        return _with_files(replace(spec, revision=_module_revision(spec, path)), path)
    else:
        revision = _known_digest(spec, path, spec.revision if spec.resolved else "")
        read = tag.read if tag else json_reader(str(path), revision)
    return _with_prompts(_with_related(replace(spec, revision=revision), read), read)


def _known_digest(spec: EncoderSpec, path: Path, known: str) -> str:
    """Return the digest of a file or folder that a model needs.

    Raises:
        RequestError: If the spec names another digest.
    """
    digest = digest_of(path)
    if known and known != digest:
        raise RequestError(
            f"encoder {spec.name!r}: {path} has digest {digest}, but the spec names {known}; the files have changed "
            "since the spec was resolved, or these are the wrong ones"
        )
    return digest


def _with_code(spec: EncoderSpec) -> EncoderSpec:
    """Return the spec with the state of its adapter's code; unchanged for capim's adapters, which have versions."""
    adapter = adapter_named(spec.adapter)
    if adapter.library:
        name, state = adapter.library, version(adapter.library)
    elif adapter.release or is_own_code(spec.adapter):
        name, state = (adapter.package, adapter.release) if adapter.release else state_of(spec.adapter)
        spec = _with_files(spec, own_module(spec.adapter), code=name)
    else:
        return spec
    if (known := spec.options.get(PIN + name, state)) != state:
        raise RequestError(
            f"encoder {spec.name!r} was made with {name} {known}, but {state} is here, which may give other vectors; "
            f"restore {name} {known}, or encode again with a spec without it"
        )
    unnamed = spec.checkpoint == spec.adapter and not spec.resolved
    revision = f"{name}-{state}" if unnamed else spec.revision
    return replace(spec, revision=revision, options={**spec.options, PIN + name: state})


def own_module(adapter: str) -> Path:
    """Return the file of the code that an adapter names, the user's or a package's, found without running any of it."""
    where = adapter.rpartition(":")[0] if is_own_code(adapter) else adapter_named(adapter).module
    if where.endswith(".py"):
        return Path(where)
    top, *inner = where.split(".")
    source = importlib.util.find_spec(top)
    folders = list((source and source.submodule_search_locations) or ())
    path = Path(folders[0] if folders else str(source and source.origin)).with_suffix("").joinpath(*inner)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def state_of(adapter: str) -> tuple[str, str]:
    """Return name and state of code that a user names: a package and its version, or a file (folder) and its digest.

    Raises:
        RequestError: If there is no such file or module.
    """
    where = adapter.rpartition(":")[0]
    if where.endswith(".py"):
        file = Path(where)
        if not file.is_file():
            raise RequestError(f"adapter {adapter!r}: there is no file {where}")
        return file.name, digest_of(file)
    top = where.partition(".")[0]
    if packages := _packages().get(top):
        return packages[0], version(packages[0])
    source = importlib.util.find_spec(top)
    if source is None or source.origin is None:
        raise RequestError(
            f"adapter {adapter!r}: there is no module {top!r}; install its package, or name a file: {OWN_CODE_FORM}"
        )
    # installed as a link to its source, or found by PYTHONPATH: a version says nothing about the code
    return top, digest_of(Path(source.origin).parent if source.submodule_search_locations else Path(source.origin))


def _with_related(spec: EncoderSpec, read: ReadJson) -> EncoderSpec:
    others = [name for name in related_repositories(spec.adapter, read) if name != repository_of(spec.checkpoint)]
    pins = {PIN + name: _pinned(spec, name, local_path(name)) for name in others}
    return replace(spec, options={**spec.options, **pins})


def _with_prompts(spec: EncoderSpec, read: ReadJson) -> EncoderSpec:
    """Return the spec with the roles and prompts that the checkpoint's files give captions and images."""
    adapter = adapter_named(spec.adapter)
    if not adapter.prompts:
        return spec
    described = [read]
    if adapter.lora and (base := read("adapter_config.json").get("base_model_name_or_path")):
        # a LoRA adapter leaves the architecture to its base model
        described.append(json_reader(str(base), str(spec.options.get(PIN + base, spec.revision))))
    return replace(spec, options={**prompts_of(spec, described), **spec.options})


def prompts_of(spec: EncoderSpec, described: Sequence[ReadJson]) -> dict[str, str]:
    """Return the options with the roles and prompts of captions and images, for an adapter that has prompts.

    Args:
        spec: The model.
        described: Readers of the JSON files of the checkpoint and, for a LoRA adapter, of its base model.

    Raises:
        RequestError: If a role of the spec's options is unknown.
    """
    if adapter_named(spec.adapter).prompts == "saved":
        return _of_sentence_transformers(spec, _first(described, "config_sentence_transformers.json"))
    # the base model names the architecture; the adapter may too, as a class that only its author knows
    family = FAMILIES.get(str(described[-1]("config.json").get("model_type")))
    if family is None:
        return {}  # the adapter refuses an unknown family with the reason
    template = family.query_template(_first(described, "tokenizer_config.json"), spec.vectors)
    return {"caption_template": template, "image_prompt": family.image_prompt}


def _of_sentence_transformers(spec: EncoderSpec, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the prompts that ``encode_query`` and ``encode_document`` would take, by modality."""
    prompts = dict(config.get("prompts") or {})
    for role in ("query", "document"):  # PyLate saved the marker of a role separately from its prompt
        prefix = config.get(f"{role}_prefix") or ""
        prompts[role] = prefix + (prompts.get(role) or "").removeprefix(prefix)
    options = {}
    for modality, usual in ROLES.items():
        role = options[f"{modality}_role"] = str(spec.options.get(f"{modality}_role", usual))
        if role not in _KNOWN_ROLES:
            raise RequestError(
                f"encoder {spec.name!r}: {modality}_role must be {' or '.join(map(repr, _KNOWN_ROLES))}, got {role!r}"
            )
        name = config.get("default_prompt_name") if role == "none" else role
        options[f"{modality}_prompt"] = str(prompts.get(name) or "")
    return options


def _first(described: Sequence[ReadJson], file: str) -> Mapping[str, Any]:
    """Return the contents of a file in the first checkpoint that has it."""
    return next(filter(None, (read(file) for read in described)), {})


def roles_line(spec: EncoderSpec) -> str:
    """Return the role and prompt of captions and images of a resolved spec, in one line; empty without roles.

    Examples:
        >>> spec = EncoderSpec(name="x", adapter="colvision", checkpoint="a/b", dim=8,
        ...     options={"caption_template": "Query: {caption}", "image_prompt": "Describe this image"})
        >>> roles_line(spec)
        "captions as query with 'Query: {caption}', images as document with 'Describe this image'"
    """
    adapter, parts = adapter_named(spec.adapter), []
    if adapter.library:
        roles = ", ".join(f"{modality}s as {spec.options[f'{modality}_role']}" for modality in ROLES)
        return f"{roles}, with {adapter.library}'s prompts for {spec.options['task']}"
    for modality, usual in ROLES.items() if adapter.roles else ():
        role = spec.options.get(f"{modality}_role", usual)
        given = [spec.options.get(f"{modality}_{name}") for name in ("prompt", "template")]
        texts = " and ".join(repr(text) for text in given if text) or "nothing added to the processor's own form"
        parts.append(f"{modality}s as {role} with {texts}")
    return ", ".join(parts)


def _module_revision(spec: EncoderSpec, path: Path) -> str:
    """Return the digest of a module's file, after the user's revision if there is one."""
    known = _DIGEST.fullmatch(spec.revision)
    digest = _known_digest(spec, path, known["digest"] if known else "")
    given = known["given"] if known else spec.revision if spec.revision != "main" else None
    return f"{given}+{digest}" if given else digest


def _with_files(spec: EncoderSpec, module: Path, code: str = "") -> EncoderSpec:
    """Return the spec with the digests of the files that its table or the module itself names.

    Names are paths of files or folders, relative to the folder of the module; other repositories, which have a commit,
    are not among them. ``code``: name under which the module itself is pinned.
    """
    pins = {}
    given = [name for name, state in pins_of(spec).items() if name != code and not is_commit(state)]
    for name in dict.fromkeys([*given, *(declared_files(module) or [])]):
        path = module.parent / Path(name).expanduser()
        if not path.exists():
            raise RequestError(
                f"encoder {spec.name!r}: {module} needs the file {name!r}, which does not exist ({path}); name files "
                "or folders, by paths from the folder of the module, no patterns"
            )
        pins[PIN + name] = _pinned(spec, name, path)
    return replace(spec, options={**spec.options, **pins})


def _pinned(spec: EncoderSpec, name: str, path: Path | None) -> str:
    """Return the digest of another file or folder that a model needs, or the commit of another repository."""
    known = str(spec.options.get(PIN + name, "main"))
    if path is None:
        return commit_of(name, known)
    return _known_digest(spec, path, known if _DIGEST.fullmatch(known) else "")


def declared_files(path: Path) -> list[str] | None:
    """Return the files that a module names; None if it has no list ``files``.

    Raises:
        RequestError: If it is not Python, or if ``files`` is not a literal list of strings.
    """
    try:
        tree = ast.parse(path.read_bytes() if path.is_file() else b"", filename=str(path))
    except (SyntaxError, ValueError) as error:
        raise RequestError(f"{path} is not valid Python: {error}") from error
    for statement in reversed(tree.body):  # the last assignment counts
        match statement:
            case ast.Assign(targets=[ast.Name(id="files")]) | ast.AnnAssign(target=ast.Name(id="files")):
                written = ast.unparse(statement.value) if statement.value else "nothing"
                with contextlib.suppress(ValueError):
                    items = ast.literal_eval(written)
                    if isinstance(items, list | tuple) and all(isinstance(item, str) for item in items):
                        return list(items)
                raise RequestError(
                    f'{path}: files must be a literal list of file names, files = ["weights.pt"], got {written}'
                )
    return None


def identity_gap(spec: EncoderSpec) -> str | None:
    """Return a possible gap in the identity of a code file, and the remedy, in one line; None if there is none.

    Any other model is identified by all files of its folder, repository or package.
    """
    path = local_path(spec.checkpoint) if adapter_named(spec.adapter).is_file else None
    if spec.checkpoint == spec.adapter and ".py:" in spec.adapter:
        path = own_module(spec.adapter)
    if path is None or pins_of(spec).keys() - {path.name} or declared_files(path) is not None:
        return None
    return (
        f"encoder {spec.name!r}: its identity is only {path.name}; if it opens other files, name them in it "
        '(files = ["weights.pt"]), so that embeddings are encoded again when they change'
    )
