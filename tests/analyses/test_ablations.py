"""Ablations: what is fitted is tested on other images, a sample of the queries is stated, and forms are what they say.

Other forms of vectors, against torch and against their definitions; low-precision scores against the real scorer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from capim.store.schema import Batch
from capim.store.types import Corpus, EncoderSpec
from capim.store.vectors import Ragged
from capim.tasks.analyses import ablations
from capim.tasks.analyses.ablations import FITTED_ON, hits_scored_in
from capim.tasks.analyses.analysis import AnalysisInput, Matrix, SingleVectors
from capim.tasks.analyses.calibration import SCALES, temperatures, thresholds
from capim.tasks.analyses.transforms import (
    centring,
    normalised,
    pooled,
    principal_axes,
    rounded,
    token_trees,
    whitening,
)
from capim.tasks.metrics import METRICS
from capim.tasks.ranking.cosine import dense_part
from capim.tasks.ranking.layout import layout_of
from tests.random_store import row_of
from tests.repeated import repeated
from tests.results.thirty import analysed, captioned, ranked, retrieval_task

N, K, DIM = 40, 2, 12
IMAGE_OF = np.repeat(np.arange(N), K)


@pytest.fixture(scope="module")
def vectors() -> SingleVectors:
    rng = np.random.default_rng(5)
    images = normalised((rng.normal(size=(N, DIM)) + 1).astype(np.float32))
    noise = rng.normal(size=(N * K, DIM)).astype(np.float32)
    captions = normalised(images[IMAGE_OF] + np.float32(0.35) * noise - np.float32(0.3))
    norms = {"image_norms": rng.uniform(1, 2, N).astype(np.float32), "caption_norms": np.ones(N * K, np.float32)}
    return SingleVectors(images=images, captions=captions, **norms)


@pytest.fixture(scope="module")
def data(vectors: SingleVectors) -> AnalysisInput:
    return input_of(captioned(N, K), vectors)


def input_of(of: Corpus, vectors: SingleVectors) -> AnalysisInput:
    specs = {"a": EncoderSpec(name="a", adapter="x", checkpoint="x", revision="1", dim=DIM, storage="float32")}
    outcomes = {"a": ranked(of, vectors.images, vectors.captions)}
    return analysed(of, outcomes, specs=specs, vectors=lambda _: vectors)


def by_hand(data: AnalysisInput, of: SingleVectors, change: Any) -> float:
    """R@1 where each query and the gallery are changed by what the other half of the images gives."""
    hits, image_of = [], layout_of(data.corpus).caption_images
    for query, image in enumerate(image_of):
        other = data.second_half != data.second_half[image]
        images, captions = change(of.images[other], of.captions[other[image_of]], of)
        hits.append(int(np.argmax(images @ captions[query])) == image)
    return float(np.mean(hits))


def centred(fit_images: Matrix, fit_captions: Matrix, of: SingleVectors) -> tuple[Matrix, Matrix]:
    return normalised(of.images - fit_images.mean(axis=0)), normalised(of.captions - fit_captions.mean(axis=0))


def six_axes(fit_images: Matrix, fit_captions: Matrix, of: SingleVectors) -> tuple[Matrix, Matrix]:
    axes = principal_axes(fit_images, fit_captions)[:, :6]
    return normalised(of.images @ axes), normalised(of.captions @ axes)


def test_parameters_come_from_the_images_that_the_query_does_not_belong_to(data, vectors, monkeypatch) -> None:
    """Means, axes and ranges were computed from the images and captions that were then scored."""
    monkeypatch.setattr(ablations, "FEWEST_COMPONENTS", 3)
    slices: dict[Any, Any] = {(s.analysis, s.feature, s.level_name): s for s in ablations.vector_forms(data)}
    for name, change in (
        (("normalisation", "", "centred per modality"), centred),
        (("pca", "", "6 components"), six_axes),
    ):
        assert slices[name].interval.value == pytest.approx(by_hand(data, vectors, change)), name
    fitted = {name[::2] for name, row in slices.items() if row.detail.get("fitted_on") == FITTED_ON}
    assert fitted == {
        ("normalisation", "centred per modality"), ("normalisation", "whitened"), ("precision", "int8"),
        *(("pca", f"{n} components") for n in (12, 6, 3)),
    }  # fmt: skip


def test_halves_are_of_all_images_where_some_repeat_or_are_only_searched(vectors: SingleVectors) -> None:
    """A last image without captions was in neither half, and the index of the other half did not fit the vectors."""
    of = repeated(captioned(N - 2, K))
    own = np.isin(IMAGE_OF, layout_of(of).caption_images)
    some = replace(vectors, captions=vectors.captions[own], caption_norms=vectors.caption_norms[own])
    data = input_of(of, some)
    [found] = [s for s in ablations.vector_forms(data) if s.level_name == "centred per modality"]
    assert found.interval.value == pytest.approx(by_hand(data, some, centred))
    assert data.second_half[0] == data.second_half[N - 2], "equal bytes are in one half"


def test_a_sample_of_the_queries_is_stated(data: AnalysisInput, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablations, "MOST_QUERIES", 30)
    rows: list[Any] = list(ablations.vector_forms(data))
    assert {(row.n_queries, row.detail["n_all_queries"]) for row in rows} == {(30, N * K)}


def test_halves_share_no_image_and_are_equally_large(data: AnalysisInput) -> None:
    assert data.second_half.sum() == N // 2


def test_a_threshold_comes_from_the_other_half_of_the_images(data: AnalysisInput) -> None:
    outcomes: Any = data.outcomes["a"]
    first, second = outcomes.top_scores[:, 0], data.second_half[outcomes.clusters]
    by_share: dict[str, Any] = {s.level_name: s for s in thresholds(data)}
    for share in (0.5, 0.1):
        least = [np.quantile(first[second != half], 1 - share, method="lower") for half in (False, True)]
        answered = first >= np.where(second, least[1], least[0])
        row = by_share[f"{share:.0%} of queries"]
        assert row.n_queries == answered.sum()
        assert row.interval.value == pytest.approx((outcomes.rank_worst[answered] == 1).mean())
        assert row.detail["fitted_on"] == FITTED_ON
    assert by_share["100% of queries"].n_queries == N * K


def test_the_fitted_temperature_of_a_query_comes_from_the_other_half_of_the_images(data, vectors) -> None:
    scores = np.stack([scale * (vectors.captions @ vectors.images.T).astype(np.float64) for scale in SCALES])
    loss = np.log(np.exp(scores).sum(axis=2)) - scores[:, np.arange(N * K), IMAGE_OF]
    second = data.second_half[IMAGE_OF]
    best = [loss[:, second != half].mean(axis=1).argmin() for half in (False, True)]
    expected = np.where(second, loss[best[1]], loss[best[0]]).mean()
    rows: dict[Any, Any] = {(s.level_name, s.metric): s for s in temperatures(data)}
    fitted = rows["fitted", "negative log likelihood"]
    assert fitted.interval.value == pytest.approx(expected, rel=1e-5)
    assert fitted.detail == {"scales": [SCALES[at] for at in best], "fitted_on": FITTED_ON}
    assert ("fitted", "expected calibration error") in rows
    for at, scale in enumerate(SCALES):
        assert rows[f"{scale:g}", "negative log likelihood"].interval.value == pytest.approx(loss[at].mean(), rel=1e-5)


def test_confidence_comes_from_the_scores_of_the_ranks_whatever_the_number_of_threads(data: AnalysisInput) -> None:
    top: Any = data.outcomes["a"].top_scores  # the gallery is smaller than the list: every score of every query
    assert top.shape == (N * K, N)
    rows: dict[str, Any] = {s.level_name: s for s in temperatures(data) if s.metric == "expected calibration error"}
    for scale in SCALES:
        others = np.exp(np.float32(scale) * (top - top[:, :1])).sum(axis=1, dtype=np.float64)
        expected = (1 / others).mean()
        assert rows[f"{scale:g}"].detail["mean_confidence"] == pytest.approx(expected, rel=1e-13, abs=0)


def test_forms_that_change_nothing_have_the_hits_of_the_stored_vectors_and_shorter_ones_fewer(data, vectors) -> None:
    slices: dict[Any, Any] = {(s.analysis, s.feature, s.level_name): s for s in ablations.vector_forms(data)}
    values = {name: each.interval.value for name, each in slices.items()}
    hits = METRICS["R@1"].value(data.outcomes["a"])
    for name in (
        *(("precision", f"{verb} in", "float32") for verb in ("stored", "scored")),
        *(("truncation", "", f"{DIM} components"), ("normalisation", "", "L2"), ("pca", "", f"{DIM} components")),
    ):
        assert values[name] == pytest.approx(hits), name
    assert values["precision", "stored in", "binary"] < hits
    as_encoded = vectors.captions @ (vectors.images * vectors.image_norms[:, None]).T
    assert values["normalisation", "", "none"] == (as_encoded.argmax(axis=1) == IMAGE_OF).mean() < hits
    sizes = {level: s.detail["bytes_per_item"] for (_, feature, level), s in slices.items() if feature == "stored in"}
    assert sizes == {"float32": 48, "float16": 24, "bfloat16": 24, "int8": 12, "binary": 1.5}
    ties = {level: s.detail["n_tied"] for (_, feature, level), s in slices.items() if feature == "scored in"}
    assert ties["float32"] == 0 < ties["bfloat16"]


def test_a_forward_pass_in_another_precision_is_compared_pairwise(data: AnalysisInput, vectors: SingleVectors) -> None:
    images, captions = (normalised(rounded(side, "bfloat16")) for side in (vectors.images, vectors.captions))
    of_coarse = ranked(data.corpus, images, captions)
    specs = {"a": data.specs["a"], "half": replace(data.specs["a"], name="half", precision="bfloat16")}
    subject = replace(data, outcomes={**data.outcomes, "half": of_coarse}, specs=specs)
    [row] = ablations.forward_precision(subject)
    assert (row.encoder, row.feature) == ("half", "minus a")
    assert abs(row.interval.value) < 0.05


def test_throughput_is_given_per_device() -> None:
    def batch(device: str, seconds: float, warmup: bool = False) -> Batch:
        return row_of(
            Batch, device=device, modality="image", n_items=10, batch_size=10, warmup=warmup, forward_seconds=seconds
        )

    rows = [batch("fast", 0.1), batch("fast", 0.2), batch("fast", 9, warmup=True), batch("slow", 1), batch("slow", 2)]
    corpus = captioned(2)
    found = ablations.device_rows(rows, corpus=corpus, run="r")
    assert {row.level_name: row.value for row in found} == {"fast": 75, "slow": 7.5}
    assert not ablations.device_rows(rows[:2], corpus=corpus, run="r")


# --- Forms of vectors.


def unit(rng: np.random.Generator, n: int, dim: int) -> np.ndarray:
    return normalised(rng.normal(size=(n, dim)).astype(np.float32))


@given(arrays.arrays(np.float32, (3, 4), elements=st.floats(-4, 4, width=32)))
def test_rounding_to_bfloat16_is_that_of_torch(values: np.ndarray) -> None:
    expected = torch.from_numpy(values).to(torch.bfloat16).to(torch.float32).numpy()
    assert np.array_equal(rounded(values, "bfloat16"), expected)


def test_centring_closes_the_modality_gap() -> None:
    rng = np.random.default_rng(2)
    images, captions = normalised(unit(rng, 200, 8) + 1), normalised(unit(rng, 200, 8) - 1)
    assert np.linalg.norm(images.mean(axis=0) - captions.mean(axis=0)) > 1
    images, captions = centring(images, captions)(images, captions)
    assert np.linalg.norm(images.mean(axis=0) - captions.mean(axis=0)) < 0.1


def test_whitened_vectors_spread_far_more_evenly() -> None:
    rng = np.random.default_rng(3)
    stretched = normalised(unit(rng, 2000, 4) * np.array([5, 1, 1, 1], np.float32))
    before = stretched.var(axis=0)
    halves = stretched[:1000], stretched[1000:]
    after = np.concatenate(whitening(*halves)(*halves)).var(axis=0)
    assert before.max() / before.min() > 6
    assert after.max() / after.min() < 3


def test_pooling_merges_near_vectors_and_keeps_every_item() -> None:
    near = normalised(np.array([[1, 0, 0], [1, 0.01, 0], [0, 1, 0], [0, 1, 0.01], [0, 0, 1]], np.float32))
    vectors = Ragged.from_counts(near, [4, 1])
    trees = token_trees(vectors)
    half = pooled(vectors, trees, 2)
    assert half.offsets.tolist() == [0, 2, 3]
    assert sorted(np.abs(half.values[:2]).argmax(axis=1).tolist()) == [0, 1]
    assert np.array_equal(pooled(vectors, trees, 1).values, near)


def test_scored_in_float32_is_what_the_scorer_gives() -> None:
    """Thirty images with two captions each, the captions of the last two images identical."""
    rng, corpus = np.random.default_rng(6), captioned(30, 2)
    images = unit(rng, 30, 12)
    captions = normalised(np.repeat(images, 2, axis=0) + np.float32(0.35) * unit(rng, 60, 12))
    captions[58:] = captions[56:58]
    asked = [retrieval_task(corpus, protocol) for protocol in ("t2i/all", "i2t/any")]
    for judgement, outcomes in zip(asked, dense_part(images, captions, asked).outcomes().values(), strict=True):
        scored = hits_scored_in("float32", images, captions, judgement)
        assert scored.hits == pytest.approx(METRICS["R@1"].per_query(outcomes))
        assert np.array_equal(scored.tied, outcomes.tied)
    assert scored.tied[28:].all()  # identical captions of two images tie for both
