"""The cluster bootstrap: against hand-worked cases, SciPy and its own promises."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from itertools import product
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
from capim.tasks.statistics.draws import IntervalMethod, Resampling, count_blocks, rounded_to_grid
from capim.tasks.statistics.intervals import NO_SPREAD, NO_WIDTH, TOO_FEW_CLUSTERS, interval_of, replicates_of

REPOSITORY = Path(__file__).resolve().parents[2]


def cluster_bootstrap(values, clusters, *, n_clusters=None, weights=None, reduce="mean", **how) -> Any:  # type: ignore[no-untyped-def]
    """The interval of one sample."""
    return interval_of(values, Clusters.of(clusters, n_clusters, weights), Resampling(**how), reduce)


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
from capim.tasks.statistics.intervals import interval_of
rng = np.random.default_rng(0)
for values in 1 / rng.integers(1, 90, (7, 900)):
    how = Resampling(seed=1, replicates=600, method="percentile")
    interval = interval_of(values, Clusters.of(np.arange(900) // 3), how)
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


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_intervals_equal_scipy_given_the_same_replicates(level: float) -> None:
    values, labels = sample()
    units = Clusters.of(labels)
    replicates = replicates_of(values, units, Resampling(replicates=2_000, seed=9))
    sums, sizes = units.sums(values[None])[:, 0], units.sizes
    peer = scipy.stats.bootstrap(  # type: ignore[call-overload]  # the stub of the data is too narrow
        (np.arange(60),),
        lambda index, axis=-1: sums[index].sum(axis=axis) / sizes[index].sum(axis=axis),
        n_resamples=0,
        bootstrap_result=SimpleNamespace(bootstrap_distribution=replicates),
        confidence_level=level,
        method="percentile",
    )
    ours = cluster_bootstrap(values, labels, seed=9, replicates=2_000, level=level, method="percentile")
    expected = [*peer.confidence_interval, peer.standard_error]
    assert [ours.low, ours.high, ours.standard_error] == pytest.approx(expected, abs=1e-12)
    assert ours.method == "percentile"


def test_clusters_of_unequal_size_give_a_ratio_of_sums_as_often_as_each_is_drawn() -> None:
    how = Resampling(replicates=40_000, seed=1)
    replicates = replicates_of([1.0, 1.0, 1.0, 0.0], Clusters.of([0, 0, 0, 1]), how)
    values, counts = np.unique(replicates, return_counts=True)
    assert values.tolist() == [0.0, 0.75, 1.0]
    assert counts / 40_000 == pytest.approx([0.25, 0.5, 0.25], abs=0.01)


def test_five_identical_captions_widen_the_interval_by_the_root_of_five() -> None:
    hits = (np.random.default_rng(0).random(1_000) < 0.4).astype(float)
    values, labels = np.repeat(hits, 5), np.repeat(np.arange(1_000), 5)
    clustered = cluster_bootstrap(values, labels, seed=1)
    naive = cluster_bootstrap(values, np.arange(5_000), seed=1)
    assert (clustered.high - clustered.low) / (naive.high - naive.low) == pytest.approx(np.sqrt(5), rel=0.03)
    # and repeating the captions says nothing new: the interval is that of one caption per image
    single = cluster_bootstrap(hits, np.arange(1_000), seed=1)
    assert (clustered.low, clustered.high) == (single.low, single.high)


def test_the_order_of_queries_changes_nothing() -> None:
    values, labels = sample()
    order = np.random.default_rng(1).permutation(len(labels))
    for row in (values, values / 3, np.arange(len(labels)) % 17.0):
        for reduce, method in product(("mean", "median"), ("wilson", "percentile")):
            how: Any = {"seed": 2, "replicates": 300, "reduce": reduce, "method": method}
            one, other = cluster_bootstrap(row[order], labels[order], **how), cluster_bootstrap(row, labels, **how)
            ends = [[each.value, each.low, each.high] for each in (one, other)]
            assert ends[0] == pytest.approx(ends[1], abs=1e-12)


def test_sums_on_the_grid_do_not_depend_on_the_order_of_addition() -> None:
    rng = np.random.default_rng(0)
    addends = rng.integers(0, 4, 4_000) * rounded_to_grid(rng.random(4_000) * 5, weight=4_000)
    assert {np.cumsum(rng.permutation(addends))[-1] for _ in range(20)} == {addends.sum()}


@pytest.mark.parametrize("method", ["wilson", "percentile"])
def test_one_cluster_and_a_constant_metric_have_a_reason_instead_of_an_interval(method: IntervalMethod) -> None:
    one = cluster_bootstrap([0.0, 1.0], [3, 3], n_clusters=10, seed=1, method=method)
    assert (one.low, one.high, one.method, one.reason) == (None, None, "none", TOO_FEW_CLUSTERS)
    median = interval_of([0.0, 1.0], Clusters.of([3, 3]), Resampling(method=method), "median")
    assert (median.value, median.low, median.reason) == (0.5, None, TOO_FEW_CLUSTERS)
    constant = cluster_bootstrap([0.2] * 10, range(10), seed=1, replicates=50, method=method)
    assert constant.value == pytest.approx(0.2)
    assert (constant.low, constant.standard_error, constant.reason) == (None, None, NO_SPREAD)


@pytest.mark.parametrize("method", ["wilson", "percentile"])
def test_a_median_that_hardly_moves_has_no_interval_of_zero_width(method: str) -> None:
    for n_far in (20, 38):
        ranks = np.where(np.arange(100) < n_far, 7.0, 1.0)  # the other queries have rank 1
        interval = cluster_bootstrap(ranks, range(100), seed=1, replicates=2_000, reduce="median", method=method)
        assert (interval.low, interval.value, interval.high) == (None, 1.0, None)
        assert interval.reason in (NO_SPREAD, NO_WIDTH)


@pytest.mark.parametrize("captions", [1, 4])
def test_the_interval_of_a_median_holds_it_as_often_as_promised(captions: int) -> None:
    """Woodruff's; queries of one image have a part in common."""
    rng, missed, labels = np.random.default_rng(5), 0, np.repeat(np.arange(40), captions)
    for _ in range(400):
        values = np.exp(np.repeat(rng.normal(size=40), captions) + rng.normal(size=len(labels)))
        found = cluster_bootstrap(values, labels, reduce="median")
        assert found.low is not None and found.high is not None and {found.low, found.high} <= {*values.tolist()}
        missed += not found.low <= 1.0 <= found.high
    assert missed <= 0.05 * 400 + 3 * np.sqrt(0.05 * 0.95 * 400)


def test_draws_without_a_single_query_are_left_out() -> None:
    units = Clusters.of([3, 41], 50)  # two images of fifty have a query: about one draw in seven holds neither
    replicates = replicates_of([0.0, 1.0], units, Resampling(replicates=2_000, seed=1))
    assert np.isnan(replicates).mean() == pytest.approx((48 / 50) ** 50, abs=0.03)
    how: Any = {"n_clusters": 50, "seed": 1, "replicates": 2_000, "method": "percentile"}
    interval = cluster_bootstrap([0.0, 1.0], [3, 41], **how)
    assert (interval.low, interval.high) == (0.0, 1.0)
    ranks = cluster_bootstrap([4.0, 8.0], [3, 41], reduce="median", **how)
    assert (ranks.low, ranks.value, ranks.high) == (4.0, 6.0, 8.0)


@settings(max_examples=25)
@given(st.lists(st.floats(0, 1), min_size=12, max_size=40), st.sampled_from(["mean", "median"]))
def test_a_higher_level_widens_the_interval(values: list[float], reduce: str) -> None:
    labels = np.arange(len(values)) // 2
    narrow, wide = (
        cluster_bootstrap(values, labels, seed=1, replicates=200, level=level, reduce=reduce, method="percentile")
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
