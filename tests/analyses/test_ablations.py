"""Ablations: what is fitted is tested on other images, and a sample of the queries is stated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from capim.store.types import Corpus, EncoderSpec
from capim.tasks.analyses import ablations
from capim.tasks.analyses.ablations import FITTED_ON
from capim.tasks.analyses.analysis import AnalysisInput, Matrix, SingleVectors, Slice
from capim.tasks.analyses.calibration import SCALES, temperatures, thresholds
from capim.tasks.analyses.transforms import normalised, principal_axes
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from capim.tasks.ranking.evaluate import evaluate
from capim.tasks.ranking.protocols import select_protocols
from capim.tasks.statistics.draws import Resampling

N, K, DIM = 40, 2, 12


def corpus() -> Corpus:
    return build_corpus(
        "forty",
        [ImageRow(f"i{k}") for k in range(N)],
        [CaptionRow(f"c{k}-{j}", f"i{k}", "x") for k in range(N) for j in range(K)],
        source=None,
    )


@pytest.fixture(scope="module")
def data() -> AnalysisInput:
    rng = np.random.default_rng(5)
    images = normalised((rng.normal(size=(N, DIM)) + 1).astype(np.float32))
    noise = rng.normal(size=(N * K, DIM)).astype(np.float32)
    captions = normalised(np.repeat(images, K, axis=0) + np.float32(0.35) * noise - np.float32(0.3))
    vectors = SingleVectors(
        images=images, captions=captions, image_norms=np.ones(N, np.float32), caption_norms=np.ones(N * K, np.float32)
    )
    of = corpus()
    [protocol] = select_protocols(of, ["t2i/all"])
    spec = EncoderSpec(name="a", adapter="x", checkpoint="x", revision="1", dim=DIM, storage="float32")
    return AnalysisInput(
        corpus=of,
        protocol=protocol,
        outcomes={"a": evaluate(of, [protocol], images=images, captions=captions)["t2i/all"]},
        specs={"a": spec},
        resampling=Resampling(replicates=100),
        vectors=lambda _: vectors,
    )


def details(row: Slice) -> dict[str, Any]:
    assert row.detail is not None
    return dict(row.detail)


def by_hand(data: AnalysisInput, change: Any) -> float:
    """R@1 where each query and the gallery are changed by what the other half of the images gives."""
    vectors = data.vectors("a")
    assert isinstance(vectors, SingleVectors)
    image_of = np.repeat(np.arange(N), K)
    hits = []
    for query, image in enumerate(image_of):
        other = data.second_half != data.second_half[image]
        images, captions = change(vectors.images[other], vectors.captions[other[image_of]], vectors)
        hits.append(int(np.argmax(images @ captions[query])) == image)
    return float(np.mean(hits))


def centred(fit_images: Matrix, fit_captions: Matrix, of: SingleVectors) -> tuple[Matrix, Matrix]:
    return normalised(of.images - fit_images.mean(axis=0)), normalised(of.captions - fit_captions.mean(axis=0))


def six_axes(fit_images: Matrix, fit_captions: Matrix, of: SingleVectors) -> tuple[Matrix, Matrix]:
    axes = principal_axes(fit_images, fit_captions)[:, :6]
    return normalised(of.images @ axes), normalised(of.captions @ axes)


def test_parameters_come_from_the_images_that_the_query_does_not_belong_to(
    data: AnalysisInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Means, axes and ranges were computed from the images and captions that were then scored."""
    monkeypatch.setattr(ablations, "FEWEST_COMPONENTS", 3)
    slices = {(s.analysis, s.feature, s.level_name): s for s in ablations.vector_forms(data)}
    for name, change in (
        (("normalisation", "", "centred per modality"), centred),
        (("pca", "", "6 components"), six_axes),
    ):
        assert slices[name].interval.value == pytest.approx(by_hand(data, change)), name
    fitted = {name[::2] for name, row in slices.items() if details(row).get("fitted_on") == FITTED_ON}
    assert fitted == {
        ("normalisation", "centred per modality"), ("normalisation", "whitened"), ("precision", "int8"),
        *(("pca", f"{n} components") for n in (12, 6, 3)),
    }  # fmt: skip


def test_a_sample_of_the_queries_is_stated(data: AnalysisInput, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablations, "SINGLE_QUERIES", 30)
    rows = list(ablations.vector_forms(data))
    assert {(row.n_queries, details(row)["n_all_queries"]) for row in rows} == {(30, N * K)}


def test_halves_share_no_image_and_are_equally_large(data: AnalysisInput) -> None:
    assert data.second_half.sum() == N // 2


def test_a_threshold_comes_from_the_other_half_of_the_images(data: AnalysisInput) -> None:
    outcomes = data.outcomes["a"]
    assert outcomes.top_scores is not None
    first, second = outcomes.top_scores[:, 0], data.second_half[outcomes.clusters]
    by_share = {s.level_name: s for s in thresholds(data)}
    for share in (0.5, 0.1):
        least = [np.quantile(first[second != half], 1 - share, method="lower") for half in (False, True)]
        answered = first >= np.where(second, least[1], least[0])
        row = by_share[f"{share:.0%} of queries"]
        assert row.n_queries == answered.sum()
        assert row.interval.value == pytest.approx((outcomes.rank_worst[answered] == 1).mean())
        assert details(row)["fitted_on"] == FITTED_ON
    assert by_share["100% of queries"].n_queries == N * K


def test_the_fitted_temperature_of_a_query_comes_from_the_other_half_of_the_images(data: AnalysisInput) -> None:
    vectors = data.vectors("a")
    assert isinstance(vectors, SingleVectors)
    image_of = np.repeat(np.arange(N), K)
    scores = np.stack([scale * (vectors.captions @ vectors.images.T).astype(np.float64) for scale in SCALES])
    loss = np.log(np.exp(scores).sum(axis=2)) - scores[:, np.arange(N * K), image_of]
    second = data.second_half[image_of]
    best = [loss[:, second != half].mean(axis=1).argmin() for half in (False, True)]
    expected = np.where(second, loss[best[1]], loss[best[0]]).mean()
    rows = {(s.level_name, s.metric): s for s in temperatures(data)}
    fitted = rows["fitted", "negative log likelihood"]
    assert fitted.interval.value == pytest.approx(expected, rel=1e-5)
    assert details(fitted)["fitted_on"] == FITTED_ON
    assert details(fitted)["scales"] == [SCALES[at] for at in best]
    assert ("fitted", "expected calibration error") in rows
    for at, scale in enumerate(SCALES):
        assert rows[f"{scale:g}", "negative log likelihood"].interval.value == pytest.approx(loss[at].mean(), rel=1e-5)


def test_confidence_comes_from_the_scores_of_the_ranks_whatever_the_number_of_threads(data: AnalysisInput) -> None:
    top = data.outcomes["a"].top_scores  # the gallery is smaller than the list: every score of every query
    assert top is not None
    assert top.shape == (N * K, N)
    rows = {s.level_name: s for s in temperatures(data) if s.metric == "expected calibration error"}
    for scale in SCALES:
        others = np.exp(np.float32(scale) * (top - top[:, :1])).sum(axis=1, dtype=np.float64)
        expected = (1 / others).mean()
        assert details(rows[f"{scale:g}"])["mean_confidence"] == pytest.approx(expected, rel=1e-13, abs=0)
