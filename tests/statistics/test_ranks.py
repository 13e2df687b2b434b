"""Ranks that encoders can hold, and which are tied with the best."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.decision import decide
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.pairs import Scale, compare_encoders
from capim.tasks.statistics.ranking import RankSet, rank_encoders, rank_sets

V29 = [  # the seed's example: Apple beats both, LAION and MetaCLIP cannot be told apart
    ("Apple", "LAION", 0.038, 0.0003),
    ("Apple", "MetaCLIP", 0.043, 0.0002),
    ("LAION", "MetaCLIP", 0.005, 0.31),
]


def held(found: dict[str, RankSet]) -> dict[str, tuple[int, int]]:
    return {name: (ranks.best, ranks.worst) for name, ranks in found.items()}


def test_the_seeds_example_leaves_the_second_place_open() -> None:
    found = rank_encoders(["MetaCLIP", "Apple", "LAION"], V29)
    assert held(found) == {"Apple": (1, 1), "LAION": (2, 3), "MetaCLIP": (2, 3)}
    assert [name for name, ranks in found.items() if ranks.tied_with_best] == ["Apple"]


def test_lower_values_rank_better_when_lower_is_better_and_encoders_that_agree_everywhere_are_tied() -> None:
    pair = [("x", "y", 4.0, 0.001)]  # x has the higher, worse median rank
    assert held(rank_encoders(["x", "y"], pair, lower_is_better=True)) == {"y": (1, 1), "x": (2, 2)}
    assert held(rank_encoders(["x", "y"], [("x", "y", 0.0, None)])) == {"x": (1, 2), "y": (1, 2)}


@given(st.lists(st.integers(0, 20), min_size=1, max_size=7), st.integers(0, 8))
def test_the_place_by_value_lies_among_the_places_that_tests_leave_open(values: list[int], gap: int) -> None:
    named = {f"e{i}": v / 20 for i, v in enumerate(values)}
    pairs = combinations(named.items(), 2)
    tests = [(a, b, x - y, 0.01 if abs(x - y) > gap / 20 else 0.5) for (a, x), (b, y) in pairs]
    for name, (best, worst) in held(rank_encoders([*named], tests)).items():
        assert best <= 1 + sum(other > named[name] for other in named.values()) <= worst


@given(
    n_encoders=st.integers(2, 6), sizes=st.lists(st.integers(1, 8), min_size=8, max_size=40), seed=st.integers(0, 99)
)
@settings(max_examples=60)
def test_what_is_undecided_could_be_worse_by_the_interval_that_left_it_undecided(
    n_encoders: int, sizes: list[int], seed: int
) -> None:
    """The interval of a pair alone left 0 out where the test of all did not reject: "up to 0.0 points worse"."""
    rng = np.random.default_rng(seed)
    clusters = Clusters.of(np.repeat(np.arange(len(sizes)), sizes))
    values = {f"e{i}": rng.integers(0, 3, clusters.n_queries) / 2 for i in range(n_encoders)}
    resampling = Resampling(replicates=50, permutations=400, seed=seed)
    for pair in compare_encoders(values, clusters, resampling, Scale(span=1.0)):
        if pair.simultaneous is None or pair.p_adjusted is None:
            continue
        low, high = pair.simultaneous
        assert low <= pair.difference.value <= high
        found = decide((low, high), p_equivalent=1.0, margin=0.5)
        if found.state == "undecided":
            assert low <= 0 <= high
            assert found.worse_by is not None and found.worse_by >= -pair.difference.value


def test_ten_equal_encoders_are_never_undecided_by_nothing() -> None:
    """79 % of such tables held an "undecided: up to 0.0 points worse": the interval of the pair alone left 0 out."""
    rng, clusters = np.random.default_rng(3), Clusters.of(np.repeat(np.arange(200), 5))
    n_alone = 0
    skill = rng.random(1000)
    for table in range(5):
        values = {f"e{i}": (rng.random(1000) < skill).astype(float) for i in range(10)}
        pairs = compare_encoders(values, clusters, Resampling(replicates=200, permutations=2000, seed=table))
        n_alone += sum((pair.difference.low or 0) >= 0 or (pair.difference.high or 0) <= 0 for pair in pairs)
        for pair in pairs:
            low, high = pair.simultaneous or (0.0, 0.0)
            assert pair.p_adjusted is not None and (pair.p_adjusted < 0.05 or min(-low, high) > 0)
    assert n_alone > 2


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=5, max_size=5))
def test_an_encoder_that_any_other_beats_cannot_be_the_best(wins: list[list[bool]]) -> None:
    better = np.triu(np.array(wins), 1)
    for encoder, ranks in enumerate(rank_sets(better)):
        assert 1 <= ranks.best <= ranks.worst <= 5
        assert ranks.tied_with_best == (not better[:, encoder].any())
