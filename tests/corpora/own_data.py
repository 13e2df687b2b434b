"""Words and files that the tests of corpora share."""

from __future__ import annotations

import csv
import io
import json
import tarfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from capim.store.errors import RequestError
from capim.store.types import Corpus
from capim.tasks.corpora.description import open_corpus

Put = Callable[..., Path]

TWO = [("a.png", "red"), ("b.png", "blue")]
JSONL = '{"file_name": "a.png", "text": "red"}\n{"file_name": "b.png", "text": "blue"}\n'


def png(colour: str | tuple[int, ...], size: tuple[int, int] = (8, 6)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, format="PNG")
    return buffer.getvalue()


def jpeg(index: int, size: tuple[int, int] = (24, 20)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, (index * 40 % 256, 90, 200 - index * 30 % 200)).save(buffer, format="JPEG")
    return buffer.getvalue()


def write(root: Path, files: Mapping[str, str | bytes | None]) -> Path:
    """Files below a folder: texts and bytes as given, images (None) each of another colour."""
    for index, (name, content) in enumerate(files.items()):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(index) if content is None else content.encode() if isinstance(content, str) else content)
    return root


def three_images(root: Path) -> Path:
    """Three images with two captions each, and boxes for two of them, in COCO's formats."""
    colours = [*enumerate(("red", "green", "blue"))]
    images = [{"id": 10 + i, "file_name": f"{colour}.png"} for i, colour in colours]
    captions = [
        {"id": 100 + 10 * k + i, "image_id": 10 + i, "caption": f"{colour} {k}"}
        for k in range(2)
        for i, colour in colours
    ]
    boxes = {
        "categories": [{"id": 1, "name": "person"}, {"id": 5, "name": "bus"}],
        "images": [{"id": 10}, {"id": 11}],
        "annotations": [{"image_id": 10, "category_id": c} for c in (5, 1, 5)],
    }
    files = {"captions.json": {"images": images, "annotations": captions}, "instances.json": boxes}
    pictures = {f"images/{colour}.png": png(colour) for _, colour in colours}
    return write(root, {**pictures, **{name: json.dumps(content) for name, content in files.items()}})


def json_lines(file: Path, rows: Iterable[Mapping[str, object]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def csv_file(file: Path, *rows: Mapping[str, Any]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return file


def shard(path: Path, members: Mapping[str, bytes], mode: str = "w") -> Path:
    """A tar file with these members."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def publish(folder: Path, columns: Mapping[str, Any], split: str = "test") -> str:
    """A data set in the hub's layout; columns of bytes are images."""
    import datasets

    images = [name for name, cells in columns.items() if isinstance(cells[0], bytes)]
    content = {name: [{"bytes": cell, "path": None} for cell in columns[name]] for name in images}
    dataset = datasets.Dataset.from_dict({**columns, **content})
    for name in images:
        dataset = dataset.cast_column(name, datasets.Image())
    (folder / "data").mkdir(parents=True, exist_ok=True)
    dataset.to_parquet(folder / "data" / f"{split}-00000-of-00001.parquet")
    return str(folder)


def texts(corpus: Corpus) -> list[tuple[Any, Any]]:
    """Image and text of every caption, in corpus order."""
    return list(zip(corpus.captions["image_id"].to_pylist(), corpus.captions["text"].to_pylist(), strict=True))


def files(corpus: Corpus) -> list[Any]:
    """The file of every image, in corpus order."""
    return corpus.images["key"].to_pylist()


def contents(corpus: Corpus) -> list[bytes]:
    """The bytes of every image, in corpus order."""
    assert corpus.source is not None
    return [corpus.source.read(key) for key in files(corpus)]


def refusal(what: Any) -> str:
    with pytest.raises(RequestError) as caught:
        open_corpus(what)
    return str(caught.value)
