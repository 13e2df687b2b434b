"""Small corpora and an oracle that ranks by sorting, one query at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from capim.store.types import Corpus
from capim.tasks.corpora.build import CaptionRow, ImageRow, QuadrupleRow, build_corpus


def small_corpus(captions_per_image: list[int], name: str = "small") -> Corpus:
    """Images ``i0 …`` with that many captions each, English, by people."""
    images = [ImageRow(id=f"i{i}") for i in range(len(captions_per_image))]
    captions = [
        CaptionRow(id=f"c{i}.{k}", image_id=f"i{i}", text=f"caption {k} of {i}")
        for i, count in enumerate(captions_per_image)
        for k in range(count)
    ]
    return build_corpus(name, images, captions, source=None)


def unit(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def corpus_of() -> Callable[..., Corpus]:
    return small_corpus


@pytest.fixture
def unit_of() -> Callable[[NDArray[np.floating]], NDArray[np.float32]]:
    return unit


@pytest.fixture
def winoground_form() -> Corpus:
    """Three examples: two images and two captions each."""
    images = [ImageRow(id=f"i{n}.{k}") for n in range(3) for k in range(2)]
    captions = [CaptionRow(id=f"c{n}.{k}", image_id=f"i{n}.{k}", text="words") for n in range(3) for k in range(2)]
    quadruples = [QuadrupleRow(f"q{n}", f"i{n}.0", f"i{n}.1", f"c{n}.0", f"c{n}.1") for n in range(3)]
    return build_corpus("winoground-form", images, captions, source=None, quadruples=quadruples)
