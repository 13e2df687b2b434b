"""Scoring galleries that do not fit into memory: windows of a store, parts on several workers, and distractors.

``SIZE=1000000 make bench ONLY=parts`` sets the number of images of the first measurement (default: 1,000,000); the
second takes a fifth of them.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.rows import delete
from capim.tasks.metrics import METRICS
from capim.tasks.ranking.evaluate import Side, by_gallery_size
from capim.tasks.runtime.references import SetsRef
from capim.tasks.statistics.draws import Resampling
from tests.benchmarks.bench_scoring import synthetic
from tests.benchmarks.made import BOTH, as_block, both_ways, by_number, karpathy, unit
from tests.benchmarks.own_process import alone, peak_gib
from tests.benchmarks.rows import Row, fastest, timed
from tests.benchmarks.store_blocks import opened

DIM, N_CAPTIONS, BLOCK = 768, 25_010, 4096
MEMORY = 900 << 20  # of a process that may take 2 GiB: programs and the ids of a million images take the rest
WORKERS = 4
FIGURES: dict[str, Any] = {"resampling": Resampling(replicates=100), "run": "bench"}


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` takes a hundredth of the images and of the captions."""
    n = int(os.environ.get("SIZE", "1000000")) // (100 if quick else 1)
    size = {"n": n, "captions": N_CAPTIONS // (100 if quick else 1)}
    name, of_workers = (f"{size['captions']:,} captions x {m:,} images x {DIM} float16" for m in (n, n // 5))
    with tempfile.TemporaryDirectory() as folder:
        alone(fill, Path(folder), **size)
        one = alone(score_windows, Path(folder), **size)
    with tempfile.TemporaryDirectory() as folder:
        alone(fill, Path(folder), **size | {"n": n // 5})
        alone(score_windows, Path(folder), **size | {"n": n // 5})
        dask = alone(score_on_workers, Path(folder))
    ratio, note = one["seconds"] / one["product"], f"{of_workers}; {dask['seconds']:.0f} s"
    of_one = f"{name}; {one['seconds']:.0f} s, bare product {one['product']:.0f} s"
    return [
        Row("windows of a store: time relative to the bare product", ratio, "times", note=name),
        Row("windows of a store: peak memory of the process", one["peak_gib"], "GiB", "<= 2", note=of_one),
        Row(f"{WORKERS} Dask workers, one killed: outcomes that differ", dask["differ"], "", "<= 0", note=note),
        *distractors(quick),
    ]


def distractors(quick: bool) -> list[Row]:
    """R@1 of COCO's captions in galleries of 1, 2, 5 and 10 times its images."""
    corpus = karpathy(limit=500 if quick else None)
    own, captions, _ = synthetic(corpus, dim=1024)
    others = unit(np.random.default_rng(1).standard_normal((9 * len(own), 1024), dtype=np.float32))
    task = next(task for task in both_ways(corpus) if task.protocol.id == "t2i/all")
    started = time.perf_counter()
    curve = [
        (added, METRICS["R@1"].per_query(outcomes))
        for added, outcomes in by_gallery_size(Side(own, len(own)), [Side(others, len(others))], captions, task, seed=0)
    ]
    seconds = time.perf_counter() - started
    hits = np.array([per_query for _, per_query in curve])
    listed = ", ".join(f"{len(own) + added:,}: {100 * per_query.mean():.2f}" for added, per_query in curve)
    note = f"R@1 in percent by images: {listed}; {seconds:.1f} s in one pass"
    better = float((np.diff(hits, axis=0) > 0).sum())
    return [Row("distractors: queries whose R@1 improves in a larger gallery", better, "", "<= 0", note=note)]


def vectors(ords: NDArray[np.int32], *, captions: bool) -> NDArray[np.float32]:
    """Unit vectors that depend on the position alone; a caption lies near its image."""
    images_of = ords // 5 if captions else ords
    rows = np.stack([np.random.default_rng(int(i)).standard_normal(DIM, np.float32) for i in images_of])
    if captions:
        noise = [np.random.default_rng([1, int(i)]).standard_normal(DIM, np.float32) for i in ords]
        rows = rows + 6 * np.stack(noise)
    return unit(rows)


def fill(folder: Path, *, n: int, captions: int) -> None:
    corpus = by_number(n, captions)
    for modality, size in zip(BOTH, (n, captions), strict=True):
        store, spec, key = opened(folder / "store", corpus, DIM, modality=modality)
        for start in range(0, size, BLOCK):
            ords = np.arange(start, min(size, start + BLOCK), dtype=np.int32)
            store.put(key, spec, as_block(ords, vectors(ords, captions=modality == "caption")))
        store.seal(key, n_items=size)


def _how(store: EmbeddingStore, memory_bytes: int) -> dict[str, Any]:
    key = store.sealed_sets()[0].key
    sets = SetsRef.of(key.columns)
    how: dict[str, Any] = {"sets": sets, "store_uri": store.uri, "protocols": ["t2i/all"], "device": "cpu"}
    return how | {"memory_bytes": memory_bytes}


def score_windows(folder: Path, *, n: int, captions: int) -> dict[str, float]:
    from capim.tasks.evaluate import score

    store = EmbeddingStore.open(folder / "store")
    seconds, peak = timed(lambda: score.fn(**_how(store, MEMORY), **FIGURES)), peak_gib()
    queries, items = torch.randn(captions, DIM), torch.randn(min(n, 8192), DIM)
    product = fastest(lambda: queries @ items.T, runs=1) * n / len(items)
    return {"seconds": seconds, "peak_gib": peak, "product": product}


def score_on_workers(folder: Path) -> dict[str, float]:
    from distributed import Client, LocalCluster

    from capim.tasks.evaluate import score, score_part

    store, n_parts = EmbeddingStore.open(folder / "store"), 2 * WORKERS
    how = _how(store, MEMORY // 2)
    alone = store.rows("outcomes")  # of `score_windows`
    for table in ("outcomes", "results"):
        store.connection.drop(table)
        delete(store.connection, "derived", "table_name", [table])
    started = time.perf_counter()
    local = LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None)
    with local as cluster, Client(cluster) as client:
        running = [client.submit(score_part.fn, part=1 + k, n_parts=n_parts, **how) for k in range(n_parts)]
        running[0].result()
        os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
        client.gather(running)
    score.fn(**how, **FIGURES, n_parts=n_parts)
    return {"seconds": time.perf_counter() - started, "differ": float(not store.rows("outcomes").equals(alone))}
