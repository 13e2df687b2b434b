"""Several languages against the definitions of the COCO-SM seed's ``eval.py``, written out plainly."""

from __future__ import annotations

import logging
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from capim.tasks.metrics import METRICS, metrics_of
from capim.tasks.ranking.evaluate import Scoring, evaluate
from capim.tasks.ranking.languages import expected_measures
from capim.tasks.ranking.layout import layout_of
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import protocols_of, select_protocols, with_orientations
from tests.ranking.conftest import assert_same, corpus_in, stored_and_read, tied_orders, unit
from tests.ranking.test_maxsim import Items, by_definition

N, K, DIM = 60, 5, 16
PARTS = (("en", "google"), ("en", "bing"), ("de", "google"), ("de", "bing"), ("fr", "google"))
MADE = corpus_in(PARTS, range(N), K)


def vectors(n_parts: int = len(PARTS)) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    images = rng.standard_normal((N, DIM))
    english = np.repeat(images, K, axis=0) + 1.0 * rng.standard_normal((N * K, DIM))
    captions = np.concatenate([english + (part > 1) * rng.standard_normal((N * K, DIM)) for part in range(n_parts)])
    return unit(images), unit(captions)


def seed_ndcg(scores: torch.Tensor, english: torch.Tensor) -> float:
    """eval.py: softmax(100 s) of English gathered by the language's top 20, over English's own."""
    gains = torch.softmax(english * 100, dim=1)
    discount = torch.log2(torch.arange(2, 22).float())
    dcg = (gains.gather(1, scores.topk(20, dim=1).indices) / discount).sum(dim=1)
    ideal = (gains.gather(1, gains.topk(20, dim=1).indices) / discount).sum(dim=1)
    return float((dcg / ideal).mean())


@pytest.fixture(scope="module")
def sides() -> dict[str, Any]:
    return dict(zip(("images", "captions"), vectors(), strict=True))


@pytest.fixture(scope="module")
def whole(sides: dict[str, Any]) -> dict[str, Outcomes]:
    return evaluate(MADE, protocols_of(MADE), **sides)


def test_the_shares_of_the_work_that_are_told_are_one_together(sides: dict[str, Any]) -> None:
    shares: list[float] = []
    Scoring.of(MADE, protocols_of(MADE), **sides).outcomes(shares.append)
    assert len(shares) > len(PARTS)
    assert sum(shares) == pytest.approx(1)


def test_recall_and_ndcg_equal_the_seeds_definition_in_both_directions(
    sides: dict[str, Any], whole: dict[str, Outcomes]
) -> None:
    parts = layout_of(MADE).parts.items()
    similarity = {part: torch.from_numpy(sides["captions"][ords] @ sides["images"].T) for part, ords in parts}
    own = torch.arange(N).repeat_interleave(K)
    for language, translator in PARTS:
        to_images, to_captions = (whole[f"{direction}/{language}/{translator}"] for direction in ("t2i", "i2t"))
        s, english = similarity[language, translator], similarity["en", translator]
        for k in (1, 5, 10):
            t2i = (s.topk(k, dim=1).indices == own[:, None]).any(dim=1).float().mean()
            i2t = (own[s.T.topk(k, dim=1).indices] == torch.arange(N)[:, None]).any(dim=1).float().mean()
            assert METRICS[f"R@{k}"].value(to_images) == pytest.approx(float(t2i), abs=1e-6)
            assert METRICS[f"R@{k}"].value(to_captions) == pytest.approx(float(i2t), abs=1e-6)
        ndcg = METRICS["consistency_nDCG@20"]
        assert ndcg.value(to_images) == pytest.approx(seed_ndcg(s, english), abs=1e-6)
        assert ndcg.value(to_captions) == pytest.approx(seed_ndcg(s.T, english.T), abs=1e-6)


def test_english_agrees_with_itself_and_the_others_less_and_the_store_keeps_that(whole: dict[str, Outcomes]) -> None:
    assert_same(stored_and_read(whole), whole)
    for direction, name in product(("t2i", "i2t"), ("consistency_nDCG@20", "consistency_RBO")):
        english, german = (whole[f"{direction}/{language}/bing"] for language in ("en", "de"))
        metric = METRICS[name]
        assert metric.value(english) == pytest.approx(1, abs=1e-6)
        assert metric.value(german) < 0.95
        assert metric.chance(german) is None


@pytest.mark.parametrize("protocols", [[], ["t2i/de/google", "i2t/de/bing"]])
def test_parts_of_the_gallery_merge_to_the_outcomes_of_the_whole_consistency_included(
    sides: dict[str, Any], protocols: list[str]
) -> None:
    chosen = select_protocols(MADE, protocols)
    scoring = Scoring.of(MADE, chosen, **sides)
    parts = [scoring.part(range(*cut)) for cut in pairwise([0, 5, 6, N])]
    merged, whole = scoring.merged(parts[::-1]), scoring.outcomes()
    assert list(merged) == list(whole)
    assert_same(merged, whole)


