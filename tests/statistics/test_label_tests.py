"""Tests of slices: against SciPy's permutation test and Fisher's, and their errors where nothing differs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tasks.statistics.clusters import Clusters
from tasks.statistics.label_tests import label_tests
from tasks.statistics.resampling import Resampling


def p_of(values: np.ndarray, label: np.ndarray, clusters: Clusters, permutations: int = 4_999) -> float:
    everything = np.ones(len(label), dtype=bool)
    found = label_tests(values[None], label[None], everything, clusters, Resampling(permutations=permutations))
    return float(found[0, 0])


def test_a_label_of_images_gets_the_p_value_of_scipys_permutation_test() -> None:
    rng = np.random.default_rng(0)
    values = rng.random(40)
    label = np.arange(40) < 12
    values[label] += 0.15
    peer = stats.permutation_test(  # type: ignore[call-overload]  # the stub of the data is too narrow
        (values[label], values[~label]),
        lambda a, b, axis: np.abs(np.mean(a, axis=axis) - np.mean(b, axis=axis)),
        vectorized=True,
        alternative="greater",
        n_resamples=20_000,
        rng=np.random.default_rng(1),
    )
    assert p_of(values, label, Clusters.of(range(40)), 20_000) == pytest.approx(peer.pvalue, abs=0.012)


def test_hits_of_single_queries_get_about_fishers_p_value() -> None:
    hits = np.array([1.0] * 50 + [0.0] * 10)
    label = np.zeros(60, dtype=bool)
    label[[0, 1, 50, 51, 52]] = True
    table = [[2, 3], [48, 7]]
    assert p_of(hits, label, Clusters.of(range(60)), 20_000) == pytest.approx(
        stats.fisher_exact(table).pvalue, abs=0.01
    )


def test_captions_of_one_image_are_permuted_within_it() -> None:
    """The images differ greatly, the captions with the label do not: nothing to find."""
    rng = np.random.default_rng(2)
    image = np.repeat(np.arange(60), 5)
    values = np.repeat((np.arange(60) < 30).astype(float), 5)
    label = rng.random(300) < np.where(values > 0, 0.8, 0.2)
    assert np.isnan(p_of(values, label, Clusters.of(image)))
    noise = values + rng.normal(size=300)
    assert p_of(noise, label, Clusters.of(image)) > 0.01
    assert p_of(noise + label, label, Clusters.of(image)) < 1e-4


def test_a_label_of_all_or_no_query_has_no_test() -> None:
    clusters = Clusters.of(range(12))
    values = np.arange(12.0)
    assert np.isnan(p_of(values, np.ones(12, dtype=bool), clusters))
    assert np.isnan(p_of(values, np.zeros(12, dtype=bool), clusters))


@pytest.mark.parametrize("rate", [0.5, 0.95])
@pytest.mark.parametrize("n_labelled", [2, 5, 20])
def test_slices_without_a_difference_are_seldom_significant(rate: float, n_labelled: int) -> None:
    """p-values from the bootstrap of two slices were below 5 % in up to 95 % of such data sets."""
    rng = np.random.default_rng(3)
    clusters = Clusters.of(range(200))
    label = np.arange(200) < n_labelled
    p_values = label_tests(
        (rng.random((600, 200)) < rate).astype(float), label[None], np.ones(200, dtype=bool), clusters,
        Resampling(permutations=499),
    )  # fmt: skip
    assert (p_values < 0.05).mean() < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 600)
