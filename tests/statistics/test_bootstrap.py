"""The cluster bootstrap: against hand-worked cases, SciPy and its own promises."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from capim.tasks.statistics import draws
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling, count_blocks, rounded_to_grid
from capim.tasks.statistics.intervals import (
    NO_SPREAD,
    NO_WIDTH,
    TOO_FEW_CLUSTERS,
    ClusteredValues,
    bootstrap_replicates,
    bootstrap_samples,
    cluster_medians,
    statistic_of,
)

REPOSITORY = Path(__file__).resolve().parents[2]


def cluster_bootstrap(values, clusters, *, n_clusters=None, weights=None, reduce="mean", **how) -> list[Any]:  # type: ignore[no-untyped-def]
    """The intervals of one sample."""
    sample = ClusteredValues(values, Clusters.of(clusters, n_clusters, weights))
    return bootstrap_samples([sample], Resampling(**how), reduce)[0]


def sample(n_clusters: int = 60, per_cluster: int = 5, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Hits of queries whose clusters differ in difficulty, and their clusters."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_clusters), per_cluster)
    return (rng.random(len(labels)) < rng.random(n_clusters)[labels]).astype(float), labels


def test_every_cluster_is_drawn_equally_often() -> None:
    counts = np.concatenate(list(count_blocks(50, replicates=20_000, seed=5))).astype(float)
    assert counts.sum(axis=1).tolist() == [50.0] * 20_000
    # mean of a multinomial count: 1, variance 1 - 1/50
    assert np.abs(counts.mean(axis=0) - 1).max() < 5 * np.sqrt(0.98 / 20_000)
    assert counts.var(axis=0).mean() == pytest.approx(0.98, abs=0.01)


def test_a_replicate_depends_neither_on_how_many_are_drawn_nor_on_whether_they_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few, many = (np.concatenate(list(count_blocks(31, replicates=n, seed=5))) for n in (150, 1_003))
    np.testing.assert_array_equal(few, many[:150])
    monkeypatch.setattr(draws, "KEPT_BYTES", 0)
    np.testing.assert_array_equal(np.concatenate(list(count_blocks(31, replicates=1_003, seed=5))), many)


def test_the_number_of_threads_changes_nothing() -> None:
    code = """
