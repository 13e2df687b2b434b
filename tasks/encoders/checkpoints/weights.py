"""A model with a weight missing is no model: the library fills it with noise and says so only in a log line."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path

from store.errors import WorkError
from store.types import EncoderSpec


class MissingWeightsError(WorkError):
    """The checkpoint lacks weights that the architecture needs, or holds them in another shape."""


def refuse_missing_weights(missing: Collection[str], mismatched: Collection[object], spec: EncoderSpec) -> None:
    """Raise if the loader reports weights that it had to invent.

    Raises:
        MissingWeightsError: Names the first few of them.
    """
    for keys, fault in ((missing, "lacks"), (mismatched, "has in another shape")):
        if keys:
            names = sorted(str(key) for key in keys)
            raise MissingWeightsError(
                f"encoder {spec.name!r}: {spec.checkpoint} at {spec.revision} {fault} {len(names)} weights of the "
                f"architecture ({', '.join(names[:3])}{' …' if len(names) > 3 else ''}); they would be random. "
                "Download the checkpoint again, or check that the adapter fits it"
            )


def refuse_fewer_weights(folder: Path, needed: Collection[str], spec: EncoderSpec) -> None:
    """Raise if a folder's safetensors hold fewer tensors than a model needs.

    For loaders that rename weights and report nothing: renaming keeps the number.

    Raises:
        MissingWeightsError: There are fewer.
    """
    from safetensors import safe_open

    held = 0
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="np") as tensors:
            held += len([key for key in tensors.keys() if "lm_head" not in key])  # noqa: SIM118 - not a mapping
    if 0 < held < len(needed):
        raise MissingWeightsError(
            f"encoder {spec.name!r}: {folder} holds {held} weights, the architecture has {len(needed)}; the others "
            "would be random. Download the checkpoint again"
        )


@contextlib.contextmanager
def loaded_quietly() -> Iterator[None]:
    """Keep transformers' bars and load report off the terminal: what matters of them is checked and raised."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
