"""A model in a user's own file, with weights beside it, without any library of models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

MODULE = """\
from pathlib import Path

import numpy as np

model = np.load(Path(__file__).with_name("weights.npy"))
embedding_dim = 8


def image_forward_fn(model, images, device, transform):
    small = [np.asarray(image.resize((2, 2)), dtype=np.float32).reshape(-1) + 1.0 for image in images]
    return np.stack(small) @ model


def text_forward_fn(model, texts, device, transform):
    counts = [[text.count(letter) + 1.0 for letter in "abcdefghijkl"] for text in texts]
    return np.asarray(counts, dtype=np.float32) @ model
"""

SLOWED = """

import time

_images, _texts = image_forward_fn, text_forward_fn


def image_forward_fn(*given, **named):
    time.sleep({seconds})
    return _images(*given, **named)


def text_forward_fn(*given, **named):
    time.sleep({seconds})
    return _texts(*given, **named)
"""


def write_module(folder: Path, head: str = "", *, seed: int = 0) -> Path:
    """``model.py``, which begins with ``head``, and its ``weights.npy`` of shape (12, 8)."""
    file = folder / "model.py"
    file.write_text(head + MODULE)
    np.save(folder / "weights.npy", np.random.default_rng(seed).normal(size=(12, 8)).astype(np.float32))
    return file


def own_encoder(folder: Path, *, seed: int = 0, seconds: float = 0.0) -> dict[str, Any]:
    """The table of an encoder that needs no model library, so that a process that encodes with it starts sooner.

    A batch takes ``seconds`` more than it needs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = write_module(folder, seed=seed)
    if seconds:
        file.write_text(file.read_text() + SLOWED.format(seconds=seconds))
    return {"name": folder.name, "adapter": "module", "checkpoint": str(file), "dim": 8}


def encoder_table(encoder: dict[str, Any]) -> str:
    """An encoder as a table of a suite."""
    return "[[encoder]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in encoder.items())
