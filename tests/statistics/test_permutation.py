"""Sign flips: against the definition written out and SciPy."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
import scipy

from capim.tasks.statistics import flips
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.flips import sign_flip_tests
from tests.statistics.test_proportion import two_encoders


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


@pytest.mark.parametrize("per_cluster", [1, 3])
def test_random_flips_test_and_adjust_like_all_of_them(per_cluster: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    values = rng.normal(size=(5, 14 * per_cluster)) + np.linspace(0, 2, 5)[:, None]
    pairs, clusters = list(combinations(range(5), 2)), Clusters.of(np.repeat(range(14), per_cluster))
    exact = sign_flip_tests(values, clusters, pairs, Resampling())
    monkeypatch.setattr(flips, "EXACT_FLIPS", 0)
    monkeypatch.setattr(flips, "ALL_FLIPS", 0)
    drawn = sign_flip_tests(values, clusters, pairs, Resampling(permutations=40_000))
    assert all(test.exact for test in exact) and not any(test.exact for test in drawn)
    assert [test.p for test in drawn] == pytest.approx([test.p for test in exact], abs=4 * np.sqrt(0.25 / 40_000))
    assert [test.p_adjusted for test in drawn] == pytest.approx([test.p_adjusted for test in exact], abs=0.012)


def test_the_floor_of_adjusted_p_values_does_not_grow_with_the_number_of_pairs() -> None:
    """33 encoders: with Holm over 528 pairs, the floor of 10,000 flips was 0.053."""
    hits = (np.random.default_rng(9).random((33, 300)) < np.linspace(0.02, 0.96, 33)[:, None]).astype(float)
    pairs = list(combinations(range(33), 2))
    test = sign_flip_tests(hits, Clusters.of(range(300)), pairs, Resampling())[pairs.index((0, 32))]
    assert (test.p, test.p_adjusted) == (1 / 10_001, 1 / 10_001), "and is never zero"


def test_clusters_without_a_difference_leave_the_test_exact() -> None:
    values = np.ones((2, 5_000))
    values[1, :4] = 0
    [test] = sign_flip_tests(values, Clusters.of(range(5_000)), [(0, 1)], Resampling(seed=3))
    assert (test.exact, test.flips, test.p) == (True, 2**4, 0.125)


def test_sums_that_differ_only_by_rounding_have_no_test() -> None:
    # 0.1 + 0.2 against 0.3: no difference, so nothing to test
    [test] = sign_flip_tests([[0.1, 0.2, 0.0], [0.3, 0.0, 0.0]], Clusters.of([0, 0, 1]), [(0, 1)], Resampling(seed=3))
    assert test.p is None
