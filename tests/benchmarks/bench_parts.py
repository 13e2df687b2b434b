"""Scoring galleries that do not fit into memory: windows of a store, parts on several workers, and distractors.

``SIZE=1000000 make bench ONLY=parts`` sets the number of images of the first measurement (default: 1,000,000); the
second takes a fifth of them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from capim.store import Corpus, EmbeddingStore
from capim.store.schema import CAPTIONS
from capim.store.types import Modality, SetKey
from capim.tasks.metrics import METRICS
from capim.tasks.ranking.evaluate import Side, by_gallery_size
from capim.tasks.ranking.protocols import build_task, select_protocols
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.runtime.references import SetsRef
from capim.tasks.statistics.draws import Resampling
from tests.benchmarks.bench_scoring import synthetic
from tests.benchmarks.planted import karpathy
from tests.benchmarks.rows import Row
from tests.benchmarks.store_blocks import as_block, images, measured, opened, peak_mb

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
        measured("parts", "fill", Path(folder), size)
        one = measured("parts", "score", Path(folder), size)
    with tempfile.TemporaryDirectory() as folder:
        measured("parts", "fill", Path(folder), size | {"n": n // 5})
        measured("parts", "score", Path(folder), size | {"n": n // 5})
        dask = measured("parts", "workers", Path(folder), size)
    return [
        Row(
            "windows of a store: time relative to the bare product", one["seconds"] / one["product"], "times", note=name
        ),
        Row(
            "windows of a store: peak memory of the process",
            one["peak_mb"] / 1024,
            "GiB",
            "" if quick else "<= 2",
            note=f"{name}; {one['seconds']:.0f} s, bare product {one['product']:.0f} s",
        ),
        Row(
            f"{WORKERS} Dask workers, one killed: outcomes that differ",
            dask["differ"],
            "",
            "<= 0",
            note=f"{of_workers}; {dask['seconds']:.0f} s",
        ),
        *distractors(quick),
    ]


def distractors(quick: bool) -> list[Row]:
    """R@1 of COCO's captions in galleries of 1, 2, 5 and 10 times its images."""
    corpus = karpathy(limit=500 if quick else None)
    own, captions, _ = synthetic(corpus, dim=1024)
    others = np.random.default_rng(1).standard_normal((9 * len(own), 1024), dtype=np.float32)
    others /= np.linalg.norm(others, axis=1, keepdims=True)
    task = build_task(corpus, select_protocols(corpus, ["t2i/all"])[0])
    assert isinstance(task, RetrievalTask)
    started = time.perf_counter()
    curve = [
        (added, METRICS["R@1"].per_query(outcomes))
        for added, outcomes in by_gallery_size(Side(own, len(own)), [Side(others, len(others))], captions, task, seed=0)
    ]
    seconds = time.perf_counter() - started
    hits = np.array([per_query for _, per_query in curve])
    listed = ", ".join(f"{len(own) + added:,}: {100 * per_query.mean():.2f}" for added, per_query in curve)
    return [
        Row(
            "distractors: queries whose R@1 improves in a larger gallery",
            float((np.diff(hits, axis=0) > 0).sum()),
            "",
            "<= 0",
            note=f"R@1 in percent by images: {listed}; {seconds:.1f} s in one pass",
        )
    ]


def corpus_of(size: dict[str, int]) -> Corpus:
    """Images of which the first have five captions each."""
    n = size["captions"]
    of = np.arange(n) // 5 % size["n"]
    filled: dict[str, Any] = {
        "id": [f"i{i:08d}" for i in range(n)],
        "image_id": [f"i{i:08d}" for i in of],
        "text": ["x"] * n,
        "ordinal": pa.array((np.arange(n) % 5).astype(np.int32)),
        "language": ["en"] * n,
        "translator": ["human"] * n,
    }
    columns = [pa.array(filled[f.name], f.type) if f.name in filled else pa.nulls(n, f.type) for f in CAPTIONS]
    return Corpus(name="bench", images=images(size["n"]).images, captions=pa.table(columns, schema=CAPTIONS))


def vectors(ords: NDArray[np.int32], *, captions: bool) -> NDArray[np.float32]:
    """Unit vectors that depend on the position alone; a caption lies near its image."""
    images_of = ords // 5 if captions else ords
    rows = np.stack([np.random.default_rng(int(i)).standard_normal(DIM, np.float32) for i in images_of])
    if captions:
        noise = [np.random.default_rng([1, int(i)]).standard_normal(DIM, np.float32) for i in ords]
        rows = rows + 6 * np.stack(noise)
    unit: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def _blocks(n: int) -> Iterator[NDArray[np.int32]]:
    return (np.arange(start, min(n, start + BLOCK), dtype=np.int32) for start in range(0, n, BLOCK))


def measure_fill(folder: Path, size: dict[str, int]) -> dict[str, float]:
    corpus = corpus_of(size)
    for modality, n in (("image", size["n"]), ("caption", size["captions"])):
        store, spec, key = opened(folder / "store", corpus, DIM, modality=_modality(modality))
        for ords in _blocks(n):
            store.put(key, spec, as_block(ords, vectors(ords, captions=modality == "caption")))
        store.seal(key, n_items=n)
    return {}


def _modality(text: str) -> Modality:
    return "image" if text == "image" else "caption"


def _sets(store: EmbeddingStore) -> SetsRef:
    key: SetKey = store.sealed_sets()[0].key
    return SetsRef(**{name: getattr(key, name) for name in SetsRef.__dataclass_fields__})


def _how(sets: SetsRef, store: EmbeddingStore, memory_bytes: int) -> dict[str, Any]:
    how: dict[str, Any] = {"sets": sets, "store_uri": store.uri, "protocols": ["t2i/all"], "device": "cpu"}
    return how | {"memory_bytes": memory_bytes}


def measure_score(folder: Path, size: dict[str, int]) -> dict[str, float]:
    from capim.tasks.evaluate import score

    store = EmbeddingStore.open(folder / "store")
    started = time.perf_counter()
    score.fn(**_how(_sets(store), store, MEMORY), **FIGURES)
    seconds, peak = time.perf_counter() - started, peak_mb()
    queries, items = torch.randn(size["captions"], DIM), torch.randn(min(size["n"], 8192), DIM)
    queries @ items.T
    started = time.perf_counter()
    queries @ items.T
    return {"seconds": seconds, "peak_mb": peak, "product": (time.perf_counter() - started) * size["n"] / len(items)}


def measure_workers(folder: Path, _size: dict[str, int]) -> dict[str, float]:
    from distributed import Client, LocalCluster

    from capim.tasks.evaluate import score, score_part

    store, n_parts = EmbeddingStore.open(folder / "store"), 2 * WORKERS
    how = _how(_sets(store), store, MEMORY // 2)
    alone = store.rows("outcomes")  # of `measure_score`
    for table in ("outcomes", "results"):
        store.connection.drop(table)
    started = time.perf_counter()
    local = LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None)
    with local as cluster, Client(cluster) as client:
        running = [client.submit(score_part.fn, part=1 + k, n_parts=n_parts, **how) for k in range(n_parts)]
        running[0].result()
        os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
        client.gather(running)
    score.fn(**how, **FIGURES, n_parts=n_parts)
    return {"seconds": time.perf_counter() - started, "differ": float(not store.rows("outcomes").equals(alone))}


if __name__ == "__main__":
    _, step, where, given = sys.argv
    print(json.dumps(globals()[f"measure_{step}"](Path(where), json.loads(given))))
