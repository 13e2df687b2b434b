"""Scoring a gallery that does not fit into memory, by windows of a store."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from capim.store import EmbeddingStore
from capim.tasks.references import RunSettings, SetsRef
from capim.tasks.statistics.draws import Resampling
from tests.benchmarks.made import BOTH, as_block, by_number, opened, unit
from tests.benchmarks.own_process import alone, peak_gib, rows_alone
from tests.benchmarks.rows import Row, fastest, timed

N_IMAGES, N_CAPTIONS, DIM, BLOCK = 1_000_000, 25_010, 768, 4096
MEMORY = 800 << 20  # of a process that may take 2 GiB: programs and the ids of a million images take the rest


def run(quick: bool = False) -> list[Row]:
    """Rows of RESULTS.md; ``quick`` takes a hundredth of the images and of the captions."""
    n = N_IMAGES // (100 if quick else 1)
    size = {"n": n, "captions": N_CAPTIONS // (100 if quick else 1)}
    with tempfile.TemporaryDirectory() as folder:
        alone(fill, Path(folder), **size)
        return rows_alone(score_windows, Path(folder), **size)


def fill(folder: Path, *, n: int, captions: int) -> None:
    corpus = by_number(n, captions)
    for modality, size in zip(BOTH, (n, captions), strict=True):
        store, spec, key = opened(folder / "store", corpus, DIM, modality=modality)
        for start in range(0, size, BLOCK):
            ords = np.arange(start, min(size, start + BLOCK), dtype=np.int32)
            rows = np.random.default_rng([start, len(modality)]).standard_normal((len(ords), DIM), np.float32)
            store.put(key, spec, as_block(ords, unit(rows)))
        store.seal(key)


def score_windows(folder: Path, *, n: int, captions: int) -> list[Row]:
    from capim.tasks.evaluate import score

    store = EmbeddingStore.open(folder / "store")
    key = store.sealed_sets()[0].key
    sets = SetsRef(**{name: getattr(key, name) for name in SetsRef.__dataclass_fields__})
    how: dict[str, Any] = {"protocols": ["t2i/all"], "memory_bytes": MEMORY, "resampling": Resampling(replicates=100)}
    seconds = timed(lambda: score.fn(sets, RunSettings(store_uri=store.uri, run="bench", **how)))
    peak = peak_gib()
    queries, items = torch.randn(captions, DIM), torch.randn(min(n, 8192), DIM)
    product = fastest(lambda: queries @ items.T, runs=1) * n / len(items)
    name = f"{captions:,} captions x {n:,} images x {DIM} float16"
    note = f"{name}; {seconds:.0f} s, bare product {product:.0f} s"
    return [
        Row("windows of a store: time relative to the bare product", seconds / product, "times", note=name),
        Row("windows of a store: peak memory of the process", peak, "GiB", "<= 2", note=note),
    ]
