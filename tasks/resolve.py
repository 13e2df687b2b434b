"""Task: resolve the revision of an encoder to a commit or to a digest of its files; asks the hub."""

from __future__ import annotations

from capim.store.types import EncoderSpec
from capim.tasks.encoders import resolve
from capim.tasks.runtime.shell import shell


@shell("resolve", run_name="resolve-{spec.name}", timeout_hours=1)
def resolve_encoder(spec: EncoderSpec) -> EncoderSpec:
    """The spec with every revision fixed; see :func:`tasks.encoders.resolve`."""
    return resolve(spec)
