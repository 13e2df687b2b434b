"""Figures over several protocols: by hand, with COCO-SM's published figures, with shared draws; and their comparisons.

Comparisons by RSUM and by means over languages test the figures of the results image by image.
"""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capim.store.schema import Result
from capim.tasks.metrics.crosslingual import SPEAKERS, language_weights
from capim.tasks.metrics.table import RSUM, Figure, planned_figures
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.outcomes import Outcomes, outcomes_of
from capim.tasks.results.combined import (
    combined_figures,
    language_rows,
    language_values,
    part_of,
    rsum_row,
    rsum_values,
)
from capim.tasks.results.comparison import encoder_key, figure_rows
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import FEW_IMAGES, mean_spread, replicates_of
from tests.documents import ROOT
from tests.results.test_rows import SOURCE

RESAMPLING = Resampling(replicates=200, seed=3)


def outcomes(language: str, translator: str, ranks: list[int]) -> Outcomes:
    made = outcomes_of([[rank] for rank in ranks], protocol=f"t2i/{language}/{translator}")
    if language == "xx":
        return made
    consistency = np.linspace(0.5, 1, len(ranks))
    return replace(made, reference_ndcg=consistency, reference_rbo=consistency / 2)


def rows(*parts: Outcomes, how: Resampling = RESAMPLING) -> dict[tuple[str, str], Result]:
    found = language_rows([part_of(o, drawn=len(o)) for o in parts], SOURCE, reference="en", resampling=how)
    return {(row.protocol, row.metric): row for row in found}


PARTS = [(language, translator) for language in ("en", "de", "fr") for translator in ("google", "bing")]
N_MISSED = (0, 0, 1, 2, 3, 4)  # of four images
GRID = [outcomes(*part, [1] * (4 - n) + [9] * n) for part, n in zip(PARTS, N_MISSED, strict=True)]


def test_means_are_over_languages_of_means_over_translators() -> None:
    found = rows(*GRID)
    expected = {
        "t2i/*/*": (1 + 0.625 + 0.125) / 3,
        "t2i/*/*@without-en": (0.625 + 0.125) / 2,
        "t2i/*/google": (1 + 0.75 + 0.25) / 3,
        "t2i/*/bing@without-en": 0.25,
        "t2i/*/*@speakers": (1452 * 1 + 134 * 0.625 + 274 * 0.125) / (1452 + 134 + 274),
        "t2i/*/*@speakers-without-en": (134 * 0.625 + 274 * 0.125) / (134 + 274),
    }
    assert {protocol: found[protocol, "R@1"].value for protocol in expected} == pytest.approx(expected)
    every = found["t2i/*/*", "R@1"]
    assert (every.n_queries, every.n_clusters) == (24, 4)
    assert found["t2i/*/*@without-en", "R@1"].n_queries == 16
    assert found["t2i/*/*", "consistency_RBO"].value == pytest.approx(0.375)
    assert found["t2i/*/*", "consistency_RBO"].chance is None
    assert every.chance == pytest.approx(1 / 1000)


def test_the_interval_is_that_of_the_mean_under_draws_that_all_languages_share() -> None:
    found = rows(*GRID)["t2i/*/*", "R@1"]
    per_image = np.mean([[o.rank_best == 1 for o in GRID[i : i + 2]] for i in (0, 2, 4)], axis=(0, 1))
    units = part_of(GRID[0], drawn=4).clusters
    assert (found.ci_low, found.reason, units.n_effective) == (None, FEW_IMAGES, 4)
    spread = mean_spread(per_image, units, RESAMPLING)
    assert found.standard_error == pytest.approx(np.sqrt(4 / 3 * np.square(spread).sum()))
    drawn = rows(*GRID, how=replace(RESAMPLING, method="percentile"))["t2i/*/*", "R@1"]
    quantiles = np.quantile(replicates_of(per_image, units, RESAMPLING), [0.025, 0.975])
    assert (drawn.ci_low, drawn.ci_high) == pytest.approx(quantiles)


def test_what_cannot_be_known_is_null_with_its_reason() -> None:
    unknown = rows(*GRID[:4], outcomes("xx", "google", [1, 2, 3, 4]))
    row = unknown["t2i/*/*@speakers", "R@1"]
    assert row.value is None
    assert "speakers unknown for xx" in str(row.reason)
    assert ("t2i/*/*", "consistency_RBO") not in unknown  # a part without the reference has none
    assert rows(*GRID[:2]) == {}  # one language: nothing to average over
    one_translator = rows(*GRID[::2])
    assert ("t2i/*/google", "R@1") not in one_translator  # it would repeat t2i/*/*


def published(folder: Path) -> dict[tuple[str, str], float]:
    text = (folder / "coco_sm" / "reports" / "open_clip.csv").read_text()
    return {(r["language"], r["meta"]): float(r["t2i.recall@1"]) for r in csv.DictReader(text.splitlines())}


def test_published_means_include_english_and_are_lower_without_it(shared_data: Path) -> None:
    figures = published(shared_data)
    parts, values = list(figures), np.array(list(figures.values()))
    assert round(float(values @ language_weights(parts)), 3) == 0.265  # the README's 26.5
    assert values @ language_weights(parts, without="en") < 0.26
    # Armenian, the weakest, has four million
    assert values @ language_weights(parts, speakers=True) > values @ language_weights(parts)


def test_a_mean_over_no_language_is_refused() -> None:
    with pytest.raises(ValueError, match="no language is left"):
        language_weights([("en", "google")], without="en")


# --- Comparisons.

