"""`capim duplicates`: planted copies are found, by bytes, by names between corpora, and by vectors."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.schema import StoredImage, texts
from capim.store.types import Corpus
from capim.tasks.analyses.duplicates import duplicates
from capim.tasks.corpora.readers.labels import read_labels
from tests.command import command
from tests.random_store import SPECS, random_store

ONE = next(spec for spec in SPECS if spec.vectors == "single")


def labelled(folder: Path, name: str, colours: dict[str, int]) -> Corpus:
    for file, colour in colours.items():
        path = folder / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (colour, 255 - colour, 9)).save(path)
    return read_labels(folder / name)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("duplicates")
    train = labelled(folder, "train", {"a/1.png": 1, "a/2.png": 2, "b/3.png": 3, "b/4.png": 1})
    test = labelled(folder, "test", {"a/7.png": 2, "b/3.png": 90, "b/8.png": 91})
    for corpus in (train, test):
        random_store(folder / "store", corpus, (ONE,))
    return folder


def test_equal_bytes_and_names_are_told_once_each(workspace: Path) -> None:
    store = EmbeddingStore.open(workspace / "store")
    found = {astuple(row) for row in duplicates(store, [store.corpus("train"), store.corpus("test")])}
    assert found == {
        ("train", "a/1.png", "train", "b/4.png", "bytes", None),
        ("train", "a/2.png", "test", "a/7.png", "bytes", None),
        ("train", "b/3.png", "test", "b/3.png", "name", None),
    }


@pytest.mark.parametrize("threshold", [-0.2, 0.1, 0.4])
def test_vectors_above_the_threshold_are_those_of_the_whole_table(workspace: Path, threshold: float) -> None:
    store = EmbeddingStore.open(workspace / "store")
    corpora = [store.corpus(name) for name in ("train", "test")]
    rows = [row for row in duplicates(store, corpora, encoder=ONE.name, threshold=threshold) if row.by == "vectors"]
    every = [(corpus.name, id_) for corpus in corpora for id_ in texts(corpus.images["id"])]
    matrices = [store.vectors(encoder=ONE.name, corpus=corpus.name, modality="image").matrix for corpus in corpora]
    scores = np.concatenate(matrices) @ np.concatenate(matrices).T
    pairs = {
        (*every[a], *every[b]): scores[a, b]
        for a in range(len(every))
        for b in range(a + 1, len(every))
        if scores[a, b] >= threshold
    }
    told = {("train", "a/1.png", "train", "b/4.png"), ("train", "a/2.png", "test", "a/7.png")}
    told |= {("train", "b/3.png", "test", "b/3.png")}
    found = {(row.corpus, row.image, row.other_corpus, row.other_image): row.cosine for row in rows}
    assert found.keys() == pairs.keys() - told
    assert all(found[pair] == pytest.approx(pairs[pair], abs=1e-6) for pair in found)


def test_pictures_of_another_size_and_compression_are_alike(tmp_path: Path) -> None:
    """Two pictures, the first three times; the hash is the one that ImageHash gives (checked for these by hand)."""
    rng = np.random.default_rng(0)
    drawn = [Image.fromarray(rng.integers(256, size=(9, 9), dtype=np.uint8)).resize((240, 180)) for _ in range(2)]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    drawn[0].save(tmp_path / "a/whole.png")
    drawn[0].save(tmp_path / "b/compressed.jpg", quality=30)
    drawn[0].resize((120, 90)).save(tmp_path / "a/small.jpg")
    drawn[1].save(tmp_path / "b/other.png")
    corpus = read_labels(tmp_path)
    store = random_store(tmp_path / "store", corpus, (ONE,))
    paths = [tmp_path / id_ for id_ in texts(corpus.images["id"])]
    shas = [str(sha) for sha in corpus.images["sha"].to_pylist()]
    store.write_images(
        StoredImage(item=sha, sha=sha, width=1, height=1, thumbnail=path.read_bytes())
        for sha, path in zip(shas, paths, strict=True)
    )
    pairs = [(row.image, row.other_image) for row in duplicates(store, [corpus], bits=4)]
    same = ["a/small.jpg", "a/whole.png", "b/compressed.jpg"]
    assert sorted(pairs) == [(one, other) for at, one in enumerate(same) for other in same[at + 1 :]]


def test_the_command_counts_images_and_refuses_what_has_no_cosine(workspace: Path) -> None:
    printed = command("duplicates --corpus train,test --format json", workspace)
    assert len(printed.rows) == 3
    assert "train: 4 of 4 images have a duplicate" in printed.err
    assert "test: 2 of 3 images have a duplicate" in printed.err
    store = EmbeddingStore.open(workspace / "store")
    with pytest.raises(RequestError, match="between -1 and 1, got 2"):
        list(duplicates(store, [store.corpus("train")], threshold=2))
