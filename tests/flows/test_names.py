"""One name for a corpus everywhere: its path, its reader's name and its stored name mean the same in every command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capim.store import EmbeddingStore
from capim.store.rows import delete
from capim.store.schema import Comparison
from tests.command import command, json_rows

pytestmark = pytest.mark.slow  # whole suites of commands

COLOURS = ("red", "green", "blue", "white", "black", "orange")
EMBED = "embed --encoders tiny-clip --device cpu --quiet --corpora"
QUICK = "--replicates 100 --quiet"


def photos(folder: Path, *, colours: tuple[str, ...] = COLOURS) -> Path:
    """A folder of images of one colour each, with two captions for every image."""
    (folder / "images").mkdir(parents=True)
    images, captions = [], []
    for i, colour in enumerate(colours):
        Image.new("RGB", (8, 8), colour).save(folder / "images" / f"{colour}.png")
        images.append({"id": i, "file_name": f"{colour}.png"})
        captions += [{"id": 10 * i + k, "image_id": i, "caption": f"{colour} {k}"} for k in range(2)]
    (folder / "captions.json").write_text(json.dumps({"images": images, "annotations": captions}))
    return folder


def corpora_of(workspace: Path) -> set[str]:
    return {row.name for row in EmbeddingStore.open(workspace / "store").corpora()}


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders of the same name: one of six photographs, one of four."""
    return photos(tmp_path / "a" / "photos"), photos(tmp_path / "b" / "photos", colours=COLOURS[:4])


@pytest.fixture
def karpathy(tmp_path: Path) -> Path:
    """A small file in Karpathy's format, whose reader names the corpus itself, without images."""
    entries = [
        {"file_name": f"COCO_val2014_{i:012d}.jpg", "captions": [f"caption {i} {k}" for k in range(5)]}
        for i in range(8)
    ]
    file = tmp_path / "data" / "test_5k.toml"
    file.parent.mkdir()
    (file.parent / "karpathy_test.json").write_text(json.dumps(entries))
    file.write_text('reader = "coco-karpathy"\nroot = "karpathy_test.json"\nground_truths = []\n')
    return file


@pytest.fixture
def imported(karpathy: Path, tmp_path: Path) -> Path:
    """A workspace with embeddings imported under the path of that file."""
    workspace = tmp_path / "workspace"
    generator = np.random.default_rng(0)
    for name, n in (("images", 8), ("captions", 40)):
        np.save(tmp_path / f"{name}.npy", generator.standard_normal((n, 4)).astype(np.float32))
    files = f"--images {tmp_path}/images.npy --captions {tmp_path}/captions.npy"
    command(f"import --corpus {karpathy} --encoder theirs {files}", workspace)
    return workspace


