"""Re-ranking, fusion and raw blocks, each against doing it by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from capim.store.schema import JUDGED
from capim.tasks.corpora.build import RelevanceRow
from capim.tasks.metrics.retrieval import NDCG_10
from capim.tasks.ranking.cosine import dense_score_rows
from capim.tasks.ranking.evaluate import evaluate, score_blocks
from capim.tasks.ranking.maxsim_products import gather
from capim.tasks.ranking.protocols import build_tasks, protocols_of, with_orientations
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
from tests.ranking.conftest import score_dense, small_corpus, task_of, unit
from tests.ranking.test_maxsim import Items, by_definition


def two_encoders(n: int, per_image: int) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    rng = np.random.default_rng(n)
    made = []
    for noise in (2.0, 1.0):
        images = rng.standard_normal((n, 12))
        captions = np.repeat(images, per_image, axis=0) + noise * rng.standard_normal((n * per_image, 12))
        made.append((unit(images), unit(captions)))
    return made


def test_ranks_of_every_depth_equal_sorting_by_hand() -> None:
    corpus = small_corpus([3] * 25)
    (images_a, captions_a), (images_b, captions_b) = two_encoders(25, 3)
    task = task_of(corpus, "i2t/any")
    first = score_dense(images_a, captions_a, [task])["i2t/any"]
    second = images_b @ captions_b.T
    assert first.top_ords is not None
    for depth in two_stage(first, task, dense_pairs(images_b, captions_b), [1, 2, 7, 40]):
        for q in range(25):
            head, tail = first.top_ords[q, : depth.n], first.top_ords[q, depth.n :]
            order = [*head[np.argsort(-second[q, head], kind="stable")], *tail]
            ranks = [place + 1 for place, item in enumerate(order) if item // 3 == q]
            own = slice(3 * q, 3 * q + 3)
            assert depth.outcomes.relevant_rank_best[own].tolist() == ranks
            assert depth.outcomes.top_ords[q].tolist() == order  # type: ignore[index]


def test_multi_vector_pairs_are_maxsim_scores() -> None:
    images, captions = Items(0, 9), Items(1, 9)
    queries = np.array([0, 3, 3], np.int32)
    lists = np.array([[1, 8], [4, 0], [8, 2]], np.int32)
    found = maxsim_pairs(images, gather(captions()))(queries, lists)
    np.testing.assert_allclose(found, by_definition(captions, images)[queries[:, None], lists], rtol=1e-5)


def test_a_weighted_sum_ranks_by_the_sum_of_cosines_and_scores_per_token() -> None:
    corpus = small_corpus([2] * 20)
    task = task_of(corpus, "t2i/all")
    (images, captions), _ = two_encoders(20, 2)
    late = Items(0, 20), Items(1, 40)
    of_late = scores_per_token(late[0], gather(late[1]()), n_images=20)
    found = weighted_sum([dense_score_rows(images, captions, task), of_late], [0.3, 0.7], task, shape=(40, 20))
    lengths = np.array([len(tokens) for tokens in late[1].vectors])
    table = 0.3 * captions @ images.T + 0.7 * by_definition(late[1], late[0]) / lengths[:, None]
    np.testing.assert_array_equal(found.top_ords, np.argsort(-table, axis=1, kind="stable"))
    np.testing.assert_allclose(found.best_score, table[np.arange(40), np.arange(40) // 2], atol=1e-6)
    assert found.rank_best.tolist() == [1 + (row > row[q // 2]).sum() for q, row in enumerate(table)]


def test_reciprocal_rank_fusion_equals_its_formula() -> None:
    corpus = small_corpus([2] * 30)
    task = task_of(corpus, "t2i/all")
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


def test_fusing_an_encoder_with_itself_changes_no_rank_within_its_lists() -> None:
    corpus = small_corpus([1] * 40)
    task = task_of(corpus, "t2i/all")
    [(images, captions), _] = two_encoders(40, 1)
    one = score_dense(images, captions, [task], top=10)["t2i/all"]
    fused = reciprocal_rank_fusion([one, one], task)
    listed = one.rank_worst <= 10
    np.testing.assert_array_equal(fused.rank_best[listed], one.rank_best[listed])
    assert (fused.rank_best[~listed] == 11).all()
    assert (fused.rank_worst[~listed] == 40).all()


def test_what_a_fused_list_says_does_not_depend_on_the_order_of_its_encoders() -> None:
    judged = [("c0.0", "i0", 2), ("c0.0", "i3", 1), ("c0.0", "i5", 0), ("c2.0", "i2", 1), ("c2.0", "i7", 0)]
    rows = [RelevanceRow(JUDGED, "t2i", query, item, grade) for query, item, grade in judged]
    task = task_of(small_corpus([1] * 20, relevance=rows), "t2i/judged")
    vectors = two_encoders(20, 1)
    one, other = (score_dense(*each, [task], top=8)["t2i/judged"] for each in vectors)
    known = replace(other, n_ranked=np.array([1, 0], np.int32))
    fused, turned = reciprocal_rank_fusion([one, known], task), reciprocal_rank_fusion([known, one], task)
    assert fused.relevant_grades is not None
    for name in ("n_ranked", "unjudged", "rank_best", "relevant_grades", "relevant_scores"):
        np.testing.assert_array_equal(getattr(fused, name), getattr(turned, name), err_msg=name)
    assert fused.top_ords is not None
    assert fused.n_ranked is not None
    for row, query in enumerate(("c0.0", "c2.0")):
        items = [f"i{item}" for item in fused.top_ords[row] if item >= 0]
        seen = {item for asked, item, _ in judged if asked == query}
        assert fused.unjudged is not None
        assert fused.unjudged[row] == pytest.approx(sum(item not in seen for item in items[:10]) / len(items[:10]))
        lists = {item for each in (one, other) if each.top_ords is not None for item in each.top_ords[row].tolist()}
        right = {int(item[1:]) for asked, item, grade in judged if asked == query and grade}
        assert fused.n_ranked[row] == len(right & lists)
    whole = [score_dense(*each, [task])["t2i/judged"] for each in vectors]
    np.testing.assert_allclose(
        NDCG_10.per_query(reciprocal_rank_fusion([whole[0]] * 2, task)), NDCG_10.per_query(whole[0])
    )
    assert reciprocal_rank_fusion(whole, task).n_ranked is None


@pytest.mark.parametrize("late", [False, True], ids=["single vectors", "multi-vectors"])
def test_blocks_hold_every_score_that_outcomes_came_from(late: bool) -> None:
    corpus = small_corpus([5] * 12)
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
            [gallery] = {*task.gallery_of[block.rows].tolist()}
            assert block.items.tolist() == task.galleries[gallery].tolist(), task.protocol.id
            above = (block.scores > best[:, None]).sum(axis=1)
            np.testing.assert_array_equal(above + 1, outcomes.rank_best[block.rows])
            seen[block.rows] += 1
        assert (seen == 1).all()
