"""Small images and corpora for the tests of the readers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.corpora.own_data import png, three_images, write


@pytest.fixture
def coco_folder(tmp_path: Path) -> Path:
    """Three images with two captions each, and boxes for two of them, in COCO's formats."""
    return three_images(tmp_path / "three")


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Path]:
    """Writes files below ``photos/``, and images each of another colour."""
    count = itertools.count(1)

    def put_files(files: dict[str, str | bytes] | None = None, *images: str) -> Path:
        (tmp_path / "photos").mkdir(exist_ok=True)
        colours = {name: png((n * 40 % 256, n * 90 % 256, 7)) for name, n in zip(images, count, strict=False)}
        return write(tmp_path / "photos", {**colours, **(files or {})})

    return put_files
