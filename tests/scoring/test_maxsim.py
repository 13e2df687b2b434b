"""Late interaction against its definition, pair by pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from store.types import Corpus
from tasks.scoring.evaluate import evaluate
from tasks.scoring.maxsim import score_maxsim
from tasks.scoring.protocols import judge_all, protocols_of, select


class Block(NamedTuple):
    ords: NDArray[np.int32]
    values: NDArray[np.float16]
    offsets: NDArray[np.int64]


class Items:
    """Multi-vectors of some items, handed out in windows like the store's."""

    def __init__(self, seed: int, n: int, dim: int = 8, longest: int = 20, window: int = 4) -> None:
        rng = np.random.default_rng(seed)
        self.vectors = []
        for _ in range(n):
            v = rng.standard_normal((rng.integers(1, longest + 1), dim))
            self.vectors.append((v / np.linalg.norm(v, axis=1, keepdims=True)).astype(np.float16))
        self.window = window

    def __call__(self) -> Iterator[Block]:
        for start in range(0, len(self.vectors), self.window):
            part = self.vectors[start : start + self.window]
            offsets = np.concatenate([[0], np.cumsum([len(v) for v in part])]).astype(np.int64)
            yield Block(np.arange(start, start + len(part), dtype=np.int32), np.concatenate(part), offsets)


def by_definition(captions: Items, images: Items) -> NDArray[np.float64]:
    table = np.empty((len(captions.vectors), len(images.vectors)))
    for i, caption in enumerate(captions.vectors):
        for j, image in enumerate(images.vectors):
            table[i, j] = (caption.astype(np.float64) @ image.astype(np.float64).T).max(axis=1).sum()
    return table


def test_scores_equal_the_sum_over_tokens_of_the_best_patch(corpus_of: Callable[[list[int]], Corpus]) -> None:
    corpus = corpus_of([1] * 30)
    images, captions = Items(0, 30), Items(1, 30)
    found = evaluate(corpus, select(corpus, ["t2i/all", "i2t/any"]), images=images, captions=captions)
    table = by_definition(captions, images)
    for id_, scores in (("t2i/all", table), ("i2t/any", table.T)):
        outcomes = found[id_]
        np.testing.assert_allclose(outcomes.best_score, np.diag(scores), rtol=1e-5)
        assert outcomes.rank_low.tolist() == [1 + (row > row[i]).sum() for i, row in enumerate(scores)]
        np.testing.assert_array_equal(outcomes.top_ords, np.argsort(-scores, axis=1, kind="stable"))


def test_negative_similarities_are_not_beaten_by_padding(corpus_of: Callable[[list[int]], Corpus]) -> None:
    corpus = corpus_of([1, 1])
    images, captions = Items(0, 2, longest=3), Items(1, 2, longest=3)
    images.vectors = [-np.abs(v) for v in images.vectors]
    captions.vectors = [np.abs(v) for v in captions.vectors]
    found = score_maxsim(images, captions, judge_all(corpus, select(corpus, ["t2i/all"])))
    assert (found["t2i/all"].best_score < 0).all()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda items: items.vectors[1].__setitem__(0, np.nan), "not finite, first in image 1"),
        (lambda items: items.vectors[5].__setitem__(0, 0), "zero, first in image 5"),
        (lambda items: items.vectors.__setitem__(2, items.vectors[2][:0]), "image 2 has no vectors"),
        (lambda items: items.vectors.pop(), "asks for image 5, but there are embeddings of 5"),
        (lambda items: items.vectors.clear(), "no image vectors"),
        (lambda items: setattr(items, "vectors", [v[:, :4] for v in items.vectors]), "4 dimensions, captions 8"),
    ],
    ids=["NaN", "zero", "item without vectors", "missing item", "none", "dimensions"],
)
def test_unusable_multi_vectors_are_refused_by_name(
    corpus_of: Callable[[list[int]], Corpus], spoil: Callable[[Items], None], message: str
) -> None:
    corpus = corpus_of([1] * 6)
    images, captions = Items(0, 6), Items(1, 6)
    spoil(images)
    with pytest.raises(ValueError, match=message):
        score_maxsim(images, captions, judge_all(corpus, protocols_of(corpus)))
