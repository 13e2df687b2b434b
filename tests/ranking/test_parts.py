"""Parts of the gallery and windows of vectors give, bit for bit, the outcomes of everything at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from capim.tasks.ranking.cosine import dense_part
from capim.tasks.ranking.maxsim import maxsim_part
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_tasks, protocols_of, with_orientations
from capim.tasks.ranking.ranker import Ranker
from capim.tasks.ranking.resources import Resources
from capim.tasks.ranking.tasks import ScoringTask
from tests.ranking.conftest import assert_same, small_corpus, tasks_of, unit
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
    whole = dense_part(*vectors, tasks).outcomes()
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
    whole = maxsim_part(images, captions, tasks).outcomes()
    for memory_bytes in (1 << 30, 1 << 12):
        parts = [
            maxsim_part(images, captions, tasks, part, resources=Resources(memory_bytes=memory_bytes))
            for part in parts_of(30, n_parts)
        ]
        assert_same(merged(tasks, parts), whole)


def test_a_missing_part_is_an_error(vectors: Pair) -> None:
    corpus = small_corpus([5] * 140)
    tasks = tasks_of(corpus)
    with pytest.raises(ValueError, match="a part of the gallery is missing"):
        merged(tasks, [dense_part(*vectors, tasks, range(100)), dense_part(*vectors, tasks, range(101, 140))])
