"""Late interaction at ColPali's shape, side by side with colpali_engine on the same arrays in one run.

Both get batches of 128 items (its default), are warmed up, and count their fastest run. The peer is run on a part of
the images and scaled up: its cost is proportional to them. Ours also ranks both directions and keeps lists of 100, as
``capim run`` does. Vectors are synthetic: an image's patches are about a few shared topics, a caption's tokens lie near
patches of its image. ``SHARE`` of COCO's 25,010 captions search 5,000 pages in full.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from colpali_engine.utils.processing_utils import BaseVisualRetrieverProcessor
from numpy.typing import NDArray

from capim.tasks.ranking import maxsim, maxsim_products
from capim.tasks.ranking.maxsim import maxsim_part
from capim.tasks.ranking.maxsim_products import gather, maxsim_scores
from capim.tasks.ranking.outcomes import Outcomes
from tests.benchmarks.made import both_ways, by_number, unit, windows
from tests.benchmarks.rows import Row, clocked, fastest, timed

DIM = 128
N_PATCHES = 1030
BATCH = 128  # colpali_engine's default
RUNS = 2
SAMPLE = 200
SHARE = 0.04


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` takes a hundredth of the pairs, a size at which the ratios are not the claims."""
    n = 100 if quick else 1000
    images, captions = vectors(n, N_PATCHES)
    tasks = both_ways(by_number(n, n))
    ours = fastest(
        lambda: maxsim_part(partial(windows, images), partial(windows, captions), tasks).outcomes(), runs=RUNS
    )
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
    rates = f"{work / ours:.0f} GFLOP/s, ranks included; peer {work / theirs:.0f}, on {len(some)} images"
    apart = float(np.abs(scores - expected).max() / np.abs(expected).max())
    changed = float(np.count_nonzero(scores != other_windows))
    pairs = f"{n:,} captions x {len(some)} images"
    shape = f"{n:,} captions x {n:,} images x {N_PATCHES:,} vectors"
    name, peer = "MaxSim: speed relative to colpali_engine, hit lists of 100", "colpali_engine"
    largest = "MaxSim: largest difference of a score, as a share of the largest score"
    by_window = "MaxSim: scores that change with the number of images read at a time"
    return [
        Row(name, theirs / ours, "times", ">= 1", peer, f"{shape}; {rates}"),
        Row(largest, apart, "", "<= 1e-6", peer, pairs),
        Row(by_window, changed, "", "<= 0", note=f"{BATCH} and 7 images at a time, compared bit by bit"),
        *full_rows(quick),
    ]


def full_rows(quick: bool) -> list[Row]:
    """COCO's size: a declared share of the captions searches all pages; the time is in proportion to the captions."""
    n, share = (100 if quick else 5000), 1.0 if quick else SHARE
    images, some = vectors(n, N_PATCHES)
    n_all = 5 * n if quick else 25_010
    n_queries = round(share * n_all)
    captions = [some[i % n] for i in range(n_queries)]
    tasks = both_ways(by_number(n, n_queries))

    sides = partial(windows, images), partial(windows, captions)

    def score() -> dict[str, Outcomes]:
        return maxsim_part(*sides, tasks).outcomes()

    computed: list[int] = []
    compute = maxsim_products._compute

    def counted(rough: maxsim_products.RoughScores, chosen: NDArray[np.bool_], *rest: Any) -> None:
        computed.append(int(chosen.sum()))
        compute(rough, chosen, *rest)

    with patch.object(maxsim_products, "_compute", counted):
        scored, seconds = clocked(score)
    with patch.object(maxsim, "pays", lambda *_: False):
        in_float32 = timed(score) / 60
    found, minutes = scored["t2i/all"], seconds / 60
    tokens = gather(windows(captions[:SAMPLE]))
    scores = maxsim_scores(partial(windows, images), tokens, range(n))
    own = scores[np.arange(len(scores)), np.arange(len(scores)) % n][:, None]
    ranks = np.stack([1 + (scores > own).sum(axis=1), (scores >= own).sum(axis=1)])
    stored = np.stack([found.rank_best, found.rank_worst])[:, : len(scores)]
    share_of_all = f"{100 * share:.0f} % of the captions were measured, {minutes:.1f} minutes; both directions"
    shape = f"{n_all:,} captions x {n:,} images x {N_PATCHES:,} vectors; {share_of_all}"
    decided = "the others are decided in bfloat16" if computed else "too few pages, or no bfloat16 here"
    alone = f"float32 alone: {in_float32 / share:.0f} minutes, from the same captions"
    in_full = sum(computed) / n / n_queries if computed else 1.0
    other = float((ranks != stored).any(axis=0).sum())
    some_with_all = f"{len(scores):,} captions with all {n:,} images"
    start = "MaxSim at full size:"
    return [
        Row(f"{start} time of all captions", minutes / share, "minutes", note=shape),
        Row(f"{start} share of the pairs computed in float32", in_full, "", note=decided),
        Row(f"{start} speed relative to float32 alone", in_float32 / minutes, "times", note=alone),
        Row(f"{start} ranks that differ from those of all scores in float32", other, "", "<= 0", note=some_with_all),
    ]


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
            kind.append(unit(values).astype(np.float16))
    return images, captions
