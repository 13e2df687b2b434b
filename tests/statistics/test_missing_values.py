"""NaN means that a query has no value: it leaves the mean, the interval and every comparison that it would be in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.decision import ON_COMMON
from capim.tasks.statistics.draws import Resampling, count_blocks
from capim.tasks.statistics.flips import NO_TEST
from capim.tasks.statistics.intervals import NO_SPREAD, OF_MEDIANS, interval_of, paired_intervals, replicates_of
from capim.tasks.statistics.pairs import AGGREGATE, NO_COMMON_QUERY, Comparison, Scale, compare_encoders
from capim.tasks.statistics.slices import NO_QUERY, part_means

RESAMPLING = Resampling(replicates=300, permutations=300, seed=7)
CLUSTERS = Clusters.of(np.repeat(np.arange(30), 4), 33, np.tile([1.0, 2.0, 1.0, 0.5], 30))


def values(n: int, *, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).random((n, 120))


def figures(comparison: Comparison) -> Comparison:
    """Without what depends on the other pairs: the adjusted p-value, and the interval and the effect at its level."""
    alone = replace(comparison.flip_test, p_adjusted=None, criticals=())
    found = replace(comparison, p_adjusted=None, flip_test=alone, detectable_effect=None)
    return replace(found, simultaneous=None, shared=())


@pytest.mark.parametrize("reduce", ["mean", "median"])
def test_a_pair_is_compared_on_the_queries_that_both_have_a_value_of(reduce: str) -> None:
    x, y, z = values(3)
    x[:30], y[20:50] = np.nan, np.nan
    both = ~np.isnan(x) & ~np.isnan(y)
    scale = Scale(reduce=reduce)  # type: ignore[arg-type]
    together = compare_encoders({"x": x, "y": y, "z": z}, CLUSTERS, RESAMPLING, scale)
    [alone] = compare_encoders({"x": x[both], "y": y[both]}, CLUSTERS.only(both), RESAMPLING, scale)
    common = [] if reduce == "mean" else [OF_MEDIANS]
    assert figures(together[0]) == replace(figures(alone), reason="; ".join([*common, ON_COMMON.format(n=70)]))
    whole = compare_encoders({"y": y, "z": values(3)[2]}, CLUSTERS, RESAMPLING, scale)
    assert figures(together[2]) == figures(whole[0]), "what x lacks changes nothing for the pair of the others"
    assert (alone.n_queries, alone.n_clusters) == (70, 18)
    assert [(pair.a, pair.b, pair.n_queries) for pair in together] == [("x", "y", 70), ("x", "z", 90), ("y", "z", 90)]
    assert all((pair.p_adjusted is not None) == (reduce == "mean") for pair in together)


def test_two_encoders_without_a_common_query_have_a_reason_and_an_infinite_value_is_refused() -> None:
    x, y = values(2)
    x[:60], y[60:] = np.nan, np.nan
    [pair] = compare_encoders({"x": x, "y": y}, CLUSTERS, RESAMPLING)
    assert np.isnan(pair.difference.value)
    assert (pair.flip_test.p, pair.p_adjusted, pair.n_queries, pair.reason) == (None, None, 0, NO_COMMON_QUERY)
    x[3] = np.inf
    with pytest.raises(ValueError, match="encoder 'x': 1 values are infinite"):
        compare_encoders({"x": x, "y": y}, CLUSTERS, RESAMPLING)


def test_parts_have_the_means_and_intervals_of_the_known_queries_of_each_encoder() -> None:
    table = values(3)
    table[0, :30], table[1, 100:] = np.nan, np.nan
    parts = np.stack([np.arange(120) < 60, np.arange(120) % 3 == 0, np.arange(120) >= 100])
    means = part_means(table, parts, CLUSTERS, RESAMPLING)
    for row in range(3):
        known = ~np.isnan(table[row])
        alone = part_means(table[row][known], parts[:, known], CLUSTERS.only(known), RESAMPLING)
        for part in range(3):
            assert means.counts(row, part) == alone.counts(0, part)
            if means.counts(row, part)[0]:
                assert means.interval(row, part).value == pytest.approx(alone.interval(0, part).value, abs=1e-12)
                assert means.interval(row, part).low == pytest.approx(alone.interval(0, part).low, abs=1e-9)
    assert means.counts(1, 2) == (0, 0)
    assert means.interval(1, 2).reason == means.too_small(1, 0, 2) == NO_QUERY


def test_an_aggregate_gets_every_query_as_often_as_its_cluster_was_drawn() -> None:
    [row] = values(1)
    seen: list[NDArray[np.float64]] = []
    replicates_of(row, CLUSTERS, RESAMPLING, lambda drawn: seen.append(drawn) or 0.0)  # type: ignore[func-returns-value]
    [first, *_] = np.concatenate(list(count_blocks(33, replicates=300, seed=7)))
    assert len(seen) == 300
    np.testing.assert_array_equal(seen[0], np.repeat(row, first[CLUSTERS.labels]))
    by_median, by_function = (replicates_of(row, CLUSTERS, RESAMPLING, of) for of in ("median", np.median))  # type: ignore[arg-type]
    np.testing.assert_array_equal(by_median, by_function)


def test_the_interval_of_an_aggregate_is_that_of_its_replicates() -> None:
    pairs = np.random.default_rng(2).random((120, 2))  # two numbers per query

    def correlation(drawn: NDArray[np.float64]) -> float:
        return float(np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1])  # type: ignore[index]

    interval = interval_of(pairs, CLUSTERS, RESAMPLING, correlation)
    assert interval.value == pytest.approx(correlation(pairs))
    assert interval.low is not None and interval.high is not None and interval.low < interval.value < interval.high
    [difference] = paired_intervals(np.stack([pairs, pairs]), CLUSTERS, [(0, 1)], RESAMPLING, correlation)
    assert (difference.value, difference.low, difference.reason) == (0.0, None, NO_SPREAD)


def test_an_aggregate_has_a_difference_with_its_interval_and_a_reason_instead_of_a_test() -> None:
    x, y = values(2)
    x[:4] = np.nan
    [pair] = compare_encoders({"x": x, "y": y}, CLUSTERS, RESAMPLING, Scale(reduce=lambda drawn: float(np.ptp(drawn))))
    assert pair.difference.value == pytest.approx(np.ptp(x[4:]) - np.ptp(y[4:]))
    assert pair.difference.low is not None
    assert (pair.flip_test, pair.wins, pair.cohen_dz) == (NO_TEST, None, None)
    assert (pair.reason, pair.n_queries) == (f"{AGGREGATE}; {ON_COMMON.format(n=116)}", 116)
    assert pair.detectable_effect is None  # fewer than 30 images of equal weight


def test_an_aggregate_that_draws_change_has_no_interval_and_says_why() -> None:
    """Draws repeat images: the number of distinct ones, like a hub's size, lies outside what they give."""
    clusters, x = Clusters.of(range(40)), np.arange(40.0)
    for reduce, held in (
        (lambda drawn: float(len(np.unique(drawn))), False),
        (lambda drawn: float(drawn.mean()), True),
    ):
        interval = interval_of(x, clusters, RESAMPLING, reduce)
        assert (interval.low is not None, interval.method == "percentile") == (held, held)
        assert held or "its replicates are about 25.29, not 40" in (interval.reason or "")
        [pair] = compare_encoders({"a": x, "b": x % 7}, clusters, RESAMPLING, Scale(reduce=reduce))
        assert (pair.difference.low is not None) == held
