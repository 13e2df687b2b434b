"""Tests that figures fell: one direction, one family over several corpora, p-values small enough for their level."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from capim.tasks.reference.changes import FEW_FLIPS, decline_tests


def noise(n_clusters: int, n_figures: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-1, 2, size=(n_clusters, n_figures)).astype(np.float64)


def test_p_values_are_those_of_every_flip_of_both_corpora_together() -> None:
    falls = [noise(5, 2, 0) + 0.5, noise(4, 1, 1) + 0.25]
    tests = [test for group in decline_tests(falls, level=0.05, permutations=10, seed=0) for test in group]
    scale = np.concatenate([np.sqrt((fall**2).sum(axis=0)) for fall in falls])
    flipped = []
    for signs in product([1, -1], repeat=9):
        first, second = np.array(signs[:5]), np.array(signs[5:])
        flipped.append(np.concatenate([first @ falls[0], second @ falls[1]]) / scale)
    clarity = flipped[0]  # nothing is flipped
    back = np.argsort(clarity)
    expected, least = {}, 0.0
    for place in reversed(range(3)):
        largest = np.array(flipped)[:, back[: place + 1]].max(axis=1)
        least = max(least, float((largest >= clarity[back[place]] - 1e-9).mean()))
        expected[int(back[place])] = least
    assert [test.p_adjusted for test in tests] == pytest.approx([expected[i] for i in range(3)])


def test_a_figure_that_rose_is_never_significant() -> None:
    risen = -np.ones((200, 1))
    [[test]] = decline_tests([risen], level=0.05, permutations=999, seed=0)
    assert test.p_adjusted == 1.0


def test_a_clear_fall_gets_a_p_value_below_a_level_that_few_flips_could_not_reach() -> None:
    fall = np.concatenate([np.ones((60, 1)), np.zeros((40, 1))])
    [[test]] = decline_tests([fall], level=1e-4, permutations=100, seed=0)
    assert test.p_adjusted is not None
    assert test.p_adjusted < 1e-4
    assert 1 / (FEW_FLIPS + 1) > 1e-4


def test_many_unchanged_and_noisy_figures_cost_a_clear_fall_nothing_but_their_own_maximum() -> None:
    family = np.concatenate([np.ones((200, 1)), noise(200, 125, 3), np.zeros((200, 1))], axis=1)
    [tests] = decline_tests([family], level=0.001, permutations=999, seed=0)
    assert tests[0].p_adjusted is not None
    assert tests[0].p_adjusted < 0.001
    assert tests[-1].p is None
