"""Dense scoring against an oracle that compares one query at a time, and the properties that ranks must have."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from capim.tasks.metrics import METRICS
from capim.tasks.ranking import cosine
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.resources import Resources
from capim.tasks.ranking.tasks import RetrievalTask
from tests.ranking.conftest import assert_same, score_dense, small_corpus, task_of, tasks_of, unit

# vectors whose scores are exact in float32, so that an oracle may compute them in any order
MM = torch.mm
EXACT = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0.5, 0.5, 0.5, 0.5], [0.5, -0.5, 0.5, 0.5], [0, 0, -1, 0]], np.float32)


def exact_vectors(seed: int, n: int) -> NDArray[np.float32]:
    return EXACT[np.random.default_rng(seed).integers(len(EXACT), size=n)]


def check_against_oracle(outcomes: Outcomes, task: RetrievalTask, scores: NDArray[np.float32]) -> None:
    """Compare every column with counting by hand; ``scores`` has queries in rows, both by ord."""
    for q, query in enumerate(task.queries):
        gallery = task.galleries[task.gallery_of[q]]
        relevant = task.relevant[task.offsets[q] : task.offsets[q + 1]]
        row = scores[query]
        best = row[relevant].max()
        irrelevant = np.setdiff1d(gallery, relevant)
        assert outcomes.best_score[q] == best
        assert outcomes.rank_best[q] == 1 + (row[gallery] > best).sum()
        assert outcomes.rank_worst[q] - outcomes.rank_best[q] == (row[irrelevant] == best).sum()
        assert outcomes.n_tied_relevant[q] == (row[relevant] == best).sum()
        order = gallery[np.lexsort((gallery, -row[gallery]))].tolist()
        assert outcomes.top_ords is not None
        width = outcomes.top_ords.shape[1]
        assert outcomes.top_ords[q].tolist() == [*order, *[-1] * width][:width]
        own = slice(outcomes.offsets[q], outcomes.offsets[q + 1])
        of_query = np.isin(gallery, relevant)
        for ranks, won in ((outcomes.relevant_rank_best, True), (outcomes.relevant_rank_worst, False)):
            one_order = np.lexsort((of_query != won, -row[gallery]))
            assert ranks[own].tolist() == (1 + np.flatnonzero(of_query[one_order])).tolist()


@pytest.mark.parametrize("memory_bytes", [1 << 30, 1 << 12], ids=["one matrix", "strips"])
@pytest.mark.parametrize("top", [2, 100])  # of 2, most galleries are answered from the best of the whole corpus
@pytest.mark.parametrize("counts", [[5] * 40, [6] + [5] * 39, [6, 5, 5, 7], [1] * 33, [2, 1, 3]], ids=str)
def test_ranks_ties_and_lists_equal_counting_by_hand(counts: list[int], top: int, memory_bytes: int) -> None:
    corpus = small_corpus(counts)
    images, captions = exact_vectors(1, len(counts)), exact_vectors(2, sum(counts))
    tasks = tasks_of(corpus)
    found = score_dense(images, captions, tasks, resources=Resources(memory_bytes=memory_bytes), top=top)
    scores = captions @ images.T
    for task in tasks:
        table = scores if task.protocol.direction == "t2i" else scores.T
        check_against_oracle(found[task.protocol.id], task, table)


@pytest.mark.parametrize("top", [1, 3, 10])
def test_galleries_whose_best_are_not_among_the_best_of_all_are_looked_at_alone(top: int) -> None:
    """Captions 0 score highest everywhere, so lists over all captions hold hardly any of the others."""
    corpus = small_corpus([5] * 130)
    rng = np.random.default_rng(1)
    images, captions = (rng.integers(-3, 4, size=(n, 6)).astype(np.float32) for n in (130, 650))
    images[:, 0], captions[:, 0] = 1, np.where(np.arange(650) % 5 == 0, 64, 0)
    tasks = tasks_of(corpus, "i2t/any", "i2t/symmetric-mean", "i2t/symmetric-first")
    found = score_dense(images, captions, tasks, top=top)
    for task in tasks:
        check_against_oracle(found[task.protocol.id], task, images @ captions.T)


def test_a_constant_scorer_gets_what_the_table_calls_chance() -> None:
    corpus = small_corpus([5] * 50)
    same = np.full((250, 8), 8**-0.5, dtype=np.float32)
    varied = np.random.default_rng(0).standard_normal((250, 8)).astype(np.float32)
    tasks = tasks_of(corpus)
    constant, other = (score_dense(v[:50], v, tasks) for v in (same, varied))
    for k in (1, 5, 10):
        assert (METRICS[f"R@{k}"].per_query(constant["t2i/all"]) == k / 50).all()
    for id_ in constant:
        for metric in METRICS.values():
            if metric.applies(constant[id_]) and metric.guess is None:
                assert metric.value(constant[id_]) == pytest.approx(metric.chance(other[id_]), abs=1e-12)
    # by definition the chance of the median rank is that of random orders, where several items are relevant
    median = METRICS["median_rank"]
    assert median.value(constant["t2i/all"]) == median.chance(other["t2i/all"]) == 25.5
    assert median.value(constant["i2t/any"]) == pytest.approx(251 / 6)
    assert median.chance(other["i2t/any"]) == 33


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 60), dim=st.sampled_from([3, 17, 64]), exact=st.booleans())
def test_permuting_the_gallery_changes_no_rank(seed: int, n: int, dim: int, exact: bool) -> None:
    rng = np.random.default_rng(seed)
    images = exact_vectors(seed, n) if exact else rng.standard_normal((n, dim)).astype(np.float32)
    images[rng.integers(n)] = images[0]
    captions = exact_vectors(seed + 1, n) if exact else rng.standard_normal((n, dim)).astype(np.float32)
    order = rng.permutation(n)

    task = task_of(small_corpus([1] * n), "t2i/all")
    moved = replace(task, relevant=np.argsort(order).astype(np.int32))
    before, after = (
        score_dense(*sides)["t2i/all"] for sides in ((images, captions, [task]), (images[order], captions, [moved]))
    )
    for column in ("rank_best", "rank_worst", "n_tied_relevant", "best_score"):
        np.testing.assert_array_equal(getattr(before, column), getattr(after, column))


@pytest.mark.parametrize(
    ("n", "dim"), [*itertools.product([2, 3, 7, 15, 16, 17, 100, 1001], [3, 64, 511, 1024]), (8195, 511), (8300, 64)]
)
def test_identical_captions_of_two_images_tie_exactly_wherever_they_stand(n: int, dim: int) -> None:
    """An English caption written for two images: MKL alone rounds some positions differently."""
    rng = np.random.default_rng(n * dim)
    captions = rng.standard_normal((n, dim)).astype(np.float32)
    captions /= np.linalg.norm(captions, axis=1, keepdims=True)
    captions[-1] = captions[0]
    tasks = tasks_of(small_corpus([1] * n), "i2t/any", "t2i/all")
    for memory_bytes in (1 << 30, 1 << 10) if n < 8192 else (1 << 30,):
        found = score_dense(captions[::-1].copy(), captions, tasks, resources=Resources(memory_bytes=memory_bytes))
        for outcomes in found.values():  # galleries of more than 8,192 items are tiles, with the two in different ones
            assert outcomes.rank_worst[0] == outcomes.rank_best[0] + 1
            assert outcomes.rank_worst[-1] == outcomes.rank_best[-1] + 1


@pytest.mark.parametrize("protocols", [["t2i/all"], ["i2t/any"], ["t2i/all", "i2t/any"]], ids="+".join)
@pytest.mark.parametrize("dim", [64, 1024])
def test_scores_are_the_same_on_a_processor_whose_sums_depend_on_shape_and_threads(
    protocols: list[str], dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All libraries do: the order of a sum follows the shape of the product, and the threads that share it."""

    def product(a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
        MM(a, b, out=out)
        return out.mul_(1 + hash((a.shape[0], b.shape[1], torch.get_num_threads())) % 7 * 2.0**-20)

    monkeypatch.setattr(torch, "mm", product)
    monkeypatch.setattr(cosine, "_PRODUCT", (48, 96))
    captions = unit(np.random.default_rng(dim).standard_normal((700, dim)))
    images = captions[::5].copy()
    captions[-1], images[-1] = captions[0], images[0]
    tasks = tasks_of(small_corpus([5] * 140), *protocols)
    whole = score_dense(images, captions, tasks)
    for outcomes in whole.values():
        assert outcomes.rank_worst[0] == outcomes.rank_best[0] + 1
    for memory_bytes in (1 << 10, 1 << 19, 1 << 21):
        assert_same(score_dense(images, captions, tasks, resources=Resources(memory_bytes=memory_bytes)), whole)
    monkeypatch.setattr(cosine, "_TILE", 96)  # several blocks of one window
    assert_same(score_dense(images, captions, tasks), whole)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda v: np.insert(v[1:], 1, np.nan, axis=0), "not finite, first at ord 1"),
        (lambda v: np.insert(v[1:], 2, np.inf, axis=0), "not finite, first at ord 2"),
        (lambda v: np.insert(v[1:], 1, 0, axis=0), "zero, first at ord 1"),
        (lambda v: v[:, :3], "3 dimensions, caption vectors 4"),
        (lambda v: v[:-1], "needs image 2, but there are embeddings of 2"),
        (lambda v: v[:0], "no image vectors"),
        (lambda v: v.astype(np.float64), "must be float32"),
    ],
    ids=["NaN", "infinite", "zero", "dimensions", "missing", "none", "float64"],
)
def test_unusable_embeddings_are_refused_by_name(
    spoil: Callable[[NDArray[np.float32]], NDArray[np.float32]], message: str
) -> None:
    corpus = small_corpus([2, 2, 2])
    with pytest.raises(ValueError, match=message):
        score_dense(spoil(exact_vectors(0, 3)), exact_vectors(1, 6), tasks_of(corpus))


def test_an_empty_gallery_is_refused() -> None:
    task = task_of(small_corpus([1, 1]), "t2i/all")
    with pytest.raises(ValueError, match="gallery is empty"):
        replace(task, galleries=(np.empty(0, np.int32),))
