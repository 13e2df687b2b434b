"""Checks that all weights of a model were loaded: libraries fill missing ones with random numbers and only log it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from store.errors import WorkError
from store.types import EncoderSpec


class MissingWeightsError(WorkError):
    """The checkpoint lacks weights that the architecture needs, or holds them in another shape."""

    @classmethod
    def of(cls, spec: EncoderSpec, error: Exception) -> MissingWeightsError:
        """The error of a library that loads weights strictly."""
        return cls(f"encoder {spec.name!r}: the weights of {spec.checkpoint} do not fit the architecture: {error}")


def check_weights_loaded(missing: Collection[str], mismatched: Collection[object], spec: EncoderSpec) -> None:
    """Check a loader's report of the weights that it did not find in the checkpoint.

    Raises:
        MissingWeightsError: Names the first few of them.
    """
    for keys, fault in ((missing, "are not in"), (mismatched, "have another shape in")):
        if keys:
            names = sorted(str(key) for key in keys)
            raise MissingWeightsError(
                f"encoder {spec.name!r}: {len(names)} weights of the architecture {fault} {spec.checkpoint} at "
                f"{spec.revision} ({', '.join(names[:3])}{' …' if len(names) > 3 else ''}) and would be random; "
                "download the checkpoint again, or check that the adapter fits it"
            )


def check_number_of_weights(folder: Path, needed: Collection[str], spec: EncoderSpec) -> None:
    """Check that the safetensors of a folder hold as many tensors as a model needs.

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
            f"encoder {spec.name!r}: {folder} holds {held} weights, the architecture needs {len(needed)}; the others "
            "would be random; download the checkpoint again"
        )


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
    """Suppress the progress bars and load report of transformers; what matters in the report is checked."""
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