def test_a_path_that_import_took_is_found_by_every_other_command(
    imported: Path, karpathy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert corpora_of(imported) == {"coco-karpathy"}
    monkeypatch.chdir(karpathy.parent)
    for name in (str(karpathy), "./test_5k.toml"):
        command(f"evaluate --corpora {name} {QUICK}", imported)
        command(f"compare --corpora {name} {QUICK}", imported)
        command(f"report --corpora {name}", imported)
        command(f"fuse --corpora {name} --encoders theirs,theirs {QUICK}", imported)
        for what in ("results", "outcomes"):
            command(f"export {what} --corpus {name} --to {tmp_path}/{what}.csv", imported)
        image = "--encoder theirs --modality image"
        command(f"export embeddings --corpus {name} {image} --to {tmp_path}/e.npz", imported)
        assert "would drop 2 tables" in command(f"store drop --corpus {name} --encoder theirs", imported).err
    for name in (str(karpathy), "./test_5k.toml", "test_5k.toml", "coco-karpathy"):
        assert json_rows(f"results --corpus {name}", imported)
    assert corpora_of(imported) == {"coco-karpathy"}


def test_two_folders_of_the_same_name_are_told_apart_in_one_run_and_over_several(
    two: tuple[Path, Path], tmp_path: Path
) -> None:
    a, b = two
    together, apart = tmp_path / "together", tmp_path / "apart"
    assert "corpus b-photos: 'photos' from" in command(f"{EMBED} {a},{b}", together).err
    for path in (a, b, a, b):
        command(f"{EMBED} {path}", apart)
    for workspace in (together, apart):
        store = EmbeddingStore.open(workspace / "store")
        assert corpora_of(workspace) == {"photos", "b-photos"}
        assert {name: len(store.corpus(name).images) for name in ("photos", "b-photos")} == {"photos": 6, "b-photos": 4}
        command(f"evaluate --corpora {b} {QUICK}", workspace)
        rows = json_rows(f"results --corpus {b} --protocol t2i/all --metric R@1", workspace)
        assert [(row["corpus"], row["n_queries"]) for row in rows] == [("b-photos", 8)]
        assert store.rows("results", corpus="photos").num_rows == 0
    said = command(f"{EMBED} b-photos,photos", apart).err
    assert said.count(": 0 items encoded") == 2, "what is printed can be typed"


def test_a_folder_that_was_never_read_is_not_taken_for_another_of_its_name(
    two: tuple[Path, Path], tmp_path: Path
) -> None:
    a, b = two
    command(f"{EMBED} {a}", tmp_path / "workspace")
    assert f"capim embed --corpora {b}" in command(f"evaluate --corpora {b}", tmp_path / "workspace", code=2).err


def test_an_explicit_name_is_never_changed_and_its_newest_contents_mean_it(
    two: tuple[Path, Path], tmp_path: Path
) -> None:
    workspace = tmp_path / "workspace"
    for folder in two:
        (folder / "corpus.toml").write_text('name = "ours"\nreader = "coco-captions"\nroot = "."\n')
        said = command(f"{EMBED} {folder}", workspace).err
    assert "the name 'ours' now means" in said
    assert corpora_of(workspace) == {"ours"}
    assert len(EmbeddingStore.open(workspace / "store").corpus("ours").images) == 4


def test_a_name_that_is_also_another_folder_here_is_refused_rather_than_guessed(
    two: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "workspace"
    command(f"{EMBED} {two[0]},{two[1]}", workspace)
    monkeypatch.chdir(two[1].parent)
    said = command("evaluate --corpora photos --replicates 100", workspace, code=2).err
    assert "corpus 'photos' is ambiguous" in said
    command(f"evaluate --corpora b-photos {QUICK}", workspace)


def test_compare_export_and_report_take_only_what_is_named(three_encoders: Path, tmp_path: Path) -> None:
    workspace = shutil.copytree(three_encoders, tmp_path / "workspace", symlinks=True)
    pair, corpus = "tiny-clip,tiny-colpali", "shapes-sample12"
    store = EmbeddingStore.open(workspace / "store")
    delete(store.connection, "comparisons", "encoder_a", [row.name for row in store.encoders()])
    chosen = f"--corpora {corpus} --encoders {pair} --protocols t2i/*"
    command(f"evaluate --corpora {corpus} --encoders {pair} --protocols t2i/first {QUICK}", workspace)
    command(f"compare {chosen} {QUICK}", workspace)
    protocols = {"t2i/all", "t2i/first"}
    compared = EmbeddingStore.open(workspace / "store").all(Comparison)
    assert {(row.encoder_a, row.encoder_b, row.corpus) for row in compared} == {("tiny-clip", "tiny-colpali", corpus)}
    assert {row.protocol for row in compared} == protocols
    target = tmp_path / "chosen.json"
    command(f"export results --corpus {corpus} --encoder {pair} --protocol t2i/* --to {target}", workspace)
    for file in (command(f"report {chosen}", workspace).page.with_name("results.json"), target):
        rows = json.loads(file.read_text())["results"]
        assert {row["corpus"] for row in rows} == {corpus}
        assert {row["encoder"] for row in rows} == {"tiny-clip", "tiny-colpali"}
        assert {row["protocol"] for row in rows} == protocols
