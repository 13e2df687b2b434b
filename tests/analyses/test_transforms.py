"""Other forms of vectors, against torch and against their definitions; low-precision scores against the real scorer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from capim.store.vectors import Ragged
from capim.tasks.analyses.ablations import hits_scored_in
from capim.tasks.analyses.gallery import centre_distance, mean_cosine
from capim.tasks.analyses.transforms import (
    centring,
    normalised,
    pooled,
    principal_axes,
    quantised,
    rounded,
    token_trees,
    whitening,
)
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from capim.tasks.metrics import METRICS
from capim.tasks.ranking.cosine import score_dense
from capim.tasks.ranking.protocols import build_task, select_protocols
from capim.tasks.ranking.tasks import RetrievalTask


def unit(rng: np.random.Generator, n: int, dim: int) -> np.ndarray:
    return normalised(rng.normal(size=(n, dim)).astype(np.float32))


@given(arrays.arrays(np.float32, (3, 4), elements=st.floats(-4, 4, width=32)))
def test_rounding_to_bfloat16_is_that_of_torch(values: np.ndarray) -> None:
    expected = torch.from_numpy(values).to(torch.bfloat16).to(torch.float32).numpy()
    assert np.array_equal(rounded(values, "bfloat16"), expected)


def test_int8_is_off_by_half_a_step_at_most() -> None:
    vectors = unit(np.random.default_rng(0), 50, 16)
    reach = np.abs(vectors).max(axis=0)
    assert (np.abs(quantised(vectors, "int8", reach=reach) - vectors) <= reach / 127 / 2 * 1.001).all()


def test_binary_ranks_by_hamming_distance() -> None:
    rng = np.random.default_rng(1)
    a, b = unit(rng, 5, 32), unit(rng, 7, 32)
    reach = np.ones(32, dtype=np.float32)
    hamming = ((a[:, None] > 0) != (b[None] > 0)).sum(axis=2)
    dots = quantised(a, "binary", reach=reach) @ quantised(b, "binary", reach=reach).T
    assert np.array_equal(dots, 32 - 2 * hamming)


def test_centring_closes_the_modality_gap() -> None:
    rng = np.random.default_rng(2)
    images, captions = normalised(unit(rng, 200, 8) + 1), normalised(unit(rng, 200, 8) - 1)
    assert centre_distance(images, captions) > 1
    assert centre_distance(*centring(images, captions)(images, captions)) < 0.1


def test_whitened_vectors_spread_far_more_evenly() -> None:
    rng = np.random.default_rng(3)
    stretched = normalised(unit(rng, 2000, 4) * np.array([5, 1, 1, 1], np.float32))
    before = stretched.var(axis=0)
    halves = stretched[:1000], stretched[1000:]
    after = np.concatenate(whitening(*halves)(*halves)).var(axis=0)
    assert before.max() / before.min() > 6
    assert after.max() / after.min() < 3


def test_a_projection_onto_all_directions_keeps_every_cosine() -> None:
    rng = np.random.default_rng(4)
    images, captions = unit(rng, 30, 6), unit(rng, 40, 6)
    axes = principal_axes(images, captions)
    turned_images, turned_captions = images @ axes, captions @ axes
    assert turned_captions @ turned_images.T == pytest.approx(captions @ images.T, abs=1e-5)


def test_pooling_merges_near_vectors_and_keeps_every_item() -> None:
    near = normalised(np.array([[1, 0, 0], [1, 0.01, 0], [0, 1, 0], [0, 1, 0.01], [0, 0, 1]], np.float32))
    vectors = Ragged.from_counts(near, [4, 1])
    trees = token_trees(vectors)
    half = pooled(vectors, trees, 2)
    assert half.offsets.tolist() == [0, 2, 3]
    assert sorted(np.abs(half.values[:2]).argmax(axis=1).tolist()) == [0, 1]
    assert np.array_equal(pooled(vectors, trees, 1).values, near)


def judgements() -> tuple[list[RetrievalTask], np.ndarray, np.ndarray]:
    """Thirty images with two captions each, the captions of the last two images identical."""
    rng = np.random.default_rng(6)
    corpus = build_corpus(
        "thirty",
        [ImageRow(f"i{k}") for k in range(30)],
        [CaptionRow(f"c{k}-{j}", f"i{k}", "x") for k in range(30) for j in range(2)],
        source=None,
    )
    images = unit(rng, 30, 12)
    captions = normalised(np.repeat(images, 2, axis=0) + np.float32(0.35) * unit(rng, 60, 12))
    captions[58:] = captions[56:58]
    asked = [build_task(corpus, protocol) for protocol in select_protocols(corpus, ["t2i/all", "i2t/any"])]
    return [j for j in asked if isinstance(j, RetrievalTask)], images, captions


def test_scored_in_float32_is_what_the_scorer_gives() -> None:
    asked, images, captions = judgements()
    for judgement, outcomes in zip(asked, score_dense(images, captions, asked).values(), strict=True):
        scored = hits_scored_in("float32", images, captions, judgement)
        assert scored.hits == pytest.approx(METRICS["R@1"].per_query(outcomes))
        assert np.array_equal(scored.tied, outcomes.tied)


def test_identical_captions_of_two_images_tie_for_both_images() -> None:
    asked, images, captions = judgements()
    assert hits_scored_in("float32", images, captions, asked[1]).tied[28:].all()


def test_bfloat16_scores_tie_where_float32_scores_do_not() -> None:
    asked, images, captions = judgements()
    images, captions = (normalised(vectors[:, :3] + 3) for vectors in (images, captions))
    fine, coarse = (hits_scored_in(kind, images, captions, asked[0]) for kind in ("float32", "bfloat16"))
    assert fine.tied.sum() == 0
    assert coarse.tied.sum() > 10


def test_the_mean_cosine_is_that_of_all_pairs() -> None:
    vectors = unit(np.random.default_rng(7), 20, 5)
    pairs = (vectors @ vectors.T)[~np.eye(20, dtype=bool)]
    assert mean_cosine(vectors) == pytest.approx(pairs.mean(), abs=1e-6)
    assert np.isnan(mean_cosine(vectors[:1]))
