"""Small corpora, their tasks, and when outcomes are the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from capim.store.schema import OfStates
from capim.store.types import Corpus
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from capim.tasks.ranking.cosine import dense_choices, dense_part
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_tasks, select_protocols
from tests.results.thirty import assert_equal, quadruples


def small_corpus(captions_per_image: Sequence[int], **more: Any) -> Corpus:
    """Images ``i0 …`` with that many captions each, English, by people."""
    images = [ImageRow(id=f"i{i}") for i in range(len(captions_per_image))]
    captions = [
        CaptionRow(id=f"c{i}.{k}", image_id=f"i{i}", text=f"caption {k} of {i}")
        for i, count in enumerate(captions_per_image)
        for k in range(count)
    ]
    return build_corpus("small", images, captions, source=None, **more)


def corpus_in(parts: Sequence[tuple[str, str]], images: Sequence[int], per_image: int = 1) -> Corpus:
    """Captions of these images by every language and translator, one part after the other."""
    captions = [
        CaptionRow(f"{language}.{translator}.{i}.{k}", f"i{i}", "x", language=language, translator=translator)
        for language, translator in parts
        for i in images
        for k in range(per_image)
    ]
    return build_corpus("languages", [ImageRow(f"i{i}") for i in images], captions, source=None)


def unit(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def tasks_of(corpus: Corpus, *ids: str) -> list[Any]:
    """The tasks of these protocols, or of all that fit the corpus."""
    return build_tasks(corpus, select_protocols(corpus, ids, vectors="single"))


def task_of(corpus: Corpus, id_: str) -> Any:
    [task] = tasks_of(corpus, id_)
    return task


def score_dense(images: Any, captions: Any, tasks: Sequence[Any], **how: Any) -> dict[str, Outcomes]:
    """The outcomes of every task, by protocol."""
    return dense_part(images, captions, tasks, **how).outcomes() | dense_choices(images, captions, tasks)


def assert_same(found: Mapping[str, Outcomes], expected: Mapping[str, Outcomes]) -> None:
    """Every column of the outcomes is the same, bit for bit, and of the same type."""
    assert found.keys() == expected.keys()
    for id_, outcomes in expected.items():
        assert_equal(found[id_], outcomes)


def stored_and_read(found: Mapping[str, Outcomes]) -> dict[str, Outcomes]:
    """Outcomes as rows of the store, and back."""
    of = OfStates(encoder="x", encoder_fingerprint="x", corpus="x", corpus_fingerprint="x")
    return {id_: Outcomes.from_arrow(each.to_arrow("x", of), each.protocol) for id_, each in found.items()}


def tied_orders(scores: Sequence[float]) -> list[list[int]]:
    """Every order of the items by descending score."""
    groups = [[k for k, s in enumerate(scores) if s == level] for level in sorted(set(scores), reverse=True)]
    return [[item for part in parts for item in part] for parts in product(*map(permutations, groups))]


@pytest.fixture
def winoground_form() -> Corpus:
    """Three examples: two images and two captions each."""
    return quadruples(dict.fromkeys("abc", ()))
