"""Ranks that encoders can hold, and which are tied with the best."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.statistics.clusters import Clusters
from tasks.statistics.pairwise import compare_encoders
from tasks.statistics.ranking.ranks import PairTest, rank_encoders, rank_sets
from tasks.statistics.resampling import Resampling

V29 = [  # the seed's example: Apple beats both, LAION and MetaCLIP cannot be told apart
    PairTest("Apple", "LAION", 0.038, 0.0003),
    PairTest("Apple", "MetaCLIP", 0.043, 0.0002),
    PairTest("LAION", "MetaCLIP", 0.005, 0.31),
]


def test_the_seeds_example_leaves_the_second_place_open() -> None:
    found = rank_encoders([("MetaCLIP", 0.458), ("Apple", 0.501), ("LAION", 0.463)], V29)
    assert [(r.encoder, r.rank, r.best, r.worst, r.tied_with_best) for r in found] == [
        ("Apple", 1, 1, 1, True),
        ("LAION", 2, 2, 3, False),
        ("MetaCLIP", 3, 2, 3, False),
    ]


def test_lower_values_rank_better_when_lower_is_better() -> None:
    pair = [PairTest("x", "y", 4.0, 0.001)]  # x has the higher, worse median rank
    found = rank_encoders([("x", 9.0), ("y", 5.0)], pair, lower_is_better=True)
    assert [(r.encoder, r.best, r.worst) for r in found] == [("y", 1, 1), ("x", 2, 2)]


def test_encoders_that_agree_everywhere_are_tied_with_the_best() -> None:
    found = rank_encoders([("x", 0.5), ("y", 0.5)], [PairTest("x", "y", 0.0, None)])
    assert [(r.rank, r.best, r.worst, r.tied_with_best) for r in found] == [(1, 1, 2, True)] * 2


def test_a_missing_pair_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"1 pairs were not compared, first \('LAION', 'MetaCLIP'\)"):
        rank_encoders([("Apple", 0.501), ("LAION", 0.463), ("MetaCLIP", 0.458)], V29[:2])


@given(st.lists(st.integers(0, 20), min_size=1, max_size=7), st.integers(0, 8))
def test_the_place_by_value_lies_among_the_places_that_tests_leave_open(values: list[int], gap: int) -> None:
    named = [(f"e{i}", v / 20) for i, v in enumerate(values)]
    pairs = [PairTest(a, b, x - y, 0.01 if abs(x - y) > gap / 20 else 0.5) for (a, x), (b, y) in combinations(named, 2)]
    for ranked in rank_encoders(named, pairs):
        assert ranked.best <= ranked.rank <= ranked.worst


def test_comparisons_give_ranks() -> None:
    rng = np.random.default_rng(0)
    hits = {name: (rng.random(2_000) < share).astype(float) for name, share in (("a", 0.6), ("b", 0.59), ("c", 0.3))}
    compared = compare_encoders(
        hits, Clusters.of(np.arange(2_000)), Resampling(seed=1, replicates=200, permutations=2_000)
    )
    pairs = [PairTest(c.a, c.b, c.difference.value, c.p_adjusted) for c in compared]
    found = rank_encoders([(name, float(row.mean())) for name, row in hits.items()], pairs)
    assert {r.encoder: (r.best, r.worst, r.tied_with_best) for r in found} == {
        "a": (1, 2, True), "b": (1, 2, True), "c": (3, 3, False),
    }  # fmt: skip


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=5, max_size=5))
def test_an_encoder_that_any_other_beats_cannot_be_the_best(wins: list[list[bool]]) -> None:
    better = np.triu(np.array(wins), 1)
    for encoder, held in enumerate(rank_sets(better)):
        assert 1 <= held.best <= held.worst <= 5
        assert held.tied_with_best == (not better[:, encoder].any())
