"""Small corpora: of captioned images alone, and of thirty images under every kind of protocol, with scores that tie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from capim.store.types import Corpus
from capim.tasks.analyses.analysis import AnalysisInput, Slice
from capim.tasks.analyses.table import applying, slices_of
from capim.tasks.corpora.build import CaptionRow, ImageRow, PairRow, QuadrupleRow, build_corpus
from capim.tasks.ranking.evaluate import evaluate
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_task, select_protocols
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.statistics.draws import Resampling

N_IMAGES = 30


def captioned(n_images: int, per_image: int = 1, **parts: Any) -> Corpus:
    """Images ``i0``, ``i1`` … with captions ``c0-0``, ``c0-1`` … of different words."""
    captions = [CaptionRow(f"c{i}-{k}", f"i{i}", f"{k} of {i}") for i in range(n_images) for k in range(per_image)]
    return build_corpus("captioned", [ImageRow(f"i{i}") for i in range(n_images)], captions, source=None, **parts)


def quadruples(tags_of: Mapping[str, Sequence[str]]) -> Corpus:
    """An example for each name, with these tags."""
    sides = [f"{k}/{side}" for k in tags_of for side in range(2)]
    return build_corpus(
        "winoground",
        [ImageRow(each) for each in sides],
        [CaptionRow(each, each, "x") for each in sides],
        source=None,
        quadruples=[QuadrupleRow(k, f"{k}/0", f"{k}/1", f"{k}/0", f"{k}/1", tuple(of)) for k, of in tags_of.items()],
    )


def retrieval_task(corpus: Corpus, protocol: str = "t2i/all") -> RetrievalTask:
    """The task of a retrieval protocol."""
    task = build_task(corpus, *select_protocols(corpus, [protocol]))
    assert isinstance(task, RetrievalTask)
    return task


def ranked(corpus: Corpus, images: np.ndarray, captions: np.ndarray, protocol: str = "t2i/all") -> Outcomes:
    """The outcomes of vectors under one protocol."""
    chosen, vectors = select_protocols(corpus, [protocol]), [each.astype(np.float32) for each in (images, captions)]
    return evaluate(corpus, chosen, images=vectors[0], captions=vectors[1])[protocol]


def analysed(corpus: Corpus, outcomes: dict[str, Outcomes], replicates: int = 100, **more: Any) -> AnalysisInput:
    """The outcomes of encoders under one protocol as analyses get them."""
    how = Resampling(replicates=replicates)
    [protocol] = {each.protocol for each in outcomes.values()}
    return AnalysisInput(corpus=corpus, protocol=protocol, outcomes=outcomes, resampling=how, **more)


def diagnose(data: AnalysisInput, names: Sequence[str] = ()) -> Iterator[Slice]:
    """The slices by all analyses of these names, or by those that run unnamed."""
    for analysis in applying(data.protocol, names):
        yield from slices_of(analysis, data)


def thirty_images() -> Corpus:
    """Thirty images with two captions each; ten hard negatives; five quadruples with tags."""
    captions = [CaptionRow(f"c{i}-{k}", f"i{i}", "x") for i in range(N_IMAGES) for k in range(2)]
    captions += [CaptionRow(f"n{i}", None, "y") for i in range(10)]
    return build_corpus(
        "thirty",
        [ImageRow(f"i{i}") for i in range(N_IMAGES)],
        captions,
        source=None,
        pairs=[PairRow(f"p{i}", f"i{i}", f"c{i}-0", f"n{i}", "swap" if i % 2 else "add") for i in range(10)],
        quadruples=[
            QuadrupleRow(f"q{i}", f"i{i}", f"i{i + 10}", f"c{i}-0", f"c{i + 10}-0", ["odd"] if i % 2 else ["even"])
            for i in range(5)
        ],
    )


def unit_vectors() -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors of images and captions in eight dimensions; some captions are equal, so that scores tie."""
    rng = np.random.default_rng(5)
    images = rng.standard_normal((N_IMAGES, 8))
    captions = np.concatenate([np.repeat(images, 2, axis=0), images[:10]])
    captions = captions + 0.8 * rng.standard_normal(captions.shape)
    captions[7], captions[20] = captions[2], captions[5]
    units = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (images, captions)]
    return units[0].astype(np.float32), units[1].astype(np.float32)


def tied_scores() -> np.ndarray:
    """Cosines rounded to two digits: many exact ties."""
    vectors = unit_vectors()
    return np.round(vectors[1] @ vectors[0].T, 2).astype(np.float32)


def assert_equal(ours: Outcomes, theirs: Outcomes) -> None:
    """Every attribute is the same, bit for bit, and of the same type."""
    for name, values in vars(theirs).items():
        other = getattr(ours, name)
        assert getattr(other, "dtype", None) == getattr(values, "dtype", None), name
        np.testing.assert_array_equal(other, values, err_msg=name)
