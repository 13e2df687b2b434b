"""Parts of the queries: means by hand, intervals that cover, differences that know what they share, tests of labels."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
import scipy

from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import FEW_HITS, FEW_IMAGES, paired_intervals, student_interval
from capim.tasks.statistics.slices import FEW_EXPECTED, label_tests, part_means


def test_the_whole_corpus_as_one_part_gets_the_interval_that_results_get() -> None:
    rng = np.random.default_rng(1)
    values = (rng.random((2, 100)) < 0.6).astype(float)
    clusters = Clusters.of(np.repeat(np.arange(20), 5))
    means = part_means(values, np.ones((1, 100), dtype=bool), clusters, Resampling(seed=3, replicates=500))
    [paired] = paired_intervals(values, clusters, [(0, 1)], Resampling(seed=3, replicates=500))
    own = means.influences[0, 0] - means.influences[1, 0]
    difference = student_interval(paired.value, own, level=0.95, n_effective=20.0)
    assert [difference.low, difference.high] == pytest.approx([paired.low, paired.high])


def test_the_interval_of_a_difference_of_parts_covers_it() -> None:
    """400 corpora without any difference: 95 % intervals miss it about one time in twenty."""
    rng = np.random.default_rng(3)
    clusters = Clusters.of(np.repeat(np.arange(150), 4))
    missed = 0
    for _ in range(400):
        image = np.repeat(rng.normal(size=150), 4)
        values = (image + rng.normal(size=600) > 0.3).astype(float)[None]
        part = rng.random(600) < 0.4
        means = part_means(values, np.stack([part, ~part]), clusters, Resampling(seed=0, replicates=600))
        interval = means.difference(0, 0, 1)
        missed += not (float(interval.low or 0) <= 0 <= float(interval.high or 0))
    assert 0.02 <= missed / 400 <= 0.085


def test_small_parts_and_shares_near_one_show_counts_and_no_interval() -> None:
    hits = np.ones((1, 300))
    hits[0, :9] = 0
    parts = np.zeros((4, 300), dtype=bool)
    parts[0, :9], parts[1, :50], parts[2, 100:], parts[3] = True, True, True, True
    means = part_means(hits, parts, Clusters.of(range(300)), Resampling(replicates=200), share=True)
    few, rare, edge, every = (means.interval(0, part) for part in range(4))
    assert (few.low, few.reason, few.value) == (None, FEW_IMAGES, 0.0)
    assert (rare.low, rare.reason) == (None, FEW_EXPECTED)
    assert (edge.low, edge.reason) == (None, FEW_HITS.format(n=0.0))
    assert every.method == "wilson" and every.low is not None
    assert means.counts(0, 0) == (9, 9)


def p_of(values: np.ndarray, label: np.ndarray, clusters: Clusters) -> float:
    return float(label_tests(values[None], label[None], np.ones(len(label), dtype=bool), clusters)[0, 0])


def test_a_label_of_images_gets_the_p_value_of_scipys_permutation_test() -> None:
    rng = np.random.default_rng(0)
    values = rng.random(40)
    label = np.arange(40) < 12
    values[label] += 0.15
    peer = scipy.stats.permutation_test(  # type: ignore[call-overload]  # the stub of the data is too narrow
        (values[label], values[~label]),
        lambda a, b, axis: np.abs(np.mean(a, axis=axis) - np.mean(b, axis=axis)),
        vectorized=True,
        alternative="greater",
        n_resamples=20_000,
        rng=np.random.default_rng(1),
    )
    assert p_of(values, label, Clusters.of(range(40))) == pytest.approx(peer.pvalue, abs=0.012)


def test_hits_of_independent_queries_get_the_p_value_of_mantel_and_haenszel() -> None:
    """One stratum: z squared is Pearson's chi squared without correction, times ``(n - 1) / n``."""
    hits = np.array([1.0] * 50 + [0.0] * 30)
    label = np.zeros(80, dtype=bool)
    label[[*range(15), *range(50, 65)]] = True
    pearson = scipy.stats.chi2_contingency(np.array([[15, 15], [35, 15]]), correction=False).statistic
    assert p_of(hits, label, Clusters.of(range(80))) == pytest.approx(scipy.stats.chi2.sf(pearson * 79 / 80, 1))


def test_labels_of_captions_have_the_mean_and_variance_of_all_their_permutations() -> None:
    """Every order of two images' label patterns, with every order of the captions of each image."""
    values = np.array([[0.0, 1.0, 5.0], [2.0, 2.5, 9.0]])
    label = np.array([[True, False, False], [True, True, False]])
    sums = [
        sum(float((values[image] * np.array(pattern)).sum()) for image, pattern in enumerate(patterns))
        for order in (label, label[::-1])
        for patterns in product(*(permutations(row) for row in order))
    ]
    z = abs(float(values[label].sum()) - np.mean(sums)) / np.std(sums)
    assert p_of(values.ravel(), label.ravel(), Clusters.of([0, 0, 0, 1, 1, 1])) == pytest.approx(
        2 * scipy.stats.norm.sf(z)
    )


@pytest.mark.parametrize(
    ("label", "clusters", "tested"),
    [
        ([True, False, False], [0, 1, 2], True),
        ([True, False, False], [0, 1, 1], False),  # images with other numbers of captions keep their labels
        ([True] * 3, [0, 1, 2], False),
        ([False] * 3, [0, 1, 2], False),
    ],
)
def test_labels_that_cannot_be_exchanged_have_no_test(label: list[bool], clusters: list[int], tested: bool) -> None:
    assert np.isfinite(p_of(np.array([0.0, 1.0, 1.0]), np.array(label), Clusters.of(clusters))) == tested


@pytest.mark.parametrize(("rate", "n_labelled"), [(0.5, 10), (0.9, 50), (0.95, 100)])
@pytest.mark.parametrize("of_images", [True, False])
def test_slices_without_a_difference_are_seldom_significant(rate: float, n_labelled: int, *, of_images: bool) -> None:
    """At the least cells; p-values from the bootstrap of two slices were below 5 % in up to 36 % of such data sets."""
    rng = np.random.default_rng(3)
    clusters = Clusters.of(np.repeat(np.arange(200), 5))
    easy = rng.normal(size=(600, 200, 1)) * 0.55 + rng.normal(size=(600, 200, 5)) * 0.835  # correlation .3
    hits = (easy < scipy.stats.norm.ppf(rate)).astype(float).reshape(600, -1)
    label = np.zeros((200, 5), dtype=bool)
    label[: max(10, n_labelled // 5) if of_images else n_labelled, : 5 if of_images else 1] = True
    p_values = label_tests(hits, label.reshape(1, -1), np.ones(1000, dtype=bool), clusters)
    assert (p_values < 0.05).mean() < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 600)
