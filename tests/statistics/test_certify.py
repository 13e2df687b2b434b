"""A corpus that is certified: what holds on equal images, and what is said where little is promised."""

from __future__ import annotations

import numpy as np
import pytest

from capim.tasks.statistics.certify import Check, Population, certify
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling


def checks(values: np.ndarray, sizes: list[int], *, share: bool) -> dict[str, Check]:
    clusters = Clusters.of(np.repeat(np.arange(len(sizes)), sizes))
    population = Population(values, clusters, share=share, bounds=(0.0, 1.0))
    found = certify(("a", "b"), population, Resampling(), n_datasets=200)
    return {f"{each.what} {each.of}": each for each in found}


@pytest.mark.parametrize("share", [True, False])
def test_all_promises_hold_on_equal_images(*, share: bool) -> None:
    rng = np.random.default_rng(1)
    ease = np.repeat(rng.random(80), 5)
    values = (rng.random((2, 400)) < ease).astype(float) if share else rng.beta(1 + ease, 2 - ease, (2, 400))
    found = checks(values, [5] * 80, share=share)
    assert [each.holds for each in found.values()] == [True] * 4
    assert found["coverage a"].rate == pytest.approx(0.95, abs=0.06)
    assert (found["power a - b"].rate or 0) > 0.7


def test_one_image_with_most_captions_has_no_interval_and_no_detectable_difference() -> None:
    hits = (np.random.default_rng(2).random((2, 59)) < 0.6).astype(float)
    found = checks(hits, [50] + [1] * 9, share=True)
    assert found["coverage a"].rate is None and "the heaviest holds 85%" in found["coverage a"].note
    assert found["power a - b"].rate is None and "effective number of images 1.4" in found["power a - b"].note
    error = found["type I error a - b"].rate
    assert error is not None and error < 0.1  # a flip test is exact whatever the weights


def test_nothing_is_promised_of_a_share_with_one_hit() -> None:
    hits = np.zeros((2, 200))
    hits[:, 0] = 1
    found = checks(hits, [1] * 200, share=True)
    assert found["coverage a"].holds is None and "fewer than 5 hits" in found["coverage a"].note
