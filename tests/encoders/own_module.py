"""A model in a user's own file, with weights beside it, without any library of models."""

from __future__ import annotations

from pathlib import Path

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


def write_module(folder: Path, head: str = "") -> Path:
    """``model.py``, which begins with ``head``, and its ``weights.npy``."""
    file = folder / "model.py"
    file.write_text(head + MODULE)
    write_weights(folder, seed=0)
    return file


def write_weights(folder: Path, *, seed: int) -> None:
    """Weights of shape (12, 8)."""
    np.save(folder / "weights.npy", np.random.default_rng(seed).normal(size=(12, 8)).astype(np.float32))


def write_suite(folder: Path, row: str = "") -> Path:
    """A suite with the model of :func:`write_module` as ``own``; ``row`` is added to its table."""
    suite = folder / "suite.toml"
    suite.write_text(
        'corpora = ["shapes"]\nsample = 4\ndevice = "cpu"\n\n[[encoder]]\nname = "own"\nadapter = "module"\n'
        f'checkpoint = "model.py"\ndim = 8\n{row}\n'
    )
    return suite
