"""Maps of embedding sets: what the plane keeps of the neighbourhood, and the files that maps are kept in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from capim.tasks.corpora.readers.shapes import read_shapes
from capim.tasks.results import maps
from capim.tasks.results.maps import map_of, neighbourhood_kept, project
from tests.random_store import SPECS, random_store


def test_five_points_worked_by_hand() -> None:
    # on a quarter circle in this order: 0 1 2 3 4; in the plane 1 and 3 have changed places
    angles = np.array([0.0, 0.1, 0.3, 0.6, 1.0], np.float32)
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    plane = np.array([[0.0, 0], [0.6, 0], [0.3, 0], [0.1, 0], [1.0, 0]], np.float32)
    kept = neighbourhood_kept(vectors, plane, nearest=1)
    # nearest in space: 1 0 1 2 3; in the plane: 3 2 3 0 1. Ranks in space of the latter: 3 2 2 4 3, so the penalty is
    # 2 + 1 + 1 + 3 + 2 = 9, of at most n k (2n - 3k - 1) / 2 = 15
    assert kept.share == 0.0
    assert kept.trustworthiness == pytest.approx(1 - 9 / 15)


def test_trustworthiness_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(120, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    plane = vectors[:, :2] + rng.normal(scale=0.05, size=(120, 2)).astype(np.float32)
    expected = 0.659561404  # sklearn.manifold.trustworthiness(vectors, plane, n_neighbors=10), scikit-learn 1.9.1
    assert neighbourhood_kept(vectors, plane).trustworthiness == pytest.approx(expected, abs=1e-6)
    part = neighbourhood_kept(vectors, plane, sample=60)
    assert part.n_sampled == 60
    assert part.trustworthiness == pytest.approx(expected, abs=0.03)


def test_a_map_is_kept_beside_the_store_and_made_again_if_damaged(tmp_path, monkeypatch) -> None:
    corpus, folder = read_shapes(n_scenes=12), tmp_path / "maps"
    store = random_store(tmp_path / "store", corpus)
    one, many = (spec.name for spec in SPECS)

    def made_or_read(modality: Any, encoder: str = one) -> Any:
        return map_of(store, encoder=encoder, corpus=corpus.name, modality=modality, folder=folder)

    made, image = made_or_read("caption"), made_or_read("image")
    assert len(list(folder.iterdir())) == 2
    with monkeypatch.context() as patch:
        patch.setattr(maps, "project", None)  # computes nothing
        again = made_or_read("caption")
    np.testing.assert_array_equal(again.plane.points, made.plane.points)
    assert again.kept == made.kept
    for file in folder.iterdir():  # a damaged file is made again
        file.write_bytes(file.read_bytes()[:100])
    np.testing.assert_array_equal(made_or_read("image").plane.points, image.plane.points)
    (folder / f"{'0' * 32}-pca.npz").touch()  # of a set that the store no longer has
    made_or_read("caption")
    assert len(list(folder.iterdir())) == 2
    blocks = store.multivectors(encoder=many, corpus=corpus.name, modality="image")
    means = np.stack([block[at].astype(np.float32).mean(axis=0) for block in blocks for at in range(len(block.ords))])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    np.testing.assert_allclose(made_or_read("image", many).plane.points, project(means).points, atol=1e-6)
