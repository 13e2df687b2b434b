"""Late interaction at ColPali's shape, side by side with colpali_engine on the same arrays in one run.

The peer is run on a part of the images and scaled up: its cost is proportional to them. Vectors are synthetic:
patches are shared topics plus noise, a caption's tokens lie near patches of its image.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from bench_scoring import fastest
from colpali_engine.utils.processing_utils import BaseVisualRetrieverProcessor
from numpy.typing import NDArray
from rows import Row

from tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from tasks.scoring.maxsim import maxsim, score_maxsim
from tasks.scoring.multivectors import gather
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols import judge_all, select
from tasks.scoring.screening import half_is_fast

DIM = 128
TOP = 10


class Block(NamedTuple):
    """A window of items."""

    ords: NDArray[np.int32]
    values: NDArray[np.float16]
    offsets: NDArray[np.int64]


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` takes a tenth of the pairs."""
    n, n_patches = (100, 1030) if quick else (1000, 1030)
    images, captions = vectors(n, n_patches)
    rows = [CaptionRow(id=f"c{i}", image_id=f"i{i}", text="x") for i in range(n)]
    corpus = build_corpus("maxsim", [ImageRow(id=f"i{i}") for i in range(n)], rows, source=None)
    judgements = judge_all(corpus, select(corpus, ["t2i/all", "i2t/any"]))
    give = lambda items: lambda: windows(items)  # noqa: E731

    some = images[: max(8, n // 16)]
    peer = lambda: BaseVisualRetrieverProcessor.score_multi_vector(  # noqa: E731
        [torch.from_numpy(v).float() for v in captions], [torch.from_numpy(v).float() for v in some], device="cpu"
    )
    peer_seconds = fastest(peer, runs=1) * n / len(some)
    seconds, exact_seconds = (
        fastest(lambda m=method: score_maxsim(give(images), give(captions), judgements, top=TOP, method=m), runs=1)
        for method in ("certified", "float32")
    )
    long_seconds = fastest(lambda: score_maxsim(give(images), give(captions), judgements, method="certified"), runs=1)
    tokens = gather(windows(captions), "caption")
    share, long_share = (
        maxsim(give(images), tokens, judgements, top=top, method="certified").rescored for top in (TOP, 100)
    )
    fast, exact = (
        score_maxsim(give(images), give(captions), judgements, top=TOP, method=method)
        for method in ("certified", "float32")
    )
    work = 2 * sum(len(v) for v in captions) * n * n_patches * DIM / 1e9
    shape = f"{n:,} captions x {n:,} images x {n_patches:,} vectors, top {TOP}"
    bar = "" if quick else (">= 4" if half_is_fast("cpu") else ">= 1")
    return [
        Row("maxsim: speed over colpali_engine", peer_seconds / seconds, "times", bar, "colpali_engine", f"{shape}; {work / seconds:.0f} GFLOP/s against {work / peer_seconds:.0f}"),
        Row("maxsim: speed over colpali_engine, lists of 100", peer_seconds / long_seconds, "times", "", "colpali_engine", f"{work / long_seconds:.0f} GFLOP/s"),
        Row("maxsim: float32 path over colpali_engine", peer_seconds / exact_seconds, "times", "" if quick else ">= 1", "colpali_engine", f"{work / exact_seconds:.0f} GFLOP/s"),
        Row("maxsim: outcomes that differ from float32", float(differences(fast, exact)), "", "<= 0", "float32 path", "ranks, ties, top lists and their scores"),
        Row("maxsim: pairs scored again in float32", share, "share", "", "", f"lists of 100: {long_share:.3f}"),
    ]  # fmt: skip


def vectors(n: int, n_patches: int) -> tuple[list[NDArray[np.float16]], list[NDArray[np.float16]]]:
    """Images of ``n_patches`` vectors and captions of 12 to 28 tokens."""
    rng = np.random.default_rng(0)
    topics = rng.standard_normal((200, DIM)).astype(np.float32)
    images, captions = [], []
    for _ in range(n):
        patches = topics[rng.integers(200, size=n_patches)] + rng.standard_normal((n_patches, DIM), dtype=np.float32)
        near = patches[rng.integers(n_patches, size=rng.integers(12, 29))]
        tokens = near + 1.5 * rng.standard_normal(near.shape, dtype=np.float32)
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
    begun = time.perf_counter()
    for row in run():
        print(f"{row.name:50s} {row.value:10.4g} {row.unit:6s} {row.bar:8s} {row.note}")  # noqa: T201
    print(f"{time.perf_counter() - begun:.0f} s")  # noqa: T201
