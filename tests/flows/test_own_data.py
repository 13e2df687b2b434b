"""Own data on the command line: what is recognised, the ids that an import needs, embeddings without files."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capim.flows.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with three photographs and their captions in photos/."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for name, colour in (("b", "blue"), ("a", "red"), ("c", "green")):
        Image.new("RGB", (16, 12), colour).save(tmp_path / "photos" / f"{name}.jpg")
    (tmp_path / "photos" / "captions.csv").write_text("image,caption\nb.jpg,blue\na.jpg,red\na.jpg,rose\nc.jpg,green\n")
    return tmp_path


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, str]]:
    assert main([*words, "--format", "csv"]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_a_check_says_how_a_folder_was_recognised_and_what_to_type_next(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["corpora", "check", "./photos"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "recognised: a table, captions.csv"
    assert lines[-1] == "next: capim run --corpora ./photos --encoders NAME (names: capim list encoders)"


def test_ids_of_a_corpus_on_disk_come_in_its_order_and_nothing_is_stored(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [row["id"] for row in rows(capsys, "corpora", "ids", "photos")] == ["b.jpg", "a.jpg", "c.jpg"]
    captions = rows(capsys, "corpora", "ids", "photos/captions.csv", "--modality", "caption")
    assert [(row["id"], row["image_id"], row["text"]) for row in captions] == [
        ("row1", "b.jpg", "blue"),
        ("row2", "a.jpg", "red"),
        ("row3", "a.jpg", "rose"),
        ("row4", "c.jpg", "green"),
    ]
    (folder / "photos" / "a.jpg").write_bytes(b"damaged")
    assert [row["id"] for row in rows(capsys, "corpora", "ids", "./photos")] == [
        "b.jpg",
        "c.jpg",
    ]  # as an import has it
    assert not (folder / "workspace").exists()


def test_ids_of_quadruples_and_of_what_a_corpus_has_besides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["corpora", "ids", "shapes-winoground", "--modality", "quadruple", "--format", "json"]) == 0
    printed = capsys.readouterr()
    first = json.loads(printed.out)[0]
    assert set(first) == {"id", "image_0", "image_1", "caption_0", "caption_1"}
    assert "others: --modality image, --modality caption" in printed.err


@pytest.mark.slow
def test_who_has_only_embeddings_is_led_from_ids_to_figures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "ids.csv").write_text("image,caption_id\n" + "".join(f"p{n},c{n}\n" for n in range(12)))
    (folder / "products.toml").write_text('reader = "table"\nroot = "ids.csv"\nids_only = true\n')
    assert main(["corpora", "check", "products.toml"]) == 0
    assert (
        capsys.readouterr().out.splitlines()[-1].startswith("next: capim import --corpus products.toml --encoder NAME")
    )
    assert main(["run", "--corpora", "products.toml", "--encoders", "tiny-clip", "--quiet"]) != 0
    printed = capsys.readouterr().err
    assert "capim import --corpus products.toml --encoder NAME --images FILE --captions FILE" in printed
    assert "capim corpora ids products.toml" in printed
    vectors = np.random.default_rng(0).normal(size=(12, 8)).astype(np.float32)
    np.savez(
        "images.npz", embeddings=vectors, ids=[row["id"] for row in rows(capsys, "corpora", "ids", "products.toml")]
    )
    ids = [row["id"] for row in rows(capsys, "corpora", "ids", "products.toml", "--modality", "caption")]
    np.savez("captions.npz", embeddings=vectors, ids=ids)
    assert main(["import", "--corpus", "products.toml", "--encoder", "ours", "--images", "images.npz"]) == 0
    capsys.readouterr()
    evaluate = ["evaluate", "--replicates", "100", "--quiet"]
    for named in ([], ["--corpora", "products", "--encoders", "ours"]):
        assert main([*evaluate, *named]) == 2
        assert "capim import --corpus products --encoder ours --captions FILE" in capsys.readouterr().err
    assert main(["import", "--corpus", "products", "--encoder", "ours", "--captions", "captions.npz"]) == 0
    assert main([*evaluate, "--corpora", "products", "--encoders", "ours"]) == 0
    capsys.readouterr()
    found = rows(capsys, "results", "--protocol", "t2i/all", "--metric", "R@1")
    assert [(row["encoder"], float(row["value"])) for row in found] == [("ours", 1.0)]