N_IMAGES = 60
PAIRED = Resampling(replicates=300, permutations=2000, seed=4)


def directions(seed: int, skill: float = 3.0) -> tuple[Outcomes, Outcomes]:
    """Five captions of each image, six of the first, and the images."""
    rng = np.random.default_rng(seed)
    image = np.r_[np.repeat(np.arange(N_IMAGES), 5), 0].astype(np.int32)
    ranks = [[[int(r)] for r in rng.geometric(1 / skill, n)] for n in (len(image), N_IMAGES)]
    t2i = outcomes_of(ranks[0], n_gallery=500, protocol="t2i/all")
    return replace(t2i, clusters=image), outcomes_of(ranks[1], n_gallery=500, protocol="i2t/any")


def compared(values: dict[str, Any], margin: float = 1.0) -> list[Any]:
    return figure_rows(
        combined_figures({encoder_key(name, name): of for name, of in values.items()}),
        corpus="c", corpus_fingerprint="g", run="r",
        resampling=replace(PAIRED, margin=margin), headline=[RSUM],
    )  # fmt: skip


def test_the_mean_over_images_is_rsum_and_its_interval_that_of_the_result() -> None:
    t2i, i2t = directions(1)
    row = rsum_row(t2i, i2t, SOURCE, drawn=N_IMAGES, resampling=PAIRED)
    values, weights = rsum_values([t2i, i2t], drawn=N_IMAGES)[RSUM]
    assert weights.mean() == pytest.approx(1)
    assert (values <= 600 * weights + 1e-9).all()
    assert values.mean() == pytest.approx(row.value)
    draws = np.random.default_rng(0).integers(0, N_IMAGES, (2000, N_IMAGES))
    assert values[draws].mean(axis=1).std() == pytest.approx(row.standard_error, rel=0.1)


def test_two_encoders_are_tested_by_rsum_and_equal_ones_are_equivalent() -> None:
    good, poor = (rsum_values(directions(1, skill), drawn=N_IMAGES) for skill in (2.0, 8.0))
    [row] = compared({"good": good, "poor": poor})
    assert (row.protocol, row.metric, row.family) == (*RSUM, "headline")
    assert row.difference == pytest.approx(good[RSUM][0].mean() - poor[RSUM][0].mean())
    assert row.p_adjusted < 0.01
    assert (row.margin, row.n_clusters) == (6.0, N_IMAGES)
    [same] = compared({"good": good, "twin": good}, margin=5.0)
    assert same.p_sign_flip is None
    assert 0.95**N_IMAGES < same.p_equivalent < 0.1


def test_a_direction_alone_has_no_rsum() -> None:
    t2i, i2t = directions(1)
    assert rsum_values([t2i], drawn=N_IMAGES) == {}
    assert rsum_values([], drawn=N_IMAGES) == {}
    assert list(combined_figures({"a": rsum_values([t2i, i2t], drawn=N_IMAGES), "b": {}})) == []


def languages(seed: int, skill: float) -> dict[Any, Any]:
    parts = []
    for at, (language, by) in enumerate([("en", "google"), ("de", "google"), ("de", "bing"), ("xx", "google")]):
        ranks = np.random.default_rng([seed, at]).geometric(1 / skill, 80)
        made = outcomes_of([[int(rank)] for rank in ranks], protocol=f"t2i/{language}/{by}")
        parts.append(part_of(made, drawn=80))
    return dict(language_values(parts, reference="en"))


def test_means_over_languages_are_compared_image_by_image() -> None:
    good, poor = languages(1, 1.5), languages(2, 4.0)
    rows = {(row.protocol, row.metric): row for row in compared({"good": good, "poor": poor})}
    assert {protocol for protocol, _ in rows} == {
        "t2i/*/*", "t2i/*/*@without-en", "t2i/*/google", "t2i/*/google@without-en", "t2i/*/bing",
        "t2i/*/bing@without-en",
    }  # fmt: skip
    assert {metric for _, metric in rows} == {"R@1", "R@5", "R@10"}
    row = rows["t2i/*/*", "R@1"]
    assert row.difference == pytest.approx(good["t2i/*/*", "R@1"][0].mean() - poor["t2i/*/*", "R@1"][0].mean())
    assert row.p_adjusted < 0.01
    assert row.n_queries == 80


def test_what_is_planned_does_not_depend_on_what_was_evaluated() -> None:
    names = ("t2i/all", "i2t/any", "t2i/first", "t2i/en/human", "t2i/en/google", "t2i/de/google")
    protocols = [Protocol.of(name) for name in names]  # type: ignore[arg-type]
    both = {Figure("t2i/all", "R@1"), Figure("i2t/any", "R@1"), RSUM}
    assert planned_figures(protocols[:3]) == both
    assert planned_figures(protocols[:5]) == both  # by two translators in one language: no mean over languages
    assert planned_figures(protocols) == {Figure("t2i/*/*", "R@1")}  # neither one language alone nor its RSUM
    assert planned_figures(protocols[2:3]) == {Figure("t2i/first", "R@1")}
    assert planned_figures(protocols[2:]) == {Figure("t2i/*/*", "R@1")}


def test_the_weights_of_languages_are_documented_as_they_are() -> None:
    written = re.search(r"Weights of `@speakers`.*?: (.+?)\.\n", (ROOT / "docs/protocols.md").read_text(), re.DOTALL)
    assert written is not None
    pairs = (pair.split() for pair in written[1].replace("\n", " ").split(", "))
    assert {language: int(number.replace(",", "")) for language, number in pairs} == SPEAKERS
