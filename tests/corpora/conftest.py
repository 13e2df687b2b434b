"""Small images and corpora for the tests of the readers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.corpora.own_data import png, write


@pytest.fixture
def coco_folder(tmp_path: Path) -> Path:
    """Three images with two captions each, and boxes for two of them, in COCO's formats."""
    root = tmp_path / "three"
    (root / "images").mkdir(parents=True)
    images: list[dict[str, Any]] = []
    captions: list[dict[str, Any]] = []
    for i, colour in enumerate(("red", "green", "blue")):
        (root / "images" / f"{colour}.png").write_bytes(png(colour))
        images.append({"id": 10 + i, "file_name": f"{colour}.png"})
        captions += [{"id": 100 + 10 * k + i, "image_id": 10 + i, "caption": f"{colour} {k}"} for k in range(2)]
    captions.sort(key=lambda caption: caption["id"])
    (root / "captions.json").write_text(json.dumps({"images": images, "annotations": captions}))
    boxes = {
        "categories": [{"id": 1, "name": "person"}, {"id": 5, "name": "bus"}],
        "images": [{"id": 10}, {"id": 11}],
        "annotations": [{"image_id": 10, "category_id": c} for c in (5, 1, 5)],
    }
    (root / "instances.json").write_text(json.dumps(boxes))
    return root


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Path]:
    """Writes files below ``photos/``, and images each of another colour."""
    count = itertools.count(1)

    def put_files(files: dict[str, str | bytes] | None = None, *images: str) -> Path:
        (tmp_path / "photos").mkdir(exist_ok=True)
        colours = {name: png((n * 40 % 256, n * 90 % 256, 7)) for name, n in zip(images, count, strict=False)}
        return write(tmp_path / "photos", {**colours, **(files or {})})

    return put_files