import numpy as np
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling
from capim.tasks.statistics.intervals import ClusteredValues, bootstrap_samples
rng = np.random.default_rng(0)
values = ClusteredValues(1 / rng.integers(1, 90, (7, 900)), Clusters.of(np.arange(900) // 3))
for interval in bootstrap_samples([values], Resampling(seed=1, replicates=600))[0]:
    print(interval.low.hex(), interval.high.hex(), interval.standard_error.hex())
"""
    run = partial(
        subprocess.run, [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=REPOSITORY
    )
    variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    printed = {run(env={**os.environ, **dict.fromkeys(variables, threads)}).stdout for threads in ("1", "5")}
    assert len(printed) == 1
    assert printed.pop().count("0x1.") == 21


def test_reseeding_the_global_generator_changes_nothing() -> None:
    found = []
    for reseeded, seed in ((1, 9), (2, 9), (2, 10)):
        np.random.seed(reseeded)  # noqa: NPY002
        found.append(cluster_bootstrap(*sample(), seed=seed, replicates=500, method="percentile"))
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("method", ["percentile", "bca"])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_intervals_equal_scipy_given_the_same_replicates(method: str, level: float) -> None:
    values, labels = sample()
    units = Clusters.of(labels)
    statistic = statistic_of(values, units)
    replicates = bootstrap_replicates(statistic, 60, Resampling(replicates=2_000, seed=9))[0]
    sums, sizes = units.sums(values[None])[:, 0], units.sizes
    peer = scipy.stats.bootstrap(  # type: ignore[call-overload]  # the stub of the data is too narrow
        (np.arange(60),),
        lambda index, axis=-1: sums[index].sum(axis=axis) / sizes[index].sum(axis=axis),
        n_resamples=0,
        bootstrap_result=SimpleNamespace(bootstrap_distribution=replicates),
        confidence_level=level,
        method={"percentile": "percentile", "bca": "BCa"}[method],
    )
    [ours] = cluster_bootstrap(values, labels, seed=9, replicates=2_000, level=level, method=method)
    expected = [*peer.confidence_interval, peer.standard_error]
    assert [ours.low, ours.high, ours.standard_error] == pytest.approx(expected, abs=1e-12)
    assert ours.method == method


def test_clusters_of_unequal_size_give_a_ratio_of_sums_as_often_as_each_is_drawn() -> None:
    statistic = statistic_of([[1.0, 1.0, 1.0, 0.0]], Clusters.of([0, 0, 0, 1]))
    replicates = bootstrap_replicates(statistic, 2, Resampling(replicates=40_000, seed=1))
    values, counts = np.unique(replicates, return_counts=True)
    assert values.tolist() == [0.0, 0.75, 1.0]
    assert counts / 40_000 == pytest.approx([0.25, 0.5, 0.25], abs=0.01)


def test_five_identical_captions_widen_the_interval_by_the_root_of_five() -> None:
    hits = (np.random.default_rng(0).random(1_000) < 0.4).astype(float)
    values, labels = np.repeat(hits, 5), np.repeat(np.arange(1_000), 5)
    [clustered] = cluster_bootstrap(values, labels, seed=1)
    [naive] = cluster_bootstrap(values, np.arange(5_000), seed=1)
    assert (clustered.high - clustered.low) / (naive.high - naive.low) == pytest.approx(np.sqrt(5), rel=0.03)
    # and repeating the captions says nothing new: the interval is that of one caption per image
    [single] = cluster_bootstrap(hits, np.arange(1_000), seed=1)
    assert (clustered.low, clustered.high) == (single.low, single.high)


def test_the_order_of_queries_changes_nothing() -> None:
    values, labels = sample()
    values = np.stack([values, values / 3, np.arange(len(labels)) % 17])
    order = np.random.default_rng(1).permutation(len(labels))
    for reduce in ("mean", "median"):
        how: Any = {"seed": 2, "replicates": 300, "reduce": reduce, "method": "bca"}
        assert cluster_bootstrap(values[:, order], labels[order], **how) == cluster_bootstrap(values, labels, **how)


@settings(max_examples=60)
@given(data=st.data())
def test_weighted_medians_equal_medians_of_the_repeated_queries(data: st.DataObject) -> None:
    n_clusters = data.draw(st.integers(1, 6))
    labels = np.array(data.draw(st.lists(st.integers(0, n_clusters - 1), min_size=1, max_size=40)))
    spread = data.draw(st.sampled_from([3, 1_000]))
    ranks = np.array(data.draw(st.lists(st.integers(1, spread), min_size=len(labels), max_size=len(labels))), float)
    weights = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n_clusters, max_size=n_clusters)))
    [[got]] = cluster_medians(ranks, Clusters.of(labels, n_clusters))(weights[None].astype(np.uint8))
    repeated = np.repeat(ranks, weights[labels])
    np.testing.assert_equal(got, np.median(repeated) if len(repeated) else np.nan)


def test_medians_of_widely_spread_ranks_are_found_beyond_the_first_window() -> None:
    rng = np.random.default_rng(0)
    ranks, labels = rng.permutation(5_000).astype(float), np.repeat(np.arange(500), 10)
    ranks[:2_500] *= 3
    units = Clusters.of(labels)
    weights = np.stack([c for block in count_blocks(500, replicates=40, seed=2) for c in block])
    weights[0, 250:] = 0
    expected = [np.median(np.repeat(ranks, w[labels].astype(int))) for w in weights]
    np.testing.assert_array_equal(cluster_medians(ranks, units)(weights)[0], expected)


def test_sums_on_the_grid_do_not_depend_on_the_order_of_addition() -> None:
    rng = np.random.default_rng(0)
    addends = rng.integers(0, 4, 4_000) * rounded_to_grid(rng.random(4_000) * 5, weight=4_000)
    assert {np.cumsum(rng.permutation(addends))[-1] for _ in range(20)} == {addends.sum()}


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_one_cluster_and_a_constant_metric_have_a_reason_instead_of_an_interval(method: str) -> None:
    [one] = cluster_bootstrap([0.0, 1.0], [3, 3], n_clusters=10, seed=1, method=method)
    assert (one.low, one.high, one.method, one.reason) == (None, None, "none", TOO_FEW_CLUSTERS)
    [constant] = cluster_bootstrap([0.2] * 10, range(10), seed=1, replicates=50, method=method)
    assert constant.value == pytest.approx(0.2)
    assert (constant.low, constant.standard_error, constant.reason) == (None, None, NO_SPREAD)


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_a_median_that_hardly_moves_has_no_interval_of_zero_width(method: str) -> None:
    for n_far, reason in ((20, NO_SPREAD), (38, NO_WIDTH)):
        ranks = np.where(np.arange(100) < n_far, 7.0, 1.0)  # the other queries have rank 1
        [interval] = cluster_bootstrap(ranks, range(100), seed=1, replicates=5_000, reduce="median", method=method)
        assert (interval.low, interval.value, interval.high, interval.reason) == (None, 1.0, None, reason)


def test_samples_bootstrapped_together_get_the_intervals_of_each_alone() -> None:
    values, labels = sample(n_clusters=50)
    alone = np.random.default_rng(2).random((2, 50)) ** 3
    samples = [ClusteredValues(values[None], Clusters.of(labels)), ClusteredValues(alone, Clusters.of(range(50)))]
    for method in ("percentile", "bca"):
        together = bootstrap_samples(samples, Resampling(seed=4, replicates=700, method=method))  # type: ignore[arg-type]
        assert together == [
            cluster_bootstrap(values, labels, seed=4, replicates=700, method=method),
            cluster_bootstrap(alone, range(50), seed=4, replicates=700, method=method),
        ]
    assert bootstrap_samples([], Resampling()) == []
    with pytest.raises(ValueError, match="same n_clusters"):
        bootstrap_samples([samples[0], ClusteredValues(alone, Clusters.of(range(50), 51))], Resampling())


def test_draws_without_a_single_query_are_left_out() -> None:
    units = Clusters.of([3, 41], 50)  # two images of fifty have a query: about one draw in seven holds neither
    replicates = bootstrap_replicates(statistic_of([[0.0, 1.0]], units), 50, Resampling(replicates=2_000, seed=1))
    assert np.isnan(replicates).mean() == pytest.approx((48 / 50) ** 50, abs=0.03)
    how: Any = {"n_clusters": 50, "seed": 1, "replicates": 2_000, "method": "percentile"}
    [interval] = cluster_bootstrap([0.0, 1.0], [3, 41], **how)
    assert (interval.low, interval.high) == (0.0, 1.0)
    [ranks] = cluster_bootstrap([4.0, 8.0], [3, 41], reduce="median", **how)
    assert (ranks.low, ranks.value, ranks.high) == (4.0, 6.0, 8.0)


@settings(max_examples=25)
@given(st.lists(st.floats(0, 1), min_size=12, max_size=40), st.sampled_from(["mean", "median"]))
def test_a_higher_level_widens_the_interval(values: list[float], reduce: str) -> None:
    labels = np.arange(len(values)) // 2
    narrow, wide = (
        cluster_bootstrap(values, labels, seed=1, replicates=200, level=level, reduce=reduce)[0]
        for level in (0.8, 0.99)
    )
    if wide.low is None:
        assert narrow.low is None and {wide.reason, narrow.reason} <= {NO_SPREAD, NO_WIDTH}
    elif narrow.low is None:
        assert reduce == "median" and narrow.reason == NO_WIDTH
    else:
        assert wide.low <= narrow.low <= narrow.high <= wide.high
        assert reduce == "mean" or min(values) <= wide.low <= wide.high <= max(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reduce": "mode"}, "reduce must be 'mean' or 'median', got 'mode'"),
        ({"n_clusters": 2}, r"cluster labels must lie in 0..1, got 0..2"),
        ({"weights": [1, 2]}, "weights must be 3 positive numbers"),
        ({"values": [0.0, np.nan, 1.0]}, "first in row 0 at query 1: nan"),
        ({"values": [0.0, 1.0]}, "those of 3 queries"),
        ({"clusters": [0.5, 1.0, 2.0]}, "must be integers"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(change: dict[str, object], message: str) -> None:
    request: dict[str, object] = {"values": [0.0, 1.0, 1.0], "clusters": [0, 1, 2], "seed": 1, "replicates": 10}
    with pytest.raises(ValueError, match=message):
        cluster_bootstrap(**{**request, **change})  # type: ignore[arg-type]
