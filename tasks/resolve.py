"""Shell: which commit or files an encoder is; asks the hub."""

from __future__ import annotations

from store.types import EncoderSpec
from tasks.encoders import resolve
from tasks.runtime.shell import shell


@shell("resolve", kind="read", run_name="resolve-{spec.name}", timeout_hours=1)
def resolve_encoder(spec: EncoderSpec) -> EncoderSpec:
    """The spec with every revision fixed; see :func:`tasks.encoders.resolve`."""
    return resolve(spec)
