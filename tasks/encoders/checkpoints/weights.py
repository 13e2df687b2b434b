"""Reads the files that hold the weights of a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from capim.store.errors import WorkError
from capim.store.types import EncoderSpec


class MissingWeightsError(WorkError):
    """The checkpoint lacks weights that the architecture needs, or holds them in another shape."""


def weights_file(folder: Path, names: Iterable[str], spec: EncoderSpec) -> Path:
    """The first of these files that a folder has.

    Raises:
        MissingWeightsError: It has none of them.
    """
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise MissingWeightsError(
        f"encoder {spec.name!r}: {folder} holds none of {', '.join(names)}; download the checkpoint again"
    )


def read_tensors(file: Path) -> dict[str, Any]:
    """The tensors of a weights file by name; a pickle may also hold mappings of tensors, but no code is run."""
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        return dict(load_file(file))
    import torch

    return dict(torch.load(file, map_location="cpu", weights_only=True))


@contextlib.contextmanager
def loaded_quietly() -> Iterator[None]:
    """Suppress the progress bars and load report of transformers; what matters in it is checked: see loaded_weights."""
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
