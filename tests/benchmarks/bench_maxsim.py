"""Late interaction at ColPali's shape, side by side with colpali_engine on the same arrays in one run.

The peer is run on a part of the images and scaled up: its cost is proportional to them. Vectors are synthetic:
an image's patches are about a few shared topics, a caption's tokens lie near patches of its image.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from colpali_engine.utils.processing_utils import BaseVisualRetrieverProcessor
from numpy.typing import NDArray

from store.types import Corpus, EvalProtocol
from tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from tasks.corpora.subset import sample_corpus
from tasks.scoring.late_interaction.maxsim import Method, maxsim, outcomes_of_scores
from tasks.scoring.late_interaction.multivectors import gather
from tasks.scoring.late_interaction.screening import half_is_fast
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.selection import build_tasks, select_protocols
from tasks.scoring.protocols.tasks import ScoringTask
from tests.benchmarks.bench_scoring import fastest
from tests.benchmarks.rows import Row

DIM = 128
N_PATCHES = 1030
TOP = 10


class Block(NamedTuple):
    """A window of items."""

    ords: NDArray[np.int32]
    values: NDArray[np.float16]
    offsets: NDArray[np.int64]


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` takes a hundredth of the pairs, a size at which the ratios are not the claims."""
    n = 100 if quick else 1000
    images, captions = vectors(n, N_PATCHES)
    rows = [CaptionRow(id=f"c{i}", image_id=f"i{i}", text="x") for i in range(n)]
    corpus = build_corpus("maxsim", [ImageRow(id=f"i{i}") for i in range(n)], rows, source=None)
    judgements = build_tasks(corpus, select_protocols(corpus, ["t2i/all", "i2t/any"]))
    scored(images[:50], captions[:50], build_tasks(*_first(corpus, 50)), "certified", TOP)  # warm up
    fast, exact, long = (
        scored(images, captions, judgements, method, top)
        for method, top in (("certified", TOP), ("float32", TOP), ("certified", 100))
    )
    some = images[: max(8, n // 16)]
    seconds = peer_seconds(some, captions) * n / len(some)
    work = 2e-9 * sum(len(v) for v in captions) * n * N_PATCHES * DIM
    shape = f"{n:,} captions x {n:,} images x {N_PATCHES:,} vectors"
    bar = "" if quick else (">= 4" if half_is_fast("cpu") else ">= 1")
    peer = "colpali_engine"
    return [
        Row(
            "maxsim: speed over colpali_engine, lists of 10",
            seconds / fast.seconds,
            "times",
            bar,
            peer,
            f"{shape}; {work / fast.seconds:.0f} GFLOP/s against {work / seconds:.0f}",
        ),
        Row(
            "maxsim: speed over colpali_engine, lists of 100",
            seconds / long.seconds,
            "times",
            "",
            peer,
            f"{work / long.seconds:.0f} GFLOP/s",
        ),
        Row(
            "maxsim: speed of the float32 path over colpali_engine",
            seconds / exact.seconds,
            "times",
            "" if quick else ">= 1",
            peer,
            f"{work / exact.seconds:.0f} GFLOP/s",
        ),
        Row(
            "maxsim: values that differ from the float32 path",
            float(differences(fast.found, exact.found)),
            "",
            "<= 0",
            "float32 path",
            "ranks, ties, lists and their scores",
        ),
        Row("maxsim: pairs scored again in float32, lists of 10", fast.rescored, "share", note=shape),
        Row("maxsim: pairs scored again in float32, lists of 100", long.rescored, "share", note=shape),
    ]


class Scored(NamedTuple):
    """One way of scoring: its outcomes, its time, the share of pairs in float32."""

    found: dict[str, Outcomes]
    seconds: float
    rescored: float


def scored(
    images: list[NDArray[np.float16]],
    captions: list[NDArray[np.float16]],
    judgements: list[ScoringTask],
    method: Method,
    top: int,
) -> Scored:
    """Scores and outcomes, from windows as the store gives them."""
    begun = time.perf_counter()
    tokens = gather(windows(captions), "caption")
    made = maxsim(lambda: windows(images), tokens, judgements, top=top, method=method)
    found = outcomes_of_scores(made.scores, tokens, judgements, 1 << 30, top)
    return Scored(found, time.perf_counter() - begun, made.rescored)


def peer_seconds(images: list[NDArray[np.float16]], captions: list[NDArray[np.float16]]) -> float:
    """colpali_engine's ``score_multi_vector`` in float32 on the same vectors; scores alone, no ranks."""
    queries, passages = ([torch.from_numpy(v).float() for v in items] for items in (captions, images))
    return fastest(lambda: BaseVisualRetrieverProcessor.score_multi_vector(queries, passages, device="cpu"), runs=1)


def _first(corpus: Corpus, n: int) -> tuple[Corpus, tuple[EvalProtocol, ...]]:
    part = sample_corpus(corpus, n, seed=0)
    return part, select_protocols(part, ["t2i/all", "i2t/any"])


def vectors(n: int, n_patches: int) -> tuple[list[NDArray[np.float16]], list[NDArray[np.float16]]]:
    """Images of ``n_patches`` vectors about a dozen of 300 topics, and captions of 12 to 28 tokens."""
    rng = np.random.default_rng(0)
    topics = rng.standard_normal((300, DIM)).astype(np.float32)
    images, captions = [], []
    for _ in range(n):
        own = rng.choice(300, size=12, replace=False)
        patches = topics[rng.choice(own, size=n_patches)] + rng.standard_normal((n_patches, DIM), dtype=np.float32)
        near = patches[rng.integers(n_patches, size=rng.integers(12, 29))]
        tokens = near + 2.5 * rng.standard_normal(near.shape, dtype=np.float32)
        for kind, values in ((images, patches), (captions, tokens)):
            kind.append((values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float16))
    return images, captions


def windows(items: list[NDArray[np.float16]], size: int = 64) -> Iterator[Block]:
    """The items as a store hands them out."""
    for start in range(0, len(items), size):
        part = items[start : start + size]
        offsets = np.concatenate([[0], np.cumsum([len(v) for v in part])]).astype(np.int64)
        yield Block(np.arange(start, start + len(part), dtype=np.int32), np.concatenate(part), offsets)


def differences(one: dict[str, Outcomes], other: dict[str, Outcomes]) -> int:
    """How many values of all outcome columns are not the same to the bit."""
    return sum(
        int((values != getattr(other[id_], name)).sum())
        for id_, outcomes in one.items()
        for name, values in vars(outcomes).items()
        if isinstance(values, np.ndarray)
    )


if __name__ == "__main__":
    for row in run(quick="--quick" in sys.argv):
        print(f"{row.name:55s} {row.value:10.4g} {row.unit:6s} {row.bar:8s} {row.note}")
