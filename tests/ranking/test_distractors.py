"""Galleries that grow by images that are relevant to nothing, against scoring each gallery from the start."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from capim.tasks.ranking.cosine import score_dense
from capim.tasks.ranking.evaluate import Side, by_gallery_size
from capim.tasks.ranking.maxsim import score_maxsim
from capim.tasks.ranking.resources import Resources
from tests.ranking.conftest import small_corpus, task_of, unit
from tests.ranking.test_maxsim import Items


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
