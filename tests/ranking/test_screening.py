"""Late interaction screened in bfloat16 has the outcomes of float32 products to the last digit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from capim.tasks.ranking import maxsim, maxsim_products
from capim.tasks.ranking.maxsim import maxsim_part, score_maxsim
from capim.tasks.ranking.maxsim_products import gather, maxsim_scores, rough_scores
from capim.tasks.ranking.ranker import Ranker
from capim.tasks.ranking.resources import ON_CPU, Resources, ignore
from tests.ranking.conftest import assert_same, small_corpus, tasks_of
from tests.ranking.test_maxsim import Items

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
    found = score_maxsim(images, captions, tasks, **how)
    assert screened
    assert max(screened) > 0.2  # else nothing was saved, and nothing is tested
    monkeypatch.setattr(maxsim, "pays", lambda *_: False)
    assert_same(found, score_maxsim(images, captions, tasks, **how))


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
