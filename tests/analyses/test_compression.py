"""Compressed vectors and approximate search: each method against its definition, the frontier against exact search."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from capim.store.sets.search import Index
from capim.store.vectors import Ragged
from capim.tasks.analyses.compression import Method, frontier, measured, methods_of
from capim.tasks.analyses.transforms import BYTES, pooled, token_trees
from capim.tasks.statistics.clusters import Clusters
from capim.tasks.statistics.draws import Resampling
from tests.results.thirty import captioned, retrieval_task

DIM = 16
N = 40


def unit(rng: np.random.Generator, n: int, dim: int = DIM) -> NDArray[np.float32]:
    rows = rng.standard_normal((n, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def many(seed: int, n: int, least: int = 2, most: int = 30) -> Ragged:
    rng = np.random.default_rng(seed)
    return Ragged.of([unit(rng, int(rng.integers(least, most))) for _ in range(n)])


def maxsim(queries: Ragged, items: Ragged) -> NDArray[np.float64]:
    return np.array([[(q @ i.astype(np.float32).T).max(axis=1).sum() for i in items] for q in queries])


def scored(items: Ragged, queries: Ragged, *names: str, late: bool = True) -> dict[tuple[str, str], tuple[float, Any]]:
    found = {}
    for method in methods_of(items, storage=str(items.values.dtype), many=late):
        if method.name in ("exact", *names):
            with method.open() as index:
                found[method.name, method.setting] = index.bytes_per_item, index.scores(queries)
    return found


def test_pooling_like_colpali_engine_gives_its_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    found = find_spec("colpali_engine")
    if found is None:
        pytest.skip("colpali_engine is not installed")
    if "colpali_engine" not in sys.modules:  # the package imports every model, which takes seconds
        alone = ModuleType("colpali_engine")
        alone.__path__ = found.submodule_search_locations or []
        monkeypatch.setitem(sys.modules, "colpali_engine", alone)
    pooler = import_module("colpali_engine.compression.token_pooling").HierarchicalTokenPooler()
    items = many(1, 12, most=60)
    items.values[3:5] = items.values[2]  # equal patches, as of a blank margin
    trees = token_trees(items, like_colpali_engine=True)
    for factor in (2, 3, 5):
        ours = pooled(items, trees, factor)
        theirs = pooler.pool_embeddings([torch.from_numpy(item) for item in items], pool_factor=factor)
        assert [len(item) for item in ours] == [len(item) for item in theirs]
        np.testing.assert_allclose(ours.values, torch.cat(theirs).numpy(), atol=1e-6)


def test_quantised_items_take_an_eighth_and_are_scored_as_what_they_stand_for() -> None:
    items, queries = many(10, N), many(11, 6)
    step = np.abs(items.values).max(axis=0) / 127
    rounded = items.with_values(np.rint(items.values / step) * step)
    signs, of_queries = (side.with_values(np.where(side.values > 0, 1.0, -1.0)) for side in (items, queries))
    found = scored(items, queries, "int8", "binary")
    np.testing.assert_allclose(found["int8", ""][1], maxsim(queries, rounded), atol=1e-4)
    np.testing.assert_allclose(found["binary", "items"][1], maxsim(queries, signs), atol=1e-4)
    np.testing.assert_allclose(found["binary", "items and queries"][1], maxsim(of_queries, signs), atol=1e-4)
    whole = found["exact", ""][0]
    assert whole == items.values.nbytes / N
    assert [found[name][0] / whole for name in list(found)[1:]] == [1 / 4, 1 / 32, 1 / 32]
    np.testing.assert_allclose(found["exact", ""][1], maxsim(queries, items), rtol=1e-5)


def test_pooled_items_are_compared_by_maxsim() -> None:
    items, queries = many(12, N, 6, 12), many(13, 6)
    for (name, setting), (size, scores) in scored(items, queries, "pooling", "colpali_engine pooling").items():
        if name != "exact":
            merged = pooled(items, token_trees(items, like_colpali_engine=name != "pooling"), int(setting[-1]))
            np.testing.assert_allclose(scores, maxsim(queries, merged), atol=1e-5)
            assert size == BYTES["float32"] * merged.values.size / N


@pytest.mark.parametrize("late", [True, False], ids=["multi-vectors", "single vectors"])
def test_an_index_finds_items_by_their_own_vectors(late: bool) -> None:
    items = many(14, 60, 8, 12) if late else Ragged.from_counts(unit(np.random.default_rng(0), 300), np.ones(300))
    queries = items.slice(0, 3)
    [_, (size, scores)] = scored(items, queries, "IVF_RQ", late=late).values()
    assert scores.argmax(axis=1).tolist() == [0, 1, 2]
    assert np.isfinite(scores).sum(axis=1).tolist() == [min(len(items), 100)] * 3
    assert size > 0


def test_methods_for_several_vectors_are_left_out_for_one() -> None:
    items = Ragged.from_counts(unit(np.random.default_rng(0), 5), np.ones(5))
    names = [method.name for method in methods_of(items, storage="float32", many=False)]
    assert {*names} == {"exact", "int8", "binary", "IVF_PQ", "IVF_HNSW_SQ", "IVF_RQ"}


def given(name: str, scores: NDArray[np.float32]) -> Method:
    return Method(name=name, open=lambda: nullcontext(Index(1.0, lambda some: scores[: len(some)])))


def test_an_exact_method_loses_nothing_a_blind_one_everything_and_losses_are_paired() -> None:
    queries = many(17, N)
    items = queries.with_values(queries.values + 0.6 * unit(np.random.default_rng(18), len(queries.values)))
    exact = maxsim(queries, items).astype(np.float32)
    reversed_ = np.where(np.arange(N)[:, None] < 4, -exact, exact)

    of_four = methods_of(items.slice(0, 4), storage="float32", many=False)
    methods = [
        given("exact", exact),
        given("twice", exact),
        given("blind", np.full_like(exact, -np.inf)),
        given("four reversed", reversed_),
        given("constant", np.zeros_like(exact)),
        next(each for each in of_four if each.name == "IVF_PQ"),
    ]
    found = list(measured(methods, queries, retrieval_task(captioned(N)), "R@1"))
    clusters, how = Clusters.of(np.arange(N)), Resampling(replicates=200)
    made = frontier("some", found, clusters, how, metric="R@1", n_all_queries=99)
    slices = {each.feature: each for each in made}
    details: dict[str, Any] = {name: each.detail for name, each in slices.items()}
    best = slices["exact"].interval.value
    assert best > 0.9
    assert details["twice"]["change"] == 0
    assert (slices["blind"].interval.value, details["blind"]["change"]) == (0, -best)
    assert slices["constant"].interval.value == pytest.approx(1 / N)  # ties in random order, not in the corpus' favour
    four = details["four reversed"]
    assert four["change"] == pytest.approx(-4 / N)
    assert four["change_low"] < four["change"] < four["change_high"] < 0.01  # four losses and no win: p is .125
    assert "at least 256 vectors" in str(slices["IVF_PQ"].interval.reason)
