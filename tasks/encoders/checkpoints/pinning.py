"""Write the rows of a suite file that pin every model to a commit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from capim.store.errors import RequestError, WorkError
from capim.store.types import EncoderSpec
from capim.tasks.encoders.catalog import catalog, spec_of
from capim.tasks.encoders.checkpoints.resolving import resolve


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
