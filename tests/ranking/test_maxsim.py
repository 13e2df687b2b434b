"""Late interaction against its definition, pair by pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from capim.store.types import Corpus
from capim.store.vectors import Ragged
from capim.tasks.protocols import Protocol
from capim.tasks.ranking import maxsim, maxsim_products
from capim.tasks.ranking.evaluate import evaluate, score_blocks
from capim.tasks.ranking.maxsim import choices_of, maxsim_part
from capim.tasks.ranking.maxsim_products import (
    gather,
    image_as_query_scores,
    maxsim_scores,
    rough_scores,
    scores_by_image,
    token_similarities,
)
from capim.tasks.ranking.protocols import build_tasks, select_protocols, with_orientations
from capim.tasks.ranking.ranker import Ranker
from capim.tasks.ranking.resources import ON_CPU, Resources, ignore
from capim.tasks.ranking.tasks import RetrievalTask
from tests.ranking.conftest import assert_same, small_corpus, tasks_of


class Items:
    """Multi-vectors of some items, handed out in windows like the store's."""

    def __init__(self, seed: int, n: int, dim: int = 8, longest: int = 20, window: int = 4) -> None:
        rng = np.random.default_rng(seed)
        self.vectors = []
        for _ in range(n):
            v = rng.standard_normal((rng.integers(1, longest + 1), dim))
            self.vectors.append((v / np.linalg.norm(v, axis=1, keepdims=True)).astype(np.float16))
        self.window = window

    def __call__(self, ords: NDArray[np.int32] | None = None) -> Iterator[Ragged]:
        wanted = np.arange(len(self.vectors)) if ords is None else ords
        for start in range(0, len(wanted), self.window):
            part = wanted[start : start + self.window]
            yield Ragged.of([self.vectors[ord_] for ord_ in part], ords=part)


def by_definition(captions: Items, images: Items) -> NDArray[np.float64]:
    table = np.empty((len(captions.vectors), len(images.vectors)))
    for i, caption in enumerate(captions.vectors):
        for j, image in enumerate(images.vectors):
            table[i, j] = (caption.astype(np.float64) @ image.astype(np.float64).T).max(axis=1).sum()
    return table


def test_scores_equal_the_sum_over_tokens_of_the_best_patch() -> None:
    corpus = small_corpus([1] * 30)
    images, captions = Items(0, 30), Items(1, 30)
    found = evaluate(corpus, select_protocols(corpus, ["t2i/all", "i2t/any"]), images=images, captions=captions)
    table = by_definition(captions, images)
    for id_, scores in (("t2i/all", table), ("i2t/any", table.T)):
        outcomes = found[id_]
        np.testing.assert_allclose(outcomes.best_score, np.diag(scores), rtol=1e-5)
        assert outcomes.rank_best.tolist() == [1 + (row > row[i]).sum() for i, row in enumerate(scores)]
        np.testing.assert_array_equal(outcomes.top_ords, np.argsort(-scores, axis=1, kind="stable"))


def test_negative_similarities_are_not_beaten_by_padding() -> None:
    corpus = small_corpus([1, 1])
    images, captions = Items(0, 2, longest=3), Items(1, 2, longest=3)
    images.vectors = [-np.abs(v) for v in images.vectors]
    captions.vectors = [np.abs(v) for v in captions.vectors]
    found = maxsim_part(images, captions, tasks_of(corpus, "t2i/all")).outcomes()
    assert (found["t2i/all"].best_score < 0).all()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda items: items.vectors[1].__setitem__(0, np.nan), "not finite, first in image 1"),
        (lambda items: items.vectors[4].__setitem__(0, -np.inf), "not finite, first in image 4"),
        (lambda items: items.vectors[5].__setitem__(0, 0), "zero, first in image 5"),
        (lambda items: items.vectors.__setitem__(2, items.vectors[2][:0]), "image 2 has no vectors"),
        (lambda items: items.vectors.pop(), "has image 5, but there are embeddings of 5"),
        (lambda items: items.vectors.clear(), "no image vectors"),
        (lambda items: setattr(items, "vectors", [v[:, :4] for v in items.vectors]), "4 dimensions, caption vectors 8"),
    ],
    ids=["NaN", "infinite", "zero", "item without vectors", "missing item", "none", "dimensions"],
)
def test_unusable_multi_vectors_are_refused_by_name(spoil: Callable[[Items], None], message: str) -> None:
    corpus = small_corpus([1] * 6)
    images, captions = Items(0, 6), Items(1, 6)
    spoil(images)
    with pytest.raises(ValueError, match=message):
        maxsim_part(images, captions, tasks_of(corpus))


