"""Parts of the gallery and windows of vectors give, bit for bit, the outcomes of everything at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from capim.tasks.ranking.cosine import dense_part, score_dense
from capim.tasks.ranking.evaluate import Side, by_gallery_size
from capim.tasks.ranking.maxsim import maxsim_part, score_maxsim
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_tasks, protocols_of, with_orientations
from capim.tasks.ranking.ranker import Ranker
from capim.tasks.ranking.resources import Resources
from capim.tasks.ranking.tasks import ScoringTask
from tests.metrics.test_judged import corpus_of as judged
from tests.ranking.conftest import assert_same, small_corpus, task_of, tasks_of, unit
from tests.ranking.test_maxsim import Items

Pair = tuple[NDArray[np.float32], NDArray[np.float32]]


def parts_of(n: int, n_parts: int) -> list[range]:
    """Parts of unequal size; some are empty where there are more parts than items."""
    cuts = np.sort(np.random.default_rng(n_parts).integers(0, n + 1, n_parts - 1)).tolist()
    return [range(a, b) for a, b in zip([0, *cuts], [*cuts, n], strict=True) if a < b]


def merged(tasks: Sequence[ScoringTask], parts: Sequence[Ranker]) -> dict[str, Outcomes]:
    """The outcomes of parts in any order."""
    whole = Ranker(tasks)
    for part in np.random.default_rng(0).permutation(len(parts)):
        whole.merge(parts[part].parts)
    return whole.outcomes()


@pytest.fixture(scope="module")
def vectors() -> Pair:
    """Images and captions near them; many are equal, so that lists and ranks have ties across parts."""
    rng = np.random.default_rng(5)
    images = rng.standard_normal((140, 48))
    images[rng.integers(140, size=40)] = images[0]
    captions = np.repeat(images, 5, axis=0) + 0.7 * rng.standard_normal((700, 48))
    captions[rng.integers(700, size=70)] = captions[7]
    return unit(images), unit(captions)


@pytest.mark.parametrize("n_parts", [1, 7, 64])
def test_parts_of_a_dense_gallery_merge_to_the_outcomes_of_the_whole(vectors: Pair, n_parts: int) -> None:
    corpus = small_corpus([5] * 140)
    tasks = tasks_of(corpus)
    whole = score_dense(*vectors, tasks)
    budgets = (1 << 30, 1 << 17) if n_parts == 7 else (1 << 16,)  # windows of everything, and of 64 vectors
    for memory_bytes in budgets:
        parts = [
            dense_part(*vectors, tasks, part, resources=Resources(memory_bytes=memory_bytes))
            for part in parts_of(140, n_parts)
        ]
        assert_same(merged(tasks, parts), whole)


@pytest.mark.parametrize("n_parts", [1, 7, 64])
def test_parts_of_a_late_interaction_gallery_merge_to_the_outcomes_of_the_whole(n_parts: int) -> None:
    corpus = small_corpus([2] * 30)
    images, captions = Items(0, 30), Items(1, 60)
    images.vectors[20], images.vectors[29] = images.vectors[3], images.vectors[3]
    tasks = build_tasks(corpus, with_orientations(protocols_of(corpus)))
    whole = score_maxsim(images, captions, tasks)
    for memory_bytes in (1 << 30, 1 << 12):
        parts = [
            maxsim_part(images, captions, tasks, part, resources=Resources(memory_bytes=memory_bytes))
            for part in parts_of(30, n_parts)
        ]
        assert_same(merged(tasks, parts), whole)


@pytest.mark.parametrize("n_parts", [7, 64])
def test_parts_of_judged_pages_keep_grades_and_unjudged_shares(vectors: Pair, n_parts: int) -> None:
    rng = np.random.default_rng(3)
    grades = [[(None, None, None, 0, 1, 2)[k] for k in rng.integers(6, size=140)] for _ in range(30)]
    corpus = judged([[3, *row[1:]] for row in grades])
    tasks = tasks_of(corpus)
    pages, queries = vectors[0], vectors[1][:30]
    resources = Resources(memory_bytes=1 << 16)
    parts = [dense_part(pages, queries, tasks, part, resources=resources) for part in parts_of(140, n_parts)]
    assert_same(merged(tasks, parts), score_dense(pages, queries, tasks))


def test_a_missing_part_is_an_error(vectors: Pair) -> None:
    corpus = small_corpus([5] * 140)
    tasks = tasks_of(corpus)
    with pytest.raises(ValueError, match="a part of the gallery is missing"):
        merged(tasks, [dense_part(*vectors, tasks, range(100)), dense_part(*vectors, tasks, range(101, 140))])


# --- galleries that grow by images that are relevant to nothing, against scoring each gallery from the start
def test_every_gallery_of_the_curve_equals_one_scored_from_the_start_and_no_rank_improves() -> None:
    rng = np.random.default_rng(0)
    own, others = (unit(rng.standard_normal((n, 16))) for n in (40, 330))
    others[9] = own[3]  # a distractor that ties with a relevant image
    captions = unit(np.repeat(own, 2, axis=0) + rng.standard_normal((80, 16)))
    task, order = task_of(small_corpus([2] * 40), "t2i/all"), np.random.default_rng(7).permutation(330)
    sides = [Side(others[:130], 130), Side(others[130:], 200)]
    resources = Resources(memory_bytes=1 << 14)
    curve = list(by_gallery_size(Side(own, 40), sides, captions, task, seed=7, resources=resources))
    assert [added for added, _ in curve] == [0, 40, 160, 330]
    for added, outcomes in curve:
        gallery = np.arange(40 + added, dtype=np.int32)
        images = np.concatenate([own, others[order[:added]]])
        expected = score_dense(images, captions, [replace(task, galleries=(gallery,))])["t2i/all"]
        for column in ("rank_best", "rank_worst", "relevant_rank_worst", "n_gallery", "top_ords", "top_scores"):
            width = getattr(expected, column).shape[-1] if column.startswith("top") else None
            np.testing.assert_array_equal(getattr(outcomes, column)[..., :width], getattr(expected, column))
    worst = np.array([outcomes.rank_worst for _, outcomes in curve])
    assert (np.diff(worst, axis=0) >= 0).all()
    assert worst[-1].sum() > worst[0].sum()


def test_the_curve_of_a_late_interaction_encoder_ends_with_all_images() -> None:
    own, one, other, captions = Items(0, 10), Items(2, 7), Items(3, 8), Items(1, 20)
    task, order = task_of(small_corpus([2] * 10), "t2i/all"), np.random.default_rng(1).permutation(15)
    curve = list(by_gallery_size(Side(own, 10), [Side(one, 7), Side(other, 8)], captions, task, seed=1))
    assert [added for added, _ in curve] == [0, 10, 15]
    joined = Items(0, 25)
    extra = [*one.vectors, *other.vectors]
    joined.vectors = [*own.vectors, *(extra[k] for k in order)]
    whole = replace(task, galleries=(np.arange(25, dtype=np.int32),))
    expected = score_maxsim(joined, captions, [whole])["t2i/all"]
    np.testing.assert_array_equal(curve[-1][1].top_ords, expected.top_ords)
    np.testing.assert_array_equal(curve[-1][1].rank_worst, expected.rank_worst)
