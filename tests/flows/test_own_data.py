"""Own data on the command line: the ids that an import needs, and embeddings without files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.command import command, json_rows


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with three photographs and their captions in photos/."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for name, colour in (("b", "blue"), ("a", "red"), ("c", "green")):
        Image.new("RGB", (16, 12), colour).save(tmp_path / "photos" / f"{name}.jpg")
    (tmp_path / "photos" / "captions.csv").write_text("image,caption\nb.jpg,blue\na.jpg,red\na.jpg,rose\nc.jpg,green\n")
    return tmp_path


def test_ids_of_a_corpus_on_disk_come_in_its_order_and_nothing_is_stored(folder: Path) -> None:
    assert [row["id"] for row in json_rows("list ids photos")] == ["b.jpg", "a.jpg", "c.jpg"]
    captions = json_rows("list ids photos/captions.csv --modality caption")
    assert [(row["id"], row["image_id"], row["text"]) for row in captions] == [
        ("row1", "b.jpg", "blue"),
        ("row2", "a.jpg", "red"),
        ("row3", "a.jpg", "rose"),
        ("row4", "c.jpg", "green"),
    ]
    (folder / "photos" / "a.jpg").write_bytes(b"damaged")
    assert [row["id"] for row in json_rows("list ids ./photos")] == ["b.jpg", "c.jpg"]  # as an import has it
    assert not (folder / "workspace").exists()


def test_ids_of_quadruples_and_of_what_a_corpus_has_besides(folder: Path) -> None:
    assert command("check ./photos").err == "checking ./photos as a corpus\n"
    printed = command("list ids shapes-winoground --modality quadruple --format json")
    assert set(printed.rows[0]) == {"id", "image_0", "image_1", "caption_0", "caption_1"}
    assert "others: --modality image, --modality caption" in printed.err


def test_what_is_missing_of_imported_embeddings_is_named_with_the_import(folder: Path) -> None:
    (folder / "ids.csv").write_text("image,caption_id\n" + "".join(f"p{n},c{n}\n" for n in range(12)))
    (folder / "products.toml").write_text('reader = "table"\nroot = "ids.csv"\nids_only = true\n')
    said = command("run --corpora products.toml --encoders tiny-clip --quiet", code=2).err
    assert "capim import --corpus products.toml --encoder NAME --images FILE --captions FILE" in said
    assert "capim list ids products.toml" in said
    np.savez("images.npz", embeddings=np.random.default_rng(0).normal(size=(12, 8)), ids=[f"p{n}" for n in range(12)])
    said = command("import --corpus products.toml --encoder ours --images images.npz").err
    assert "captions of products by ours are missing: run `capim import --corpus" in said and "--captions FILE`" in said
    for named in ("", "--corpora products --encoders ours"):
        said = command(f"evaluate --replicates 100 {named}", code=2).err
        assert "capim import --corpus products --encoder ours --captions FILE" in said
