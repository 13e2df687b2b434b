"""Re-ranking, fusion and raw blocks, each against doing it by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from capim.store.types import Corpus
from capim.store.vectors import Ragged
from capim.tasks.ranking.cosine import dense_score_rows, score_dense
from capim.tasks.ranking.evaluate import evaluate, score_blocks
from capim.tasks.ranking.maxsim_products import gather
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_tasks, protocols_of, select_protocols, with_orientations
from capim.tasks.ranking.resources import Resources
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.ranking.two_stage import (
    dense_pairs,
    maxsim_pairs,
    reciprocal_rank_fusion,
    scores_per_token,
    two_stage,
    weighted_sum,
)
from tests.ranking.test_maxsim import Items


def unit(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def two_encoders(n: int, per_image: int) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    rng = np.random.default_rng(n)
    made = []
    for noise in (2.0, 1.0):
        images = rng.standard_normal((n, 12))
        captions = np.repeat(images, per_image, axis=0) + noise * rng.standard_normal((n * per_image, 12))
        made.append((unit(images), unit(captions)))
    return made


def judged(corpus: Corpus, id_: str) -> RetrievalTask:
    [task] = build_tasks(corpus, select_protocols(corpus, [id_]))
    assert isinstance(task, RetrievalTask)
    return task


def same(one: Outcomes, other: Outcomes, columns: tuple[str, ...]) -> None:
    for column in columns:
        np.testing.assert_array_equal(getattr(one, column), getattr(other, column), err_msg=column)


RANKS = ("rank_best", "rank_worst", "n_tied_relevant", "relevant_rank_best", "relevant_rank_worst", "top_ords")


@pytest.mark.parametrize("id_", ["t2i/all", "i2t/any"])
def test_ordering_the_whole_gallery_again_is_the_second_encoder(
    corpus_of: Callable[[list[int]], Corpus], id_: str
) -> None:
    corpus = corpus_of([5] * 18)
    (images_a, captions_a), (images_b, captions_b) = two_encoders(18, 5)
    task = judged(corpus, id_)
    first, alone = (score_dense(i, c, [task])[id_] for i, c in ((images_a, captions_a), (images_b, captions_b)))
    pairs = dense_pairs(captions_b, images_b) if id_ == "t2i/all" else dense_pairs(images_b, captions_b)
    width = first.top_ords.shape[1]  # type: ignore[union-attr]
    [whole] = two_stage(first, task, pairs, [width])
    same(whole.outcomes, alone, RANKS)
    assert whole.n == width


def test_ordering_one_item_again_is_the_first_encoder(corpus_of: Callable[[list[int]], Corpus]) -> None:
    corpus = corpus_of([5] * 30)
    (images_a, captions_a), (images_b, captions_b) = two_encoders(30, 5)
    task = judged(corpus, "i2t/any")
    first = score_dense(images_a, captions_a, [task])["i2t/any"]
    [one] = two_stage(first, task, dense_pairs(images_b, captions_b), [1])
    same(one.outcomes, first, RANKS)


def test_ranks_of_every_depth_equal_sorting_by_hand(corpus_of: Callable[[list[int]], Corpus]) -> None:
    corpus = corpus_of([3] * 25)
    (images_a, captions_a), (images_b, captions_b) = two_encoders(25, 3)
    task = judged(corpus, "i2t/any")
    first = score_dense(images_a, captions_a, [task])["i2t/any"]
    second = images_b @ captions_b.T
    assert first.top_ords is not None
    for depth in two_stage(first, task, dense_pairs(images_b, captions_b), [2, 7, 40]):
        for q in range(25):
            head, tail = first.top_ords[q, : depth.n], first.top_ords[q, depth.n :]
            order = [*head[np.argsort(-second[q, head], kind="stable")], *tail]
            ranks = [place + 1 for place, item in enumerate(order) if item // 3 == q]
            own = slice(3 * q, 3 * q + 3)
            assert depth.outcomes.relevant_rank_best[own].tolist() == ranks
            assert depth.outcomes.top_ords[q].tolist() == order  # type: ignore[index]


def test_a_depth_beyond_the_lists_is_refused(corpus_of: Callable[[list[int]], Corpus]) -> None:
    corpus = corpus_of([1] * 20)
    [(images, captions), _] = two_encoders(20, 1)
    task = judged(corpus, "t2i/all")
    first = score_dense(images, captions, [task], top=10)["t2i/all"]
    with pytest.raises(ValueError, match="1 to 10"):
        two_stage(first, task, dense_pairs(captions, images), [5, 11])


def test_multi_vector_pairs_are_maxsim_scores() -> None:
    rng = np.random.default_rng(5)
    items = [[unit(rng.standard_normal((rng.integers(2, 20), 8))) for _ in range(9)] for _ in range(2)]

    def blocks(side: int, ords: NDArray[np.int32]) -> Iterator[Ragged]:
        return (Ragged.of(items[side]).take(some) for some in np.array_split(ords, 3))

    queries = np.array([0, 3, 3], np.int32)
    lists = np.array([[1, 8], [4, 0], [8, 2]], np.int32)
    found = maxsim_pairs(partial(blocks, 0), gather(blocks(1, np.arange(9, dtype=np.int32))))(queries, lists)
    expected = [
        [(items[1][q] @ items[0][i].T).max(axis=1).sum() for i in row] for q, row in zip(queries, lists, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_weighted_sum_ranks_by_the_sum_of_cosines_and_scores_per_token(
    corpus_of: Callable[[list[int]], Corpus],
) -> None:
    corpus = corpus_of([2] * 20)
    task = judged(corpus, "t2i/all")
    (images, captions), _ = two_encoders(20, 2)
    rng = np.random.default_rng(5)
    late = [Ragged.of([unit(rng.standard_normal((rng.integers(2, 9), 8))) for _ in range(n)]) for n in (20, 40)]
    members = [
        dense_score_rows(images, captions, task),
        scores_per_token(lambda: [late[0]], gather([late[1]]), n_images=20),
    ]
    found = weighted_sum(members, [0.3, 0.7], task, shape=(40, 20))
    per_token = [[(c @ i.T).max(axis=1).mean() for i in late[0]] for c in late[1]]
    table = 0.3 * captions @ images.T + 0.7 * np.array(per_token)
    np.testing.assert_array_equal(found.top_ords, np.argsort(-table, axis=1, kind="stable"))
    np.testing.assert_allclose(found.best_score, table[np.arange(40), np.arange(40) // 2], atol=1e-6)
    assert found.rank_best.tolist() == [1 + (row > row[q // 2]).sum() for q, row in enumerate(table)]


def test_weights_that_say_nothing_are_refused(corpus_of: Callable[[list[int]], Corpus]) -> None:
    task = judged(corpus_of([1, 1]), "t2i/all")
    for weights, message in (
        ([0.0], "not all 0"),
        ([-1.0], "not negative"),
        ([float("nan")], "finite"),
        ([1, 1], "one weight for each of 1 encoders, got 2"),
    ):
        with pytest.raises(ValueError, match=message):
            weighted_sum([iter(())], weights, task, shape=(2, 2))


def test_reciprocal_rank_fusion_equals_its_formula(corpus_of: Callable[[list[int]], Corpus]) -> None:
    corpus = corpus_of([2] * 30)
    task = judged(corpus, "t2i/all")
    both = [score_dense(i, c, [task])["t2i/all"] for i, c in two_encoders(30, 2)]
    fused = reciprocal_rank_fusion(both, task)
    for q in range(60):
        gains = np.zeros(30)
        for outcomes in both:
            assert outcomes.top_ords is not None
            gains[outcomes.top_ords[q]] += 1 / (60 + 1 + np.arange(30))
        own = gains[q // 2]
        assert fused.rank_best[q] == 1 + (gains > own + 1e-12).sum()
        assert fused.rank_worst[q] == (gains > own - 1e-12).sum()


def test_fusing_an_encoder_with_itself_changes_no_rank_within_its_lists(
    corpus_of: Callable[[list[int]], Corpus],
) -> None:
    corpus = corpus_of([1] * 40)
    task = judged(corpus, "t2i/all")
    [(images, captions), _] = two_encoders(40, 1)
    one = score_dense(images, captions, [task], top=10)["t2i/all"]
    fused = reciprocal_rank_fusion([one, one], task)
    listed = one.rank_worst <= 10
    np.testing.assert_array_equal(fused.rank_best[listed], one.rank_best[listed])
    assert (fused.rank_best[~listed] == 11).all()
    assert (fused.rank_worst[~listed] == 40).all()


@pytest.mark.parametrize("late", [False, True], ids=["single vectors", "multi-vectors"])
def test_blocks_hold_every_score_that_outcomes_came_from(corpus_of: Callable[[list[int]], Corpus], late: bool) -> None:
    corpus = corpus_of([5] * 12)
    images, captions = (Items(1, 12), Items(2, 60)) if late else two_encoders(12, 5)[0]
    protocols = with_orientations(protocols_of(corpus)) if late else protocols_of(corpus)
    found = evaluate(corpus, protocols, images=images, captions=captions)
    assert not late or {"i2t/any@transposed-per-token", "i2t/any@image-as-query"} <= found.keys()
    for task in build_tasks(corpus, protocols):
        assert isinstance(task, RetrievalTask)
        outcomes = found[task.protocol.id]
        seen = np.zeros(len(outcomes), dtype=int)
        for block in score_blocks(images, captions, task, resources=Resources(memory_bytes=1 << 14)):
            best = np.where(block.relevant, block.scores, -np.inf).max(axis=1)
            np.testing.assert_array_equal(best, outcomes.best_score[block.rows])
            np.testing.assert_array_equal(
                (block.scores > best[:, None]).sum(axis=1) + 1, outcomes.rank_best[block.rows]
            )
            seen[block.rows] += 1
        assert (seen == 1).all()


def test_outcomes_of_another_protocol_are_refused(corpus_of: Callable[[list[int]], Corpus]) -> None:
    corpus = corpus_of([1] * 6)
    [(images, captions), _] = two_encoders(6, 1)
    task = judged(corpus, "t2i/all")
    first = score_dense(images, captions, [task])["t2i/all"]
    other = replace(first, protocol=replace(first.protocol, id="t2i/first"))
    with pytest.raises(ValueError, match="expected outcomes of protocol 't2i/all'"):
        two_stage(other, task, dense_pairs(captions, images), [2])
