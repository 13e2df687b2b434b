"""Several languages against the definitions of the COCO-SM seed's ``eval.py``, written out plainly."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from capim.store.types import Corpus
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from capim.tasks.metrics import METRICS, metrics_of
from capim.tasks.ranking.best_lists import TieSpan
from capim.tasks.ranking.evaluate import evaluate, evaluate_merged, evaluate_part
from capim.tasks.ranking.languages import CaptionParts, rank_biased_overlap, shared_items
from capim.tasks.ranking.layout import layout_of
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import protocols_of, select_protocols

N, K, DIM = 60, 5, 16
PARTS = (("en", "google"), ("en", "bing"), ("de", "google"), ("de", "bing"), ("fr", "google"))


def corpus(parts: tuple[tuple[str, str], ...] = PARTS) -> Corpus:
    rows = [
        CaptionRow(
            id=f"{language}.{translator}.{i}.{k}", image_id=f"i{i}", text="x", language=language, translator=translator
        )
        for language, translator in parts
        for i in range(N)
        for k in range(K)
    ]
    return build_corpus("m", [ImageRow(id=f"i{i}") for i in range(N)], rows, source=None)


def vectors(n_parts: int = len(PARTS)) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    images = rng.standard_normal((N, DIM))
    english = np.repeat(images, K, axis=0) + 1.0 * rng.standard_normal((N * K, DIM))
    captions = np.concatenate([english + (part > 1) * rng.standard_normal((N * K, DIM)) for part in range(n_parts)])
    return tuple((v / np.linalg.norm(v, axis=1, keepdims=True)).astype(np.float32) for v in (images, captions))  # type: ignore[return-value]


def seed_ndcg(scores: torch.Tensor, english: torch.Tensor) -> float:
    """eval.py: softmax(100 s) of English gathered by the language's top 20, over English's own."""
    gains = torch.softmax(english * 100, dim=1)
    discount = torch.log2(torch.arange(2, 22).float())
    dcg = (gains.gather(1, scores.topk(20, dim=1).indices) / discount).sum(dim=1)
    ideal = (gains.gather(1, gains.topk(20, dim=1).indices) / discount).sum(dim=1)
    return float((dcg / ideal).mean())


def by_part(found: dict[str, Outcomes], name: str, metric: str) -> float:
    return METRICS[metric].value(found[name])


def test_recall_and_ndcg_equal_the_seeds_definition_in_both_directions() -> None:
    made, (images, captions) = corpus(), vectors()
    layout = layout_of(made)
    found = evaluate(made, select_protocols(made, ["t2i/*/*", "i2t/*/*"]), images=images, captions=captions)
    similarity = {part: torch.from_numpy(captions[ords] @ images.T) for part, ords in layout.parts.items()}
    own = torch.arange(N).repeat_interleave(K)
    for language, translator in PARTS:
        name = f"{language}/{translator}"
        s, english = similarity[language, translator], similarity["en", translator]
        for k in (1, 5, 10):
            t2i = (s.topk(k, dim=1).indices == own[:, None]).any(dim=1).float().mean()
            i2t = (own[s.T.topk(k, dim=1).indices] == torch.arange(N)[:, None]).any(dim=1).float().mean()
            assert by_part(found, f"t2i/{name}", f"R@{k}") == pytest.approx(float(t2i), abs=1e-6)
            assert by_part(found, f"i2t/{name}", f"R@{k}") == pytest.approx(float(i2t), abs=1e-6)
        assert by_part(found, f"t2i/{name}", "consistency_nDCG@20") == pytest.approx(seed_ndcg(s, english), abs=1e-6)
        assert by_part(found, f"i2t/{name}", "consistency_nDCG@20") == pytest.approx(
            seed_ndcg(s.T, english.T), abs=1e-6
        )


def test_english_agrees_with_itself_and_the_others_less() -> None:
    made, (images, captions) = corpus(), vectors()
    found = evaluate(made, select_protocols(made, ["t2i/*/*", "i2t/*/*"]), images=images, captions=captions)
    for direction in ("t2i", "i2t"):
        for metric in ("consistency_nDCG@20", "consistency_RBO"):
            assert by_part(found, f"{direction}/en/bing", metric) == pytest.approx(1, abs=1e-6)
            assert by_part(found, f"{direction}/de/bing", metric) < 0.95


def test_parts_read_one_at_a_time_give_what_the_whole_matrix_gives() -> None:
    made, (images, captions) = corpus(), vectors()
    layout = layout_of(made)
    parts = CaptionParts(lambda language, translator: captions[layout.parts[language, translator]])
    whole, apart = (evaluate(made, protocols_of(made), images=images, captions=c) for c in (captions, parts))
    assert list(whole) == list(apart)
    for id_, outcomes in whole.items():
        for name, values in vars(outcomes).items():
            np.testing.assert_array_equal(getattr(apart[id_], name), values, err_msg=f"{id_}: {name}")


@pytest.mark.parametrize("protocols", [[], ["t2i/de/google", "i2t/de/bing"]])
def test_parts_of_the_gallery_merge_to_the_outcomes_of_the_whole_consistency_included(protocols: list[str]) -> None:
    made, (images, captions) = corpus(), vectors()
    chosen = select_protocols(made, protocols)
    sides: dict[str, Any] = {"images": images, "captions": captions}
    whole = evaluate(made, chosen, **sides)
    cuts = [0, 5, 6, N]
    parts = [evaluate_part(made, chosen, range(*cut), **sides) for cut in pairwise(cuts)]
    merged = evaluate_merged(made, chosen, parts[::-1], **sides)
    assert list(whole) == list(merged)
    for id_, outcomes in whole.items():
        for name, values in vars(outcomes).items():
            np.testing.assert_array_equal(getattr(merged[id_], name), values, err_msg=f"{id_}: {name}")


def test_stored_lists_name_captions_of_the_part_by_their_place_in_the_corpus() -> None:
    made, (images, captions) = corpus(), vectors()
    ords = layout_of(made).parts["de", "bing"]
    found = evaluate(made, select_protocols(made, ["i2t/de/bing", "t2i/de/bing"]), images=images, captions=captions)
    lists = found["i2t/de/bing"].top_ords
    assert lists is not None and np.isin(lists, ords).all()
    np.testing.assert_array_equal(found["t2i/de/bing"].query_ords, ords)


def test_without_the_reference_language_there_is_no_consistency_and_a_warning_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts = PARTS[2:]
    made, (images, captions) = corpus(parts), vectors(len(parts))
    with caplog.at_level(logging.WARNING):
        found = evaluate(made, select_protocols(made, ["t2i/de/google"]), images=images, captions=captions)
    assert "the corpus has no en captions" in caplog.text
    names = [metric.name for metric in metrics_of(found["t2i/de/google"])]
    assert "consistency_nDCG@20" not in names
    with pytest.raises(ValueError, match="needs captions in the reference language"):
        METRICS["consistency_RBO"].per_query(found["t2i/de/google"])


def test_consistency_survives_arrow_and_has_no_chance_value() -> None:
    made, (images, captions) = corpus(), vectors()
    outcomes = evaluate(made, select_protocols(made, ["t2i/de/google"]), images=images, captions=captions)[
        "t2i/de/google"
    ]
    rows = outcomes.to_arrow(evaluation="e", encoder="m", encoder_fingerprint="f", corpus="c", corpus_fingerprint="g")
    again = Outcomes.from_arrow(rows, outcomes.protocol)
    np.testing.assert_array_equal(again.reference_ndcg, outcomes.reference_ndcg)
    np.testing.assert_array_equal(again.reference_rbo, outcomes.reference_rbo)
    assert METRICS["consistency_RBO"].chance(outcomes) is None
    assert not METRICS["consistency_RBO"].applies(replace(outcomes, reference_ndcg=None))


def overlap(one: NDArray[np.int32], other: NDArray[np.int32]) -> float:
    """Rank-biased overlap of two lists without ties."""
    shared = shared_items(one, other)
    own, theirs = (TieSpan(place, place + 1) for place in (shared.place, shared.other_place))
    return float(rank_biased_overlap(shared.row, own, theirs, 1, one.shape[1])[0])


@given(st.permutations(range(8)), st.permutations(range(8)))
def test_rank_biased_overlap_is_symmetric_and_one_only_for_equal_lists(one: list[int], other: list[int]) -> None:
    a, b = np.array([one], np.int32), np.array([other], np.int32)
    value = overlap(a, b)
    assert value == pytest.approx(overlap(b, a))
    assert (value == pytest.approx(1)) == (one == other)
    assert 0 <= value <= 1 + 1e-12