@pytest.mark.parametrize("score", [maxsim_scores, image_as_query_scores])
@pytest.mark.parametrize("dim", [128, 1024])
@pytest.mark.parametrize("counts", [[32] * 40, [20, 33, 20, 700, 33, 20], [7] * 9, [1030, 1030]])
def test_scores_do_not_depend_on_the_images_that_are_scored_beside(
    counts: list[int], dim: int, score: Callable[..., NDArray[np.float32]]
) -> None:
    images, captions = Items(0, len(counts), dim, window=16), gather(Items(1, 50, dim)())
    images.vectors = [np.resize(v, (count, dim)) for v, count in zip(images.vectors, counts, strict=True)]
    together = score(images, captions, range(len(counts)))
    for item, vectors in enumerate(images.vectors):
        alone = Items(0, 1, dim)
        alone.vectors = [vectors]
        np.testing.assert_array_equal(together[:, [item]], score(alone, captions, range(1)))
    if score is maxsim_scores:
        first = images.vectors[0]
        [pair] = scores_by_image([first], captions, [np.array([7])], "cpu")
        assert pair == together[7, 0]
        assert np.add.reduceat(token_similarities(captions[7], first)[1], [0]) == pair


def test_the_three_orientations_follow_their_definitions_and_are_none_of_a_dense_encoder() -> None:
    corpus = small_corpus([1] * 12)
    images, captions = Items(0, 12, longest=70), Items(1, 12)
    found = evaluate(corpus, with_orientations(select_protocols(corpus, ["i2t/any"])), images=images, captions=captions)
    table = by_definition(captions, images)
    lengths = np.array([len(v) for v in captions.vectors])
    by_image = by_definition(images, captions)
    for id_, scores in (
        ("i2t/any", table.T),
        ("i2t/any@transposed-per-token", table.T / lengths),
        ("i2t/any@image-as-query", by_image),
    ):
        np.testing.assert_array_equal(found[id_].top_ords, np.argsort(-scores, axis=1, kind="stable"), err_msg=id_)
        np.testing.assert_allclose(found[id_].best_score, np.diag(scores), rtol=1e-5)
    vectors, protocols = np.eye(12, dtype=np.float32), with_orientations(select_protocols(corpus, ["i2t/any"]))
    with pytest.raises(ValueError, match="multi-vector"):
        evaluate(corpus, protocols, images=vectors, captions=vectors)


@pytest.mark.parametrize("id_", ["t2i/all", "t2i/first", "i2t/any", "i2t/any@image-as-query", "i2t/symmetric-first"])
def test_score_blocks_are_of_the_captions_that_a_protocol_uses_and_score_as_all_do(id_: str) -> None:
    corpus = small_corpus([3] * 6)
    images, captions = Items(0, 6, longest=40), Items(1, 18)
    [task] = build_tasks(corpus, [Protocol.of(id_)])
    assert isinstance(task, RetrievalTask)
    of_all = image_as_query_scores if task.protocol.orientation else maxsim_scores
    table = of_all(images, gather(captions()), range(6))
    asked = []

    def some(ords: NDArray[np.int32] | None = None) -> Iterator[Ragged]:
        asked.append(ords)
        return captions(ords)

    for block in score_blocks(images, some, task):
        scores = table if id_.startswith("t2i") else table.T
        np.testing.assert_array_equal(block.scores, scores[np.ix_(block.queries, block.items)])
        np.testing.assert_array_equal(block.relevant.sum(axis=1), task.n_relevant[block.rows])
    [ords] = asked
    assert ords is not None
    assert len(ords) == (6 if "first" in id_ else 18)


