"""Consistency with the reference language does not follow the order of the corpus where scores tie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from capim.tasks.ranking.evaluate import evaluate
from capim.tasks.ranking.languages import expected_measures
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import select_protocols
from tests.ranking.conftest import corpus_in, tied_orders

N, K = 60, 5
PARTS = (("en", "google"), ("fr", "google"))
SCORES = st.lists(st.integers(0, 2), min_size=2, max_size=5)


def plain_ndcg(order: list[int], of_reference: NDArray[np.float32], depth: int) -> float:
    gains = np.exp(100 * (of_reference.astype(float) - of_reference.max()))
    discounts = 1 / np.log2(np.arange(2, depth + 2))
    return float((gains[order[:depth]] * discounts).sum() / (np.sort(gains)[::-1][:depth] * discounts).sum())


def plain_rbo(one: list[int], other: list[int], depth: int, p: float = 0.9) -> float:
    """Equation 32 of Webber et al. for two lists of one length."""
    agreement = [len({*one[:d]} & {*other[:d]}) / d for d in range(1, depth + 1)]
    return agreement[-1] * p**depth + (1 - p) / p * sum(a * p**d for d, a in enumerate(agreement, start=1))


@settings(max_examples=60)
@given(SCORES, st.data(), st.integers(0, 2))
def test_both_measures_are_the_mean_over_every_order_of_both_lists(
    one: list[int], data: st.DataObject, shorter: int
) -> None:
    other = data.draw(st.lists(st.integers(0, 2), min_size=len(one), max_size=len(one)))
    own, of_reference = ((np.array(scores) / 100).astype(np.float32) for scores in (one, other))
    depth = max(1, len(one) - shorter)
    ndcg, rbo = expected_measures(own, of_reference, depth)
    lists = tied_orders(one), tied_orders(other)
    assert ndcg == pytest.approx(np.mean([plain_ndcg(o, of_reference, depth) for o in lists[0]]))
    assert rbo == pytest.approx(np.mean([plain_rbo(a, b, depth) for a in lists[0] for b in lists[1]]))


def tied_vectors(*, collapsed: bool) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Images, English and French captions as short vectors of small whole numbers, so that many scores tie."""
    rng = np.random.default_rng(2)
    images, english, french = (rng.integers(-1, 2, size=(n, 3)) for n in (N, N * K, N * K))
    french = np.ones_like(french) if collapsed else french
    one = (np.concatenate([v, np.full((len(v), 1), 2)], axis=1) for v in (images, english, french))  # none is zero
    return tuple((v / 8).astype(np.float32) for v in one)  # type: ignore[return-value]


def scored(order: list[int], *, collapsed: bool) -> dict[str, Outcomes]:
    images, english, french = tied_vectors(collapsed=collapsed)
    captions = np.concatenate([of.reshape(N, K, 4)[order] for of in (english, french)]).reshape(-1, 4)
    made = corpus_in(PARTS, order, K)
    protocols = select_protocols(made, ["t2i/fr/google", "i2t/fr/google"])
    return evaluate(made, protocols, images=images[order], captions=captions)


@pytest.mark.parametrize("collapsed", [False, True])
def test_the_order_of_the_corpus_changes_nothing(collapsed: bool) -> None:
    """With one vector for all captions, nDCG@20 of images at the start of the corpus was far above all others."""
    forward, shuffled = list(range(N)), np.random.default_rng(0).permutation(N).tolist()
    first, second = (scored(order, collapsed=collapsed) for order in (forward, shuffled))
    for name in ("t2i/fr/google", "i2t/fr/google"):
        for measure in ("reference_ndcg", "reference_rbo"):
            by_query = [
                dict(zip(found[name].query_ids.tolist(), getattr(found[name], measure).tolist(), strict=True))
                for found in (first, second)
            ]
            assert by_query[0] == pytest.approx(by_query[1]), (name, measure)


@pytest.mark.parametrize("collapsed", [False, True])
def test_lists_that_are_cut_off_within_a_tie_give_what_all_scores_give(collapsed: bool) -> None:
    images, english, french = tied_vectors(collapsed=collapsed)
    found = scored(list(range(N)), collapsed=collapsed)["i2t/fr/google"]
    assert found.top_ords is not None
    depth = found.top_ords.shape[1]
    assert depth < N * K
    expected = [expected_measures(french @ image, english @ image, depth) for image in images]
    assert found.reference_ndcg == pytest.approx(np.array([ndcg for ndcg, _ in expected]))
    assert found.reference_rbo == pytest.approx(np.array([rbo for _, rbo in expected]), abs=1e-6)


def test_the_reference_agrees_with_itself_whatever_its_ties() -> None:
    images, english, _ = tied_vectors(collapsed=False)
    made = corpus_in(PARTS, range(N), K)
    captions = np.concatenate([english, english])
    protocols = select_protocols(made, ["t2i/en/google", "i2t/en/google"])
    for outcomes in evaluate(made, protocols, images=images, captions=captions).values():
        assert outcomes.reference_ndcg == pytest.approx(np.ones(len(outcomes)))
        assert outcomes.reference_rbo == pytest.approx(np.ones(len(outcomes)))
