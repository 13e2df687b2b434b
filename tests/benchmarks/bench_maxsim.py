"""Late interaction at ColPali's shape, side by side with colpali_engine on the same arrays in one run.

Both get batches of 128 items (its default), are warmed up, and count their fastest run. The peer is run on a part of
the images and scaled up: its cost is proportional to them. Ours also ranks both directions and keeps lists of 100, as
``capim run`` does. Vectors are synthetic: an image's patches are about a few shared topics, a caption's tokens lie near
patches of its image. ``SHARE=0.04`` is the part of COCO's 25,010 captions that search 5,000 pages in full. A quarter as
many items with a quarter of the patches go through every method of ``capim ann``.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from colpali_engine.utils.processing_utils import BaseVisualRetrieverProcessor
from numpy.typing import NDArray

from capim.store.vectors import Ragged
from capim.tasks.analyses.compression import METHODS, measured, methods_of
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from capim.tasks.ranking import maxsim, maxsim_products
from capim.tasks.ranking.maxsim import score_maxsim
from capim.tasks.ranking.maxsim_products import gather, maxsim_scores
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_tasks, select_protocols
from capim.tasks.ranking.resources import n_threads
from capim.tasks.ranking.tasks import RetrievalTask
from tests.benchmarks.rows import Row, fastest

DIM = 128
N_PATCHES = 1030
BATCH = 128
RUNS = 2
SAMPLE = 200


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` takes a hundredth of the pairs, a size at which the ratios are not the claims."""
    n = 100 if quick else 1000
    images, captions = vectors(n, N_PATCHES)
    rows = [CaptionRow(id=f"c{i}", image_id=f"i{i}", text="x") for i in range(n)]
    corpus = build_corpus("maxsim", [ImageRow(id=f"i{i}") for i in range(n)], rows, source=None)
    tasks = build_tasks(corpus, select_protocols(corpus, ["t2i/all", "i2t/any"]))
    ours = fastest(lambda: score_maxsim(partial(windows, images), partial(windows, captions), tasks), runs=RUNS)
    some = images[: max(8, n // 16)]
    queries, passages = ([torch.from_numpy(v).float() for v in items] for items in (captions, some))

    def peer_scores() -> torch.Tensor:
        return BaseVisualRetrieverProcessor.score_multi_vector(queries, passages, batch_size=BATCH, device="cpu")

    theirs = fastest(peer_scores, runs=RUNS) * n / len(some)
    tokens = gather(windows(captions))
    scores, other_windows = (
        maxsim_scores(partial(windows, some, size=size), tokens, range(len(some))) for size in (BATCH, 7)
    )
    expected = peer_scores().numpy()
    work = 2e-9 * len(tokens.values) * n * N_PATCHES * DIM
    shape = f"{n:,} captions x {n:,} images x {N_PATCHES:,} vectors"
    peer = "colpali_engine"
    return [
        Row(
            "MaxSim: speed relative to colpali_engine, hit lists of 100",
            theirs / ours,
            "times",
            "" if quick else ">= 1",
            peer,
            f"{shape}; {work / ours:.0f} GFLOP/s, ranks included; peer {work / theirs:.0f}, on {len(some)} images",
        ),
        Row(
            "MaxSim: largest difference of a score, as a share of the largest score",
            float(np.abs(scores - expected).max() / np.abs(expected).max()),
            "",
            "<= 1e-6",
            peer,
            f"{n:,} captions x {len(some)} images",
        ),
        Row(
            "MaxSim: scores that change with the number of images read at a time",
            float(np.count_nonzero(scores != other_windows)),
            "",
            "<= 0",
            note=f"{BATCH} and 7 images at a time, compared bit by bit",
        ),
        *full_rows(quick),
        *frontier_rows(*vectors(max(60, n // 4), N_PATCHES // 4)),
    ]


def full_rows(quick: bool) -> list[Row]:
    """COCO's size: a declared share of the captions searches all pages; the time is in proportion to the captions."""
    n, share = (100 if quick else 5000), 1.0 if quick else float(os.environ.get("SHARE", "0.04"))
    images, some = vectors(n, N_PATCHES)
    n_all = 5 * n if quick else 25_010
    n_queries = round(share * n_all)
    captions = [some[i % n] for i in range(n_queries)]
    rows = [CaptionRow(id=f"c{i}", image_id=f"i{i % n}", text="x") for i in range(n_queries)]
    corpus = build_corpus("full", [ImageRow(id=f"i{i}") for i in range(n)], rows, source=None)
    tasks = build_tasks(corpus, select_protocols(corpus, ["t2i/all", "i2t/any"]))

    def scored() -> tuple[Outcomes, float]:
        started = time.perf_counter()
        found = score_maxsim(partial(windows, images), partial(windows, captions), tasks)["t2i/all"]
        return found, (time.perf_counter() - started) / 60

    computed: list[int] = []
    compute = maxsim_products._compute

    def counted(rough: maxsim_products.RoughScores, chosen: NDArray[np.bool_], *rest: Any) -> None:
        computed.append(int(chosen.sum()))
        compute(rough, chosen, *rest)

    with patch.object(maxsim_products, "_compute", counted):
        found, minutes = scored()
    with patch.object(maxsim, "pays", lambda *_: False):
        in_float32 = scored()[1]
    tokens = gather(windows(captions[:SAMPLE]))
    scores = maxsim_scores(partial(windows, images), tokens, range(n))
    own = scores[np.arange(len(scores)), np.arange(len(scores)) % n][:, None]
    ranks = np.stack([1 + (scores > own).sum(axis=1), (scores >= own).sum(axis=1)])
    stored = np.stack([found.rank_best, found.rank_worst])[:, : len(scores)]
    shape = f"{n_all:,} captions x {n:,} images x {N_PATCHES:,} vectors"
    return [
        Row(
            "MaxSim at full size: time of all captions",
            minutes / share,
            "minutes",
            note=f"{shape}; {100 * share:.0f} % of the captions were measured, {minutes:.1f} minutes; both directions",
        ),
        Row(
            "MaxSim at full size: share of the pairs computed in float32",
            sum(computed) / n / n_queries if computed else 1.0,
            "",
            note="the others are decided in bfloat16" if computed else "too few pages, or no bfloat16 here",
        ),
        Row(
            "MaxSim at full size: speed relative to float32 alone",
            in_float32 / minutes,
            "times",
            note=f"float32 alone: {in_float32 / share:.0f} minutes, from the same captions",
        ),
        Row(
            "MaxSim at full size: ranks that differ from those of all scores in float32",
            float((ranks != stored).any(axis=0).sum()),
            "",
            "<= 0",
            note=f"{len(scores):,} captions with all {n:,} images",
        ),
    ]


def frontier_rows(images: list[NDArray[np.float16]], captions: list[NDArray[np.float16]]) -> list[Row]:
    """What `capim ann` measures of each method, as rows without a bar; the first is exact search."""
    n = len(images)
    rows = [CaptionRow(id=f"c{i}", image_id=f"i{i}", text="x") for i in range(n)]
    corpus = build_corpus("frontier", [ImageRow(id=f"i{i}") for i in range(n)], rows, source=None)
    [task] = build_tasks(corpus, select_protocols(corpus, ["t2i/all"]))
    assert isinstance(task, RetrievalTask)
    items, queries = Ragged.of(images), Ragged.of([caption.astype(np.float32) for caption in captions])
    methods = methods_of(items, METHODS, storage="float16", many=True, seed=0)
    found = []
    for each in measured(methods, queries, task, "R@1"):
        name = f"Frontier: {each.method.name} {each.method.setting}".strip()
        if each.reason:
            found.append(Row(name, None, "seconds per query", note=each.reason))
            continue
        deepest = each.depths.max()
        depth = f"{deepest:.0f}" if np.isfinite(deepest) else "more than 100"
        note = (
            f"{each.detail['bytes_per_item']:,.0f} bytes per image, R@1 {100 * each.values.mean():.1f}, exact if "
            f"{depth} are re-ranked; {n} captions x {n} images x {len(images[0])} vectors, {n_threads()} threads"
        )
        found.append(Row(name, each.detail["seconds_per_query"], "seconds per query", note=note))
    return found


def vectors(n: int, n_patches: int) -> tuple[list[NDArray[np.float16]], list[NDArray[np.float16]]]:
    """Images of ``n_patches`` vectors about a dozen of 300 topics, and captions of 12 to 28 tokens."""
    rng = np.random.default_rng(0)
    topics = rng.standard_normal((300, DIM)).astype(np.float32)
    images: list[NDArray[np.float16]] = []
    captions: list[NDArray[np.float16]] = []
    for _ in range(n):
        own = rng.choice(300, size=12, replace=False)
        patches = topics[rng.choice(own, size=n_patches)] + rng.standard_normal((n_patches, DIM), dtype=np.float32)
        near = patches[rng.integers(n_patches, size=rng.integers(12, 29))]
        tokens = near + 2.5 * rng.standard_normal(near.shape, dtype=np.float32)
        for kind, values in ((images, patches), (captions, tokens)):
            kind.append((values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float16))
    return images, captions


def windows(
    items: list[NDArray[np.float16]], ords: NDArray[np.int32] | None = None, *, size: int = BATCH
) -> Iterator[Ragged]:
    """The items, or some of them, as a store yields them."""
    wanted = np.arange(len(items)) if ords is None else ords
    for start in range(0, len(wanted), size):
        part = wanted[start : start + size]
        yield Ragged.of([items[ord_] for ord_ in part], ords=part)


if __name__ == "__main__":
    for row in run(quick="--quick" in sys.argv):
        print(f"{row.name:55s} {row.value:10.4g} {row.unit:6s} {row.bar:8s} {row.note}")
