"""Tables that hold images: data sets of ``save_to_disk`` and Parquet files, whatever their columns are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capim.store.errors import RequestError
from capim.store.schema import texts
from capim.tasks.corpora import open_corpus
from capim.tasks.corpora.readers.hub import read_hub
from tests.corpora.readers.test_hub import jpeg

TEXTS = ["a red bus", "two mugs"]


def save(folder: Path, **columns: Any) -> Path:
    """A data set of two images in the column ``pixels`` with two captions, and further columns, by ``save_to_disk``."""
    rows = {"pixels": [{"bytes": jpeg(k), "path": None} for k in (0, 1)], "words": TEXTS, **columns}
    saved = datasets.Dataset.from_dict(rows).cast_column("pixels", datasets.Image())
    saved.save_to_disk(folder)
    return folder


def test_the_only_column_of_images_is_found_by_its_type(tmp_path: Path) -> None:
    folder = save(tmp_path / "saved", image=["1.jpg", "2.jpg"])  # a text, though its name is that of an image column
    corpus = read_hub(str(folder), columns={"caption": "words"})
    assert corpus.source is not None
    assert [corpus.source.read(key) for key in texts(corpus.images["key"])] == [jpeg(0), jpeg(1)]
    assert corpus.captions["text"].to_pylist() == TEXTS
    with pytest.raises(RequestError, match="no column for caption; it has pixels, words"):
        read_hub(str(save(tmp_path / "other")))
    with pytest.raises(RequestError, match="no column 'pixel' for role 'image'; did you mean 'pixels'"):
        read_hub(str(tmp_path / "other"), columns={"image": "pixel", "caption": "words"})


def test_of_two_columns_of_images_one_has_to_be_named(tmp_path: Path) -> None:
    more = datasets.Dataset.load_from_disk(str(save(tmp_path / "saved")))
    more = more.add_column("crops", more.with_format("arrow")["pixels"].to_pylist())  # type: ignore[arg-type]
    more.save_to_disk(tmp_path / "two")
    with pytest.raises(RequestError, match="no column for image; it has pixels, words, crops"):
        read_hub(str(tmp_path / "two"), columns={"caption": "words"})
    corpus = read_hub(str(tmp_path / "two"), columns={"caption": "words", "image": "crops"})
    assert corpus.images["key"].to_pylist() == ["crops/0", "crops/1"]


def test_no_cell_is_decoded_that_is_not_needed(tmp_path: Path) -> None:
    """Sound and video would need torchcodec, which is not installed."""
    folder = save(tmp_path / "saved", sound=[{"bytes": b"RIFF", "path": None}] * 2)
    loaded = datasets.load_from_disk(str(folder)).cast_column("sound", datasets.Audio())
    loaded.save_to_disk(tmp_path / "sound")
    corpus = read_hub(str(tmp_path / "sound"), columns={"caption": "words"})
    assert corpus.captions["text"].to_pylist() == TEXTS


@pytest.mark.parametrize("kind", ["bytes", "struct", "bytes alone in a struct", "paths in a struct", "paths"])
def test_any_parquet_with_images_is_a_corpus(tmp_path: Path, kind: str) -> None:
    (tmp_path / "photos").mkdir()
    for k in (0, 1):
        (tmp_path / "photos" / f"{k}.jpg").write_bytes(jpeg(k))
    cells: dict[str, list[Any]] = {
        "bytes": [jpeg(0), jpeg(1)],
        "struct": [{"bytes": jpeg(k), "path": f"elsewhere/{k}.jpg"} for k in (0, 1)],
        "bytes alone in a struct": [{"bytes": jpeg(k)} for k in (0, 1)],
        "paths in a struct": [{"bytes": None, "path": f"photos/{k}.jpg"} for k in (0, 1)],
        "paths": [f"photos/{k}.jpg" for k in (0, 1)],
    }
    types = {"paths in a struct": pa.struct([("bytes", pa.binary()), ("path", pa.string())])}
    table = pa.table({"image": pa.array(cells[kind], types.get(kind)), "caption": TEXTS})
    pq.write_table(table, tmp_path / "any.parquet")
    corpus = open_corpus(str(tmp_path / "any.parquet"))
    assert corpus.source is not None
    assert [corpus.source.read(key) for key in texts(corpus.images["key"])] == [jpeg(0), jpeg(1)]


def test_a_path_in_a_cell_cannot_leave_the_folder_of_its_table(tmp_path: Path) -> None:
    (tmp_path / "secret.jpg").write_bytes(jpeg(0))
    folder = tmp_path / "inside"
    folder.mkdir()
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    for path in ("../secret.jpg", str(tmp_path / "secret.jpg")):
        pq.write_table(
            pa.table({"image": pa.array([{"bytes": None, "path": path}], kind), "caption": ["x"]}), folder / "t.parquet"
        )
        with pytest.raises(RequestError, match="outside the data set's folders"):
            open_corpus(str(folder / "t.parquet"))
