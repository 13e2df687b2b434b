"""Embeddings made elsewhere, by the command line: identity, storage, many at once, and what the report says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.tasks.corpora.description import open_corpus
from tests.command import command, json_rows

pytestmark = pytest.mark.slow  # whole suites of commands

QUICK = "--replicates 200 --quiet"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


def describe(folder: Path, name: str, n: int) -> str:
    """A corpus of rendered scenes, as a TOML file."""
    (folder / f"{name}.toml").write_text(f'name = "{name}"\nreader = "shapes"\nn_scenes = {n}\n')
    return str(folder / f"{name}.toml")


def embed(corpus: str, images: NDArray[np.floating], noise: float) -> dict[str, NDArray[np.float32]]:
    """Unit vectors: the images, and captions that are their image with noise."""
    contents = open_corpus(corpus)
    position = {image: at for at, image in enumerate(contents.images["id"].to_pylist())}
    own = images[[position[image] for image in contents.captions["image_id"].to_pylist()]]
    captions = own + noise * np.random.default_rng(1).standard_normal(own.shape)
    return {
        side: (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)
        for side, values in (("images", images), ("captions", captions))
    }


def save(folder: Path, vectors: dict[str, NDArray[np.float32]]) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    for side, values in vectors.items():
        np.save(folder / f"{side}.npy", values)
    return {side: str(folder / f"{side}.npy") for side in vectors}


def test_two_corpora_by_two_imports_each_are_one_model_and_the_report_says_nothing_else(
    workspace: Path, tmp_path: Path
) -> None:
    files = {}
    for seed, name in enumerate(("first", "second")):
        corpus = describe(tmp_path, name, 12)
        images = np.random.default_rng(seed).standard_normal((12, 16))
        files[corpus] = save(tmp_path / name, embed(corpus, images, noise=0.3))
    for side in ("images", "captions"):
        for corpus, of_corpus in files.items():
            said = command(f"import --encoder theirs --corpus {corpus} --{side} {of_corpus[side]}", workspace).err
            if side == "images":
                assert "are missing: run `capim import --corpus" in said and "--captions FILE`" in said
    assert "theirs: 60 captions of second imported" in said
    assert "run `capim evaluate --corpora second --encoders theirs`" in said
    command(f"evaluate {QUICK}", workspace)
    rows = json_rows("results --encoder theirs", workspace)
    found = [(row["corpus"], row["protocol"], row["metric"]) for row in rows]
    assert len(found) == len(set(found))
    assert {corpus for corpus, _, _ in found} == {"first", "second"}
    text = command("report --markdown whole", workspace).page.with_name("report.md").read_text("utf-8")
    assert text.count("unversioned") == 1
    assert "| theirs | theirs | unversioned | imported v1 | single | 16 | – | float32 | – |" in text
    for untrue in ("earlier version", "Left out", "changed"):
        assert untrue not in text, untrue
    assert len(EmbeddingStore.open(workspace / "store").encoders()) == 1


def test_what_float16_costs_is_what_the_ablation_of_the_float32_set_says(workspace: Path, tmp_path: Path) -> None:
    """Pairs of images that are almost equal, at distances around the rounding of float16."""
    n = 120
    corpus = describe(tmp_path, "near", n)
    generator = np.random.default_rng(0)
    images = np.repeat(generator.standard_normal((n // 2, 64)), 2, axis=0)
    images[1::2] += generator.standard_normal((n // 2, 64)) * np.geomspace(1e-4, 1e-2, n // 2)[:, None]
    files = save(tmp_path / "in", embed(corpus, images, noise=0.0))
    both = f"--corpus {corpus} --images {files['images']} --captions {files['captions']}"
    assert "rounded" not in command(f"import --encoder fine {both}", workspace).err
    said = command(f"import --encoder coarse {both} --storage float16", workspace).err
    assert "stored as float16: each vector rounded by at most 0.0" in said
    command(f"evaluate --protocols t2i/all {QUICK}", workspace)
    command(f"compare --analyses compression {QUICK}", workspace)
    value = {row["encoder"]: row["value"] for row in json_rows("results --metric R@1", workspace)}
    assert abs(value["coarse"] - value["fine"]) > 0.01
    slices = EmbeddingStore.open(workspace / "store").rows("slices", encoder="fine", analysis="precision")
    [ablation] = [r for r in slices.to_pylist() if (r["feature"], r["level_name"]) == ("stored in", "float16")]
    assert ablation["value"] == pytest.approx(value["coarse"], abs=1e-12)
    assert json.loads(ablation["detail"])["change"] == pytest.approx(value["coarse"] - value["fine"], abs=1e-12)


def test_the_storage_type_of_an_encode_is_an_option_and_its_rounding_is_said(workspace: Path, tmp_path: Path) -> None:
    embed = f"embed --corpora {describe(tmp_path, 'few', 5)} --device cpu"
    assert "rounded" not in command(f"{embed} --encoders tiny-clip", workspace).err
    for request in ("tiny-clip --storage float16", "tiny-colpali"):
        assert "stored as float16: " in command(f"{embed} --encoders {request}", workspace).err
    store = EmbeddingStore.open(workspace / "store")
    stored = [(sealed.key.encoder, sealed.storage) for sealed in store.sealed_sets() if sealed.key.modality == "image"]
    assert stored == [("tiny-clip", "float32"), ("tiny-clip", "float16"), ("tiny-colpali", "float16")]
    assert len({sealed.key.encoder_fingerprint for sealed in store.sealed_sets()}) == 3
