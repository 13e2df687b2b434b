"""A fingerprint is worth something only if it names one state of the files: branches to commits, folders to digests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from store.errors import RequestError
from store.types import EncoderSpec, Option
from tasks.encoders.adapters.open_clip_tags import open_clip_tag
from tasks.encoders.adapters.table import ADAPTERS
from tasks.encoders.checkpoints.checkpoint import digest_of, local_path, repository_of
from tasks.encoders.checkpoints.hub import commit_of, hub_json
from tasks.encoders.checkpoints.related_repositories import PIN, ReadJson, companions


def resolve(spec: EncoderSpec) -> EncoderSpec:
    """The spec with every revision fixed: a commit of the hub, or the digest of a folder's files. Loads no model.

    Repositories that the checkpoint needs beside its own (a base model, a tokenizer, code) are fixed too, as options
    ``revision:<repository>``.

    Raises:
        RequestError: The checkpoint does not exist, or its files are not those that the spec names.
        WorkError: The hub cannot be reached and the cache does not know the revision.
    """
    if spec.adapter in ADAPTERS and ADAPTERS[spec.adapter].checkpoints == "open_clip":
        tag = open_clip_tag(spec.checkpoint)
        if tag is not None:
            return _with_companions(replace(spec, revision=commit_of(tag.repository, spec.revision)), tag.read)
    path = local_path(spec.checkpoint)
    if path is None:
        fixed = replace(spec, revision=commit_of(repository_of(spec.checkpoint), spec.revision))
        return _with_companions(fixed, lambda name: hub_json(repository_of(fixed.checkpoint), fixed.revision, name))
    digest = digest_of(path)
    if spec.resolved and spec.revision != digest:
        raise RequestError(
            f"encoder {spec.name!r}: the files of {path} have digest {digest}, the spec says {spec.revision}; "
            "they were changed, or another folder is meant"
        )
    return _with_companions(replace(spec, revision=digest), lambda name: _json(path / name))


def _with_companions(spec: EncoderSpec, read: ReadJson) -> EncoderSpec:
    pins: dict[str, Option] = {}
    for name in companions(spec.adapter, read):
        if name == repository_of(spec.checkpoint):
            continue
        path = local_path(name)
        asked = str(spec.options.get(PIN + name, "main"))
        pins[PIN + name] = commit_of(name, asked) if path is None else digest_of(path)
    return replace(spec, options={**spec.options, **pins}) if pins else spec


def _json(file: Path) -> Mapping[str, Any] | None:
    if not file.is_file():
        return None
    contents: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return contents
