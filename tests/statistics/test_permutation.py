"""Sign flips: against the definition written out, SciPy and McNemar."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
import scipy

from capim.tasks.statistics import flips
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling, flip_blocks
from capim.tasks.statistics.flips import median_flip_tests, sign_flip_tests
from capim.tasks.statistics.pairs import mcnemar_exact, tally
from tests.statistics.test_proportion import two_encoders

RANKS = np.random.default_rng(5).integers(1, 30, (2, 12)) + np.array([[0.0], [3.0]])


def test_exact_sign_flips_equal_the_definition_written_out() -> None:
    values, labels = two_encoders(9, 5)
    difference = Clusters.of(labels).sums(values)
    difference = difference[:, 0] - difference[:, 1]
    flipped = [abs(np.dot(signs, difference)) for signs in product([1, -1], repeat=9)]
    [test] = sign_flip_tests(values, Clusters.of(labels), [(0, 1)], Resampling(seed=1))
    assert test.exact
    assert test.p == np.mean(np.array(flipped) >= abs(difference.sum()))


def test_exact_sign_flips_equal_scipys_exact_permutation_test() -> None:
    values = np.random.default_rng(3).random((2, 10))
    peer = scipy.stats.permutation_test(  # type: ignore[call-overload]  # the stub of the data is too narrow
        (values[0], values[1]), lambda a, b, axis: np.mean(a - b, axis=axis), permutation_type="samples",
        vectorized=True, n_resamples=np.inf,
    )  # fmt: skip
    [test] = sign_flip_tests(values, Clusters.of(range(10)), [(0, 1)], Resampling(seed=1))
    assert (test.exact, test.flips) == (True, 1024)
    assert test.p == pytest.approx(peer.pvalue, abs=1e-12)


@pytest.mark.parametrize("tests", [sign_flip_tests, median_flip_tests])
def test_random_flips_agree_with_the_exact_test(tests: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    values, labels = two_encoders(18, 3) if tests is sign_flip_tests else (RANKS, np.arange(12))
    [exact] = tests(values, Clusters.of(labels), [(0, 1)], Resampling(seed=1))
    monkeypatch.setattr(flips, "EXACT_FLIPS", 0)
    monkeypatch.setattr(flips, "ALL_FLIPS", 0)
    [drawn] = tests(values, Clusters.of(labels), [(0, 1)], Resampling(permutations=40_000, seed=1))
    assert exact.exact and not drawn.exact
    assert drawn.p == pytest.approx(exact.p, abs=4 * np.sqrt(0.25 / 40_000))


def test_pairs_tested_together_get_the_p_values_of_pairs_tested_alone() -> None:
    rng = np.random.default_rng(5)
    values, clusters = rng.random((4, 300)), Clusters.of(np.repeat(np.arange(100), 3))
    pairs = [(0, 1), (0, 3), (2, 1)]
    together = sign_flip_tests(values, clusters, pairs, Resampling(permutations=500, seed=3))
    alone = [
        sign_flip_tests(values[list(p)], clusters, [(0, 1)], Resampling(permutations=500, seed=3))[0] for p in pairs
    ]
    assert [test.p for test in together] == [test.p for test in alone]
    assert [test.p_adjusted for test in alone] == [test.p for test in alone]


def step_down_by_hand(differences: np.ndarray, flips: np.ndarray) -> list[float]:
    """Westfall and Young's algorithm 2.8 written out; differences have the shape (n_clusters, n_pairs)."""
    scale = np.sqrt((differences**2).sum(axis=0))
    observed = np.abs(differences.sum(axis=0)) / scale
    flipped = np.abs((1 - 2.0 * flips) @ differences) / scale
    order = np.argsort(-observed)
    p, before = np.empty(len(observed)), 0.0
    for place, pair in enumerate(order):
        largest = flipped[:, order[place:]].max(axis=1)
        before = p[pair] = max(before, (largest >= observed[pair] * (1 - 1e-12)).mean())
    return p.tolist()


def test_adjusted_p_values_equal_step_down_max_t_written_out() -> None:
    rng = np.random.default_rng(7)
    values = rng.normal(size=(4, 10)) + np.array([[0.0], [0.2], [0.9], [1.5]])
    pairs = list(combinations(range(4), 2))
    tests = sign_flip_tests(values, Clusters.of(range(10)), pairs, Resampling())
    every = np.array(list(product([0, 1], repeat=10)))
    differences = np.stack([values[a] - values[b] for a, b in pairs], axis=1)
    assert [test.p_adjusted for test in tests] == pytest.approx(step_down_by_hand(differences, every))
    assert all(test.p is not None and test.p_adjusted is not None and test.p <= test.p_adjusted for test in tests)


def test_random_flips_adjust_like_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    values = rng.normal(size=(5, 14)) + np.linspace(0, 2, 5)[:, None]
    pairs, clusters = list(combinations(range(5), 2)), Clusters.of(range(14))
    exact = sign_flip_tests(values, clusters, pairs, Resampling())
    monkeypatch.setattr(flips, "ALL_FLIPS", 0)
    drawn = sign_flip_tests(values, clusters, pairs, Resampling(permutations=40_000))
    assert [test.p_adjusted for test in drawn] == pytest.approx([test.p_adjusted for test in exact], abs=0.012)