def test_stored_lists_name_captions_of_the_part_by_their_place_in_the_corpus(whole: dict[str, Outcomes]) -> None:
    ords = layout_of(MADE).parts["de", "bing"]
    lists = whole["i2t/de/bing"].top_ords
    assert lists is not None and np.isin(lists, ords).all()
    np.testing.assert_array_equal(whole["t2i/de/bing"].query_ords, ords)


def test_without_the_reference_language_there_is_no_consistency_and_a_warning_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts = PARTS[2:]
    made, (images, captions) = corpus_in(parts, range(N), K), vectors(len(parts))
    with caplog.at_level(logging.WARNING):
        found = evaluate(made, select_protocols(made, ["t2i/de/google"]), images=images, captions=captions)
    assert "the corpus has no en captions" in caplog.text
    names = [metric.name for metric in metrics_of(found["t2i/de/google"])]
    assert "consistency_nDCG@20" not in names
    with pytest.raises(ValueError, match="needs captions in the reference language"):
        METRICS["consistency_RBO"].per_query(found["t2i/de/google"])


@pytest.fixture(scope="module")
def late() -> dict[str, Any]:
    """Multi-vectors of 120 images and a caption of each: English, German by noise, and French, all captions alike."""
    images, captions, noise = Items(0, 120, longest=6), Items(1, 360, longest=6), np.random.default_rng(2)
    for at in range(120):
        english = captions.vectors[at]
        captions.vectors[120 + at] = unit(english + noise.standard_normal(english.shape) / 4).astype(np.float16)
        captions.vectors[240 + at] = captions.vectors[240]
    return {"images": images, "captions": captions}


LATE = corpus_in([("en", "human"), ("de", "human"), ("fr", "human")], range(120))


def test_late_interaction_agrees_with_english_by_scores_per_token_and_by_its_lists(late: dict[str, Any]) -> None:
    """Plain numpy: English scores divided by the caption's tokens; image to text by the mean number of tokens."""
    found = evaluate(LATE, select_protocols(LATE, ["t2i/*/human", "i2t/*/human"], vectors="multi"), **late)
    table, tokens = by_definition(late["captions"], late["images"]), [len(v) for v in late["captions"].vectors[:120]]
    t2i, i2t = table[:120] / np.array(tokens)[:, None], table[:120].T / np.mean(tokens)
    for direction, english, german in (("t2i", t2i, table[120:240]), ("i2t", i2t, table[120:240].T)):
        outcomes, order, best = found[f"{direction}/de/human"], np.argsort(-german), np.argsort(-english)
        assert outcomes.top_ords is not None and outcomes.top_ords.shape == (120, 100)  # some scores are in no list
        ndcg = [plain_ndcg(list(own), scores, 20) for own, scores in zip(order, english, strict=True)]
        rbo = [plain_rbo(list(one), list(other), 100) for one, other in zip(order, best, strict=True)]
        assert outcomes.reference_ndcg == pytest.approx(np.array(ndcg), abs=1e-4)
        assert outcomes.reference_rbo == pytest.approx(np.array(rbo), abs=1e-3)  # two scores that are one float32
        assert 0.2 < np.mean(ndcg) < 0.98
        assert METRICS["consistency_RBO"].value(found[f"{direction}/en/human"]) == 1.0
    alike = [expected_measures(np.zeros(120), scores, 100) for scores in i2t]
    measured = np.stack([found["i2t/fr/human"].reference_ndcg, found["i2t/fr/human"].reference_rbo], axis=1)  # type: ignore[list-item]
    assert measured == pytest.approx(np.array(alike), abs=1e-4)


def test_parts_of_the_gallery_and_orientations_of_late_interaction_in_several_languages(late: dict[str, Any]) -> None:
    protocols = with_orientations(select_protocols(LATE, ["i2t/any", "i2t/de/human", "t2i/fr/human"]))
    whole = evaluate(LATE, protocols, **late)
    scoring = Scoring.of(LATE, protocols, **late)
    parts = [scoring.part(range(*cut)) for cut in pairwise([0, 50, 120])]
    assert_same(scoring.merged(parts[::-1]), whole)
    by_image = by_definition(late["images"], late["captions"])[:, :120]
    nearest = np.argsort(-by_image, axis=1, kind="stable")[:, :100]
    np.testing.assert_array_equal(whole["i2t/any@image-as-query"].top_ords, nearest)


# --- Consistency with the reference language does not follow the order of the corpus where scores tie.
TWO_PARTS = (("en", "google"), ("fr", "google"))
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
    made = corpus_in(TWO_PARTS, order, K)
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
    made = corpus_in(TWO_PARTS, range(N), K)
    captions = np.concatenate([english, english])
    protocols = select_protocols(made, ["t2i/en/google", "i2t/en/google"])
    for outcomes in evaluate(made, protocols, images=images, captions=captions).values():
        assert outcomes.reference_ndcg == pytest.approx(np.ones(len(outcomes)))
        assert outcomes.reference_rbo == pytest.approx(np.ones(len(outcomes)))