def test_small_sets_are_scored_exactly(winoground_form: Corpus) -> None:
    images, captions = Items(0, 6), Items(1, 6)
    tasks = tasks_of(winoground_form, "winoground")
    exact = choices_of(images, captions, tasks)
    table = by_definition(captions, images)
    expected = [[table[2 * n + c, 2 * n + i] for c in (0, 1) for i in (0, 1)] for n in range(3)]
    assert exact["winoground"].scores is not None
    np.testing.assert_allclose(exact["winoground"].scores, expected, rtol=1e-5)


# --- Screened in bfloat16, it has the outcomes of float32 products to the last digit.
TOP = 3


@pytest.fixture
def screened(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Screens whatever the size and the processor; holds the share of scores that differ from float32, by window."""
    shares: list[float] = []

    def watched(images: Any, captions: Any, part: range, **how: Any) -> NDArray[np.float32]:
        found = maxsim_products.screened_scores(images, captions, part, **how)
        exact = maxsim_scores(images, captions, part)
        shares.append(float((found != exact).mean()))
        return found

    monkeypatch.setattr(maxsim, "pays", lambda *_: True)
    monkeypatch.setattr(maxsim, "screened_scores", watched)
    return shares


def near_copies(seed: int, n: int, *, of: Items | None = None) -> Items:
    """Items of which every fourth is equal to another one and every fourth nearly so: ties, and close calls."""
    items = Items(seed, n, 16)
    for k in range(0, n - 4, 4):
        items.vectors[k] = items.vectors[k + 1].copy()
        items.vectors[k + 2] = np.nextafter(items.vectors[k + 1], np.float16(0))
    if of is not None:
        for k in range(0, n, 3):
            items.vectors[k] = of.vectors[k % len(of.vectors)][:1]
    return items


@pytest.mark.parametrize("memory_bytes", [1 << 30, 1 << 13], ids=["one window", "several windows"])
def test_outcomes_are_those_of_float32(
    screened: list[float], monkeypatch: pytest.MonkeyPatch, memory_bytes: int
) -> None:
    corpus = small_corpus([1, 2, 3, 5] * 20)
    images = near_copies(0, 80)
    captions = near_copies(1, 220, of=images)
    tasks = tasks_of(corpus)
    how: dict[str, Any] = {"resources": Resources(memory_bytes=memory_bytes), "top": TOP}
    found = maxsim_part(images, captions, tasks, **how).outcomes()
    assert screened
    assert max(screened) > 0.2  # else nothing was saved, and nothing is tested
    monkeypatch.setattr(maxsim, "pays", lambda *_: False)
    assert_same(found, maxsim_part(images, captions, tasks, **how).outcomes())


def test_parts_are_those_of_float32(screened: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = small_corpus([2] * 60)
    images, captions = near_copies(0, 60), near_copies(1, 120)
    tasks = tasks_of(corpus)

    def merged() -> Ranker:
        whole = Ranker(tasks, top=TOP)
        for part in (range(41, 60), range(41)):
            whole.merge(maxsim_part(images, captions, tasks, part, top=TOP).parts)
        return whole

    found = merged().outcomes()
    assert len(screened) == 2
    monkeypatch.setattr(maxsim, "pays", lambda *_: False)
    assert_same(found, merged().outcomes())


@pytest.mark.parametrize("longest", [1, 30, 700])
@pytest.mark.parametrize("negative", [False, True])
def test_no_score_is_further_off_than_its_bound(longest: int, negative: bool) -> None:
    images, captions = Items(0, 40, 128, longest=longest), Items(1, 50, 128, longest=40)
    if negative:
        images.vectors = [-np.abs(v) for v in images.vectors]
        captions.vectors = [np.abs(v) for v in captions.vectors]
    tokens = gather(captions())
    table, of_images = rough_scores(images, tokens, range(40), resources=ON_CPU, advance=ignore)
    rough = maxsim_products.RoughScores(
        table, np.zeros(table.shape, bool), maxsim_products._of_captions(tokens), of_images
    )
    off = np.abs(table - maxsim_scores(images, tokens, range(40)))
    bounds = rough.errors(np.arange(50), np.arange(40))
    assert (off <= bounds).all()
    assert 0 < off.max() < bounds.max() < 0.012 * 40  # a bound that is far too wide would save nothing
