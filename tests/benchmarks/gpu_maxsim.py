"""Late interaction on a card at ColPali's size, beside colpali_engine's own function on the same card.

Vectors are synthetic. Sums in another order differ in the last digits: a rank is compared with the ranks between which
the peer's scores, give or take rounding, let an item stand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from capim.tasks.encoders.device import full_float32
from capim.tasks.ranking.maxsim import maxsim_part
from capim.tasks.ranking.maxsim_products import gather, image_as_query_scores, maxsim_scores, pair_scores
from capim.tasks.ranking.resources import Resources
from tests.benchmarks.bench_maxsim import BATCH, DIM, N_PATCHES, vectors
from tests.benchmarks.gpu_card import ROUNDING, Card, peak_gib, reset_peak
from tests.benchmarks.made import both_ways, by_number, windows
from tests.benchmarks.rows import Row, fastest, timed


def maxsim_rows(card: Card, *, quick: bool) -> list[Row]:
    """ColPali's pages and queries: 500 pages beside colpali_engine, and 5,000 pages with COCO's number of queries."""
    small, large = ((20, 40), (60, 300)) if quick else ((500, 1000), (5000, 25_000))
    pages, some = vectors(large[0], N_PATCHES)
    queries = [some[k % len(some)] for k in range(large[1])]
    rows = beside_colpali(pages[: small[0]], queries[: small[1]], card)
    tasks = both_ways(by_number(*large))
    reset_peak(card.device)
    sides = partial(windows, pages), partial(windows, queries)
    seconds = timed(lambda: maxsim_part(*sides, tasks, resources=Resources(card.device)).outcomes())
    work = 2.0 * sum(map(len, queries)) * len(pages) * N_PATCHES * DIM
    shape = f"{large[1]:,} queries x {large[0]:,} pages x {N_PATCHES:,} vectors; both directions and lists of 100"
    name, rate = f"MaxSim, {large[0]:,} pages:", work / seconds
    share = f"{name} product of the whole call as a share of the card's float32 rate"
    bar, note = "" if quick else ">= 0.5", f"{rate / 1e12:.1f} TFLOP/s"
    return [
        *rows,
        Row(f"{name} time", seconds, "s", note=shape),
        Row(share, rate / card.float32_rate, "", bar, note=note),
        Row(f"{name} peak memory of the card", peak_gib(card.device), "GiB"),
    ]


def beside_colpali(pages: list[NDArray[np.float16]], queries: list[NDArray[np.float16]], card: Card) -> list[Row]:
    """Speed, ranks and scores beside colpali_engine's own function on the same card; and our own consistency."""
    from colpali_engine.utils.processing_utils import BaseVisualRetrieverProcessor

    how = {"part": range(len(pages)), "resources": Resources(card.device)}
    tokens = gather(windows(queries))

    def ours(score: Callable[..., NDArray[np.float32]], size: int = BATCH) -> NDArray[np.float32]:
        with full_float32():
            return score(partial(windows, pages, size=size), tokens, **how)

    theirs = [[torch.from_numpy(v).float() for v in items] for items in (queries, pages)]

    def peer() -> torch.Tensor:
        with full_float32():
            return BaseVisualRetrieverProcessor.score_multi_vector(*theirs, batch_size=BATCH, device=card.device)

    seconds, reverse, peer_seconds = (
        fastest(work, runs=2) for work in (partial(ours, maxsim_scores), partial(ours, image_as_query_scores), peer)
    )
    found, expected = ours(maxsim_scores), peer().numpy()
    moved = [int((ours(score, 7) != ours(score)).sum()) for score in (maxsim_scores, image_as_query_scores)]
    own = np.arange(len(queries)) % len(pages)
    work = 2.0 * len(tokens.values) * len(pages) * N_PATCHES * DIM
    shape = f"{len(queries):,} queries x {len(pages):,} pages x {N_PATCHES:,} vectors"
    rank, near = (1 + (found > of_own(found, own)).sum(axis=1)), ROUNDING * np.abs(expected).max()
    lowest = 1 + (expected > of_own(expected, own) + near).sum(axis=1)
    highest = (expected >= of_own(expected, own) - near).sum(axis=1)
    peer_rank = 1 + (expected > of_own(expected, own)).sum(axis=1)
    some = slice(3, 3 + max(1, len(queries) // 7))
    with full_float32():
        alone = pair_scores(tokens.slice(some.start, some.stop), pages[0], card.device)
    changed, peer_name = int((alone != found[some, 0]).sum()), "colpali_engine, same card"
    speed = f"{shape}; {seconds:.3f} s, {work / seconds / 1e12:.1f} TFLOP/s; peer {peer_seconds:.2f} s"
    reversed_speed = f"{reverse:.3f} s, {work / reverse / 1e12:.1f} TFLOP/s"
    outside = int(((rank < lowest) | (rank > highest)).sum())
    rounding = f"{int((rank != peer_rank).sum())} of {len(queries):,} ranks differ, by rounding"
    apart = float(np.abs(found - expected).max() / np.abs(expected).max())
    bits = (
        f"{moved[0]} and {moved[1]} (images as queries) of {found.size:,} with {BATCH} or 7 pages, "
        f"{changed} of {len(alone)} with fewer queries; compared bit by bit"
    )
    faster, n_changed = peer_seconds / seconds, sum(moved) + changed
    of_windows = "MaxSim on the card: scores that change with the pages read at a time or the queries beside"
    by_images = "MaxSim, images as queries: speed relative to captions as queries"
    largest = "MaxSim: largest difference of a score, as a share of the largest score"
    return [
        Row("MaxSim: speed relative to colpali_engine on the same card", faster, "times", ">= 2", peer_name, speed),
        Row(by_images, seconds / reverse, "times", note=reversed_speed),
        Row("MaxSim: ranks outside what colpali_engine's scores allow", outside, "", "<= 0", peer_name, rounding),
        Row(largest, apart, "", "<= 1e-6", peer_name),
        Row(of_windows, n_changed, "", "<= 0", note=bits),
    ]


def of_own(scores: NDArray[np.float32], own: NDArray[np.int64]) -> NDArray[np.float32]:
    """The score of each query's own item, shape ``(n_queries, 1)``."""
    return scores[np.arange(len(scores)), own][:, None]
