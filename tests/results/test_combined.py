"""Comparisons by RSUM and by means over languages: the figures of the results, tested image by image."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from capim.tasks.metrics.table import RSUM, Figure, planned_figures
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.outcomes import Outcomes, outcomes_of
from capim.tasks.results.combined import combined_figures, language_values, part_of, rsum_row, rsum_values
from capim.tasks.results.comparison import encoder_key, figure_rows
from capim.tasks.statistics.draws import Resampling
from tests.results.test_rows import SOURCE

N_IMAGES = 60
RESAMPLING = Resampling(replicates=300, permutations=2000, seed=4)


def directions(seed: int, skill: float = 3.0) -> tuple[Outcomes, Outcomes]:
    """Five captions of each image, six of the first, and the images."""
    rng = np.random.default_rng(seed)
    image = np.r_[np.repeat(np.arange(N_IMAGES), 5), 0].astype(np.int32)
    ranks = [[[int(r)] for r in rng.geometric(1 / skill, n)] for n in (len(image), N_IMAGES)]
    t2i = outcomes_of(ranks[0], n_gallery=500, direction="t2i", protocol="t2i/all")
    return replace(t2i, clusters=image), outcomes_of(ranks[1], n_gallery=500, protocol="i2t/any")


def compared(values: dict, margin: float = 1.0) -> list[dict]:  # type: ignore[type-arg]
    rows = figure_rows(
        combined_figures({encoder_key(name, name): of for name, of in values.items()}),
        corpus="c", corpus_fingerprint="g", run="r",
        resampling=replace(RESAMPLING, margin=margin), headline=[RSUM],
    )  # fmt: skip
    return rows.to_pylist()


def test_the_mean_over_images_is_rsum_and_its_interval_that_of_the_result() -> None:
    t2i, i2t = directions(1)
    [row] = rsum_row(t2i, i2t, SOURCE, drawn=N_IMAGES, resampling=RESAMPLING).to_pylist()
    values, weights = rsum_values([t2i, i2t], drawn=N_IMAGES)[RSUM]
    assert weights.mean() == pytest.approx(1)
    assert (values <= 600 * weights + 1e-9).all()
    assert values.mean() == pytest.approx(row["value"])
    draws = np.random.default_rng(0).integers(0, N_IMAGES, (2000, N_IMAGES))
    assert values[draws].mean(axis=1).std() == pytest.approx(row["standard_error"], rel=0.1)


def test_two_encoders_are_tested_by_rsum_and_equal_ones_are_equivalent() -> None:
    good, poor = (rsum_values(directions(1, skill), drawn=N_IMAGES) for skill in (2.0, 8.0))
    [row] = compared({"good": good, "poor": poor})
    assert (row["protocol"], row["metric"], row["family"]) == (*RSUM, "headline")
    assert row["difference"] == pytest.approx(good[RSUM][0].mean() - poor[RSUM][0].mean())
    assert row["p_adjusted"] < 0.01
    assert (row["margin"], row["n_clusters"]) == (6.0, N_IMAGES)
    [same] = compared({"good": good, "twin": good}, margin=5.0)
    assert same["p_sign_flip"] is None
    assert 0.95**N_IMAGES < same["p_equivalent"] < 0.1


def test_a_direction_alone_has_no_rsum() -> None:
    t2i, i2t = directions(1)
    assert rsum_values([t2i], drawn=N_IMAGES) == {}
    assert rsum_values([], drawn=N_IMAGES) == {}
    assert list(combined_figures({"a": rsum_values([t2i, i2t], drawn=N_IMAGES), "b": {}})) == []


def languages(seed: int, skill: float) -> dict:  # type: ignore[type-arg]
    parts = []
    for at, (language, by) in enumerate([("en", "google"), ("de", "google"), ("de", "bing"), ("xx", "google")]):
        ranks = np.random.default_rng([seed, at]).geometric(1 / skill, 80)
        made = outcomes_of([[int(rank)] for rank in ranks], direction="t2i", protocol=f"t2i/{language}/{by}")
        parts.append(part_of(made, drawn=80))
    return dict(language_values(parts, reference="en"))


def test_means_over_languages_are_compared_image_by_image() -> None:
    good, poor = languages(1, 1.5), languages(2, 4.0)
    rows = {(row["protocol"], row["metric"]): row for row in compared({"good": good, "poor": poor})}
    assert {protocol for protocol, _ in rows} == {
        "t2i/*/*", "t2i/*/*@without-en", "t2i/*/google", "t2i/*/google@without-en", "t2i/*/bing",
        "t2i/*/bing@without-en",
    }  # fmt: skip
    assert {metric for _, metric in rows} == {"R@1", "R@5", "R@10"}
    row = rows["t2i/*/*", "R@1"]
    assert row["difference"] == pytest.approx(good["t2i/*/*", "R@1"][0].mean() - poor["t2i/*/*", "R@1"][0].mean())
    assert row["p_adjusted"] < 0.01
    assert row["n_queries"] == 80


def test_what_is_planned_does_not_depend_on_what_was_evaluated() -> None:
    names = ("t2i/all", "i2t/any", "t2i/first", "t2i/de/google")
    protocols = [Protocol.of(name) for name in names]  # type: ignore[arg-type]
    both = {Figure("t2i/all", "R@1"), Figure("i2t/any", "R@1"), RSUM}
    assert planned_figures(protocols[:3]) == both
    assert planned_figures(protocols) == {Figure("t2i/*/*", "R@1"), *both}
    assert planned_figures(protocols[2:3]) == {Figure("t2i/first", "R@1")}
    assert planned_figures(protocols[2:]) == {Figure("t2i/*/*", "R@1")}