def test_the_floor_of_adjusted_p_values_does_not_grow_with_the_number_of_pairs() -> None:
    """33 encoders: with Holm over 528 pairs, the floor of 10,000 flips was 0.053."""
    hits = (np.random.default_rng(9).random((33, 300)) < np.linspace(0.02, 0.96, 33)[:, None]).astype(float)
    pairs = list(combinations(range(33), 2))
    test = sign_flip_tests(hits, Clusters.of(range(300)), pairs, Resampling())[pairs.index((0, 32))]
    assert (test.p, test.p_adjusted) == (1 / 10_001, 1 / 10_001), "and is never zero"


def test_p_values_of_many_pairs_resolve_what_holm_multiplies() -> None:
    """528 pairs took 528,000 flips each; McNemar's exact p-values are the truth, one query per image."""
    hits = (np.random.default_rng(9).random((33, 300)) < np.linspace(0.3, 0.9, 33)[:, None]).astype(float)
    pairs, clusters = list(combinations(range(33), 2)), Clusters.of(range(300))
    counts = [tally(hits[a], hits[b]) for a, b in pairs]
    exact = np.array([mcnemar_exact(wins, losses) for wins, _, losses in counts])
    tests = sign_flip_tests(hits, clusters, pairs, Resampling(adjustment="holm"))
    p, flips = (np.array([getattr(test, name) for test in tests]) for name in ("p", "flips"))
    left = flips == 52_800
    clear = (p * 52_800 < 1) & ~left
    assert clear.sum() > 100 and left.sum() > 20 and (p > 0).all()
    assert (p >= exact)[clear].all() and (p < 8 * exact)[clear & (exact > 1e-7)].all()
    assert (np.abs(p - exact) < 5 * np.sqrt(exact / 52_800) + 1 / 52_800)[left].all()
    assert (np.abs(p - exact) < 5 * np.sqrt(exact / 10_000) + 1 / 10_000)[~clear].all()


@pytest.mark.parametrize("skew", [0.0, 2.0, 5.0])
def test_the_bound_of_a_clear_pair_is_never_below_the_exact_p_value(skew: float) -> None:
    rng = np.random.default_rng(4)
    differences = rng.lognormal(sigma=skew, size=(400, 14)) * rng.choice([-1, 1], p=[0.1, 0.9], size=(400, 14))
    signs = 1.0 - 2 * np.concatenate(list(flips.all_flips(14)))
    flipped = np.abs(differences @ signs.T)
    seen = np.abs(differences.sum(axis=1, keepdims=True))
    exact = (flipped >= seen * (1 - 1e-12)).mean(axis=1)
    clarity = seen[:, 0] / np.sqrt(np.square(differences).sum(axis=1))
    assert (flips.gaussian_bound(clarity) >= exact).all()


def test_clusters_without_a_difference_leave_the_test_exact() -> None:
    values = np.ones((2, 5_000))
    values[1, :4] = 0
    [test] = sign_flip_tests(values, Clusters.of(range(5_000)), [(0, 1)], Resampling(seed=3))
    assert (test.exact, test.flips, test.p) == (True, 2**4, 0.125)


def test_equal_ranks_and_sums_that_differ_only_by_rounding_have_no_test() -> None:
    # 0.1 + 0.2 against 0.3: no difference, so nothing to test
    [test] = sign_flip_tests([[0.1, 0.2, 0.0], [0.3, 0.0, 0.0]], Clusters.of([0, 0, 1]), [(0, 1)], Resampling(seed=3))
    [of_ranks] = median_flip_tests([[1, 2, 3], [1, 2, 3]], Clusters.of(range(3)), [(0, 1)], Resampling(seed=1))
    assert (test.p, of_ranks.p, of_ranks.flips) == (None, None, 0)


def swapped_medians(a: np.ndarray, b: np.ndarray, labels: np.ndarray) -> list[float]:
    """Distance of the two medians for every way to exchange the encoders cluster by cluster."""
    distances = []
    for swap in product([False, True], repeat=int(labels.max()) + 1):
        swapped = np.array(swap)[labels]
        distances.append(abs(np.median(np.where(swapped, b, a)) - np.median(np.where(swapped, a, b))))
    return distances


@pytest.mark.parametrize("per_cluster", [1, 3])
def test_exact_flips_of_medians_equal_the_definition_written_out(per_cluster: int) -> None:
    rng = np.random.default_rng(4)
    labels = np.repeat(np.arange(9), per_cluster)
    a, b = rng.integers(1, 20, (2, len(labels))).astype(float)
    distances = np.array(swapped_medians(a, b, labels))
    [test] = median_flip_tests([a, b], Clusters.of(labels), [(0, 1)], Resampling(seed=1))
    assert test.exact
    assert test.p == (distances >= distances[0]).mean()


def test_medians_far_from_each_other_widen_the_window_that_is_counted() -> None:
    rng = np.random.default_rng(6)
    labels = np.repeat(np.arange(40), 3)
    values = np.stack([rng.permutation(120), rng.permutation(120) * 5.0, rng.permutation(120) + 40.0])
    clusters, pairs = Clusters.of(labels), [(0, 1), (2, 0), (1, 2)]
    found = median_flip_tests(values, clusters, pairs, Resampling(permutations=300, seed=2))
    flips = np.concatenate(list(flip_blocks(40, permutations=300, seed=2))).astype(bool)[:, labels]
    for (a, b), test in zip(pairs, found, strict=True):
        swapped = [np.median(np.where(flips, values[two], values[one]), axis=1) for one, two in ((a, b), (b, a))]
        seen = abs(np.median(values[a]) - np.median(values[b]))
        assert test.p == ((np.abs(swapped[0] - swapped[1]) >= seen).sum() + 1) / 301
        assert (test.exact, test.flips) == (False, 300)
