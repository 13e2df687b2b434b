"""V29's resampled gallery from stored lists, against scoring every drawn gallery anew."""

from __future__ import annotations

from dataclasses import replace
from math import comb
from typing import Any

import numpy as np
import pytest

from capim.tasks.analyses.analysis import AnalysisInput
from capim.tasks.analyses.gallery import resampled_gallery
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_tasks, select_protocols
from capim.tasks.ranking.ranker import score_given
from capim.tasks.statistics.draws import Resampling, count_blocks
from tests.results.thirty import captioned

N_IMAGES, PER_IMAGE, DRAWS = 60, 5, 30
CORPUS = captioned(N_IMAGES, PER_IMAGE)


@pytest.fixture(scope="module")
def scores() -> np.ndarray:
    """Captions by images, small whole numbers: many ties."""
    rng = np.random.default_rng(0)
    own = np.repeat(np.arange(N_IMAGES), PER_IMAGE)
    table = rng.integers(0, 12, (N_IMAGES * PER_IMAGE, N_IMAGES)).astype(float)
    table[np.arange(len(own)), own] += rng.integers(0, 8, len(own))
    return table


@pytest.fixture(scope="module")
def outcomes(scores: np.ndarray) -> dict[str, Outcomes]:
    tasks = build_tasks(CORPUS, select_protocols(CORPUS, ["t2i/all", "i2t/any"]))
    return score_given(scores.astype(np.float32), tasks)


def expected_hit(scores: np.ndarray, relevant: np.ndarray, k: int) -> float:
    """``protocols.md``, ranks and ties, written out for one query."""
    best = scores[relevant].max()
    above = int((scores > best).sum())
    irrelevant, own = int(((scores == best) & ~relevant).sum()), int(((scores == best) & relevant).sum())
    if above >= k:
        return 0.0
    m = min(k - above, irrelevant + own)
    return 1 - comb(irrelevant, m) / comb(irrelevant + own, m)


def resampled(outcomes: Outcomes, replicates: int = DRAWS) -> dict[str, Any]:
    """Metric -> slice."""
    how = Resampling(seed=3, replicates=replicates)
    data = AnalysisInput(corpus=CORPUS, protocol=outcomes.protocol, outcomes={"toy": outcomes}, resampling=how)
    return {each.metric: each for each in resampled_gallery(data)}


@pytest.mark.parametrize("protocol", ["t2i/all", "i2t/any"])
@pytest.mark.parametrize("k", [1, 5])
def test_every_draw_equals_scoring_its_gallery_anew(scores, outcomes, protocol: str, k: int) -> None:
    own = np.repeat(np.arange(N_IMAGES), PER_IMAGE)
    [counts] = count_blocks(N_IMAGES, replicates=DRAWS, seed=3)
    recalls = []
    for drawn in counts > 0:
        if protocol == "t2i/all":
            hits = [
                expected_hit(scores[q, drawn], np.flatnonzero(drawn) == own[q], k) for q in np.flatnonzero(drawn[own])
            ]
        else:
            hits = [expected_hit(scores[drawn[own], i], own[drawn[own]] == i, k) for i in np.flatnonzero(drawn)]
        recalls.append(np.mean(hits))
    found = resampled(outcomes[protocol])[f"R@{k}"]
    assert outcomes[protocol].tied.mean() > 0.05
    assert found.interval.value == pytest.approx(np.mean(recalls), abs=1e-12)
    assert (found.interval.low, found.interval.high) == pytest.approx(tuple(np.quantile(recalls, [0.025, 0.975])))
    assert found.detail["undecided"] == 0
    assert found.detail["gallery_share"] == pytest.approx((counts > 0).mean())


def test_a_smaller_gallery_is_easier_and_every_row_says_that_it_is_biased(outcomes) -> None:
    assert all(each.interval.value > each.detail["fixed_gallery"] for each in resampled(outcomes["i2t/any"]).values())
    for found in resampled(outcomes["t2i/all"], replicates=1000).values():
        assert (found.analysis, found.level_name) == ("resampled-gallery", "resampled (biased)")
        assert found.interval.value - found.detail["fixed_gallery"] > 0.01
        assert found.detail["gallery_share"] == pytest.approx(0.632, abs=0.01)


def test_lists_too_short_to_decide_give_a_reason_instead_of_a_figure(outcomes) -> None:
    whole = outcomes["t2i/all"]
    short = resampled(replace(whole, top_ords=whole.top_ords[:, :6], top_scores=whole.top_scores[:, :6]))
    assert short["R@5"].detail["undecided"] > short["R@1"].detail["undecided"] > 0
    assert short["R@5"].interval.low is None
    assert "lists of 6 items leave" in short["R@5"].interval.reason
    assert resampled(replace(whole, top_ords=None)) == {}
