"""One name for a corpus everywhere: its path, its reader's name and its stored name mean the same in every command."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capim.store import EmbeddingStore
from capim.store.schema import Comparison
from capim.tasks.corpora.readers.shapes import read_shapes
from tests.command import command, json_rows
from tests.random_store import OTHER, SPECS, random_store

pytestmark = pytest.mark.slow  # whole suites of commands

EMBED = "embed --encoders tiny-clip --device cpu --quiet --corpora"
QUICK = "--replicates 100 --quiet"


def photos(folder: Path, n_images: int = 6) -> Path:
    """A folder of images with a caption each."""
    folder.mkdir(parents=True)
    for n in range(n_images):
        Image.new("RGB", (8, 8), (40 * n, 9, 9)).save(folder / f"{n}.png")
    (folder / "captions.csv").write_text("image,caption\n" + "".join(f"{n}.png,picture {n}\n" for n in range(n_images)))
    return folder


def corpora_of(workspace: Path) -> set[str]:
    return {row.name for row in EmbeddingStore.open(workspace / "store").corpora()}


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders of the same name: one of six photographs, one of four."""
    return photos(tmp_path / "a" / "photos"), photos(tmp_path / "b" / "photos", 4)


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
    file.write_text('reader = "coco-karpathy"\nroot = "karpathy_test.json"\n')
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


def test_the_name_of_a_stored_corpus_is_never_stored_as_another_folder_of_that_name(
    two: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors went into a new corpus "b-photos", and the gate of "photos" judged the earlier ones."""
    workspace = tmp_path / "workspace"
    command(f"{EMBED} {two[0]}", workspace)
    monkeypatch.chdir(two[1].parent)
    for _ in range(2):
        said = command(f"{EMBED} photos", workspace, code=2).err
        assert f"corpus 'photos' is ambiguous: the folder or file {two[1]}, 'b-photos' in the store, or" in said
        assert corpora_of(workspace) == {"photos"}
    command(f"{EMBED} ./photos", workspace)
    assert corpora_of(workspace) == {"photos", "b-photos"}
    for words in (f"{EMBED} photos", "evaluate --corpora photos"):
        assert "is ambiguous" in command(words, workspace, code=2).err
    monkeypatch.chdir(shutil.copytree(two[0].parent, tmp_path / "c"))
    assert ": 0 items encoded" in command(f"{EMBED} photos", workspace).err, "a copy is the same corpus"


def test_compare_export_and_report_take_only_what_is_named(tmp_path: Path) -> None:
    for seed, name in enumerate(("shapes", "others")):
        corpus = replace(read_shapes(n_scenes=12, seed=seed), name=name)
        store = random_store(tmp_path / "store", corpus, (*SPECS, OTHER))
    command(f"evaluate --protocols t2i/all,t2i/first,i2t/any --device cpu {QUICK}", tmp_path)
    chosen = "--corpora shapes --encoders one,other --protocols t2i/*"
    said = command(f"compare {chosen} {QUICK}", tmp_path).err
    assert "adjusted only over the pairs of one and other" in said
    protocols = {"t2i/all", "t2i/first"}
    compared = store.all(Comparison)
    assert {(row.encoder_a, row.encoder_b, row.corpus) for row in compared} == {("one", "other", "shapes")}
    assert {row.protocol for row in compared} == protocols
    target = tmp_path / "chosen.json"
    command(f"export results --corpus shapes --encoder one,other --protocol t2i/* --to {target}", tmp_path)
    for file in (command(f"report {chosen}", tmp_path).page.with_name("results.json"), target):
        rows = json.loads(file.read_text())["results"]
        assert {row["corpus"] for row in rows} == {"shapes"}
        assert {row["encoder"] for row in rows} == {"one", "other"}
        assert {row["protocol"] for row in rows} == protocols
