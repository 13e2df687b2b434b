"""Fix every revision of a spec, so that its fingerprint names one state of the files."""

from __future__ import annotations

from dataclasses import replace

from store.errors import RequestError
from store.types import EncoderSpec
from tasks.encoders.adapters.open_clip_tags import open_clip_tag
from tasks.encoders.checkpoints.checkpoint import digest_of, json_file, local_path, repository_of
from tasks.encoders.checkpoints.hub import commit_of, hub_json
from tasks.encoders.checkpoints.related_repositories import PIN, ReadJson, related_repositories


def resolve(spec: EncoderSpec) -> EncoderSpec:
    """The spec with every revision fixed: a commit of the hub, or the digest of a folder's files. Loads no model.

    Repositories that the checkpoint also needs (a base model, a tokenizer, code) are fixed as options
    ``revision:<repository>``.

    Raises:
        RequestError: The checkpoint does not exist, or its files are not those that the spec names.
        WorkError: The hub cannot be reached and the cache does not know the revision.
    """
    tag = open_clip_tag(spec)
    path = None if tag else local_path(spec.checkpoint)
    if path is None:
        repository = tag.repository if tag else repository_of(spec.checkpoint)
        commit = commit_of(repository, spec.revision)
        read = tag.read if tag else lambda name: hub_json(repository, commit, name)
        return _with_related(replace(spec, revision=commit), read)
    digest = digest_of(path)
    if spec.resolved and spec.revision != digest:
        raise RequestError(
            f"encoder {spec.name!r}: the files of {path} have digest {digest}, but the spec names {spec.revision}; "
            "the files have changed, or this is the wrong folder"
        )
    return _with_related(replace(spec, revision=digest), lambda name: json_file(path / name))


def _with_related(spec: EncoderSpec, read: ReadJson) -> EncoderSpec:
    pins = {}
    for name in related_repositories(spec.adapter, read):
        if name != repository_of(spec.checkpoint):
            path = local_path(name)
            revision = str(spec.options.get(PIN + name, "main"))
            pins[PIN + name] = commit_of(name, revision) if path is None else digest_of(path)
    return replace(spec, options={**spec.options, **pins}) if pins else spec
