"""The embedding store at 1.5 million captions and at a million images: does it slow down, what memory does it take.

Each measurement is a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import psutil

from capim.store.types import Modality
from tests.benchmarks.made import by_number, dense_blocks, opened
from tests.benchmarks.own_process import REPOSITORY, alone, command_of, peak_mb
from tests.benchmarks.rows import Row, both_clocks, timed

SLOWDOWN = "CPU time per row, last tenth relative to the same rows in a new set"
CAPTIONS_ROWS = {"n": 1_500_000, "dim": 768, "block": 4096}
MILLION = {"n": 1_000_000, "dim": 768, "block": 4096}


def run(quick: bool = False) -> list[Row]:
    """Every figure; ``quick`` divides the sizes by 50 and shows only that it works."""
    rows = []
    for step in (captions, million):
        with tempfile.TemporaryDirectory() as folder:
            rows += step(Path(folder), 50 if quick else 1)
    return rows


def captions(folder: Path, divide: int) -> list[Row]:
    size = CAPTIONS_ROWS | {"n": CAPTIONS_ROWS["n"] // divide}
    found = alone(measure_fill, folder, modality="caption", **size)
    name, peak = f"{size['n']:,} captions × {size['dim']} float16", f"peak {found['peak_mb']:.0f} MB"
    note = f"wall-clock time {found['wall_slowdown']:.2f}; {found['speed']:.0f} MB/s"
    return [
        Row(f"{SLOWDOWN}, {name}", found["slowdown"], "times", "<= 1.2", note=note),
        Row(f"memory gained over the second half, {name}", found["growth_mb"], "MB", "< 100", note=peak),
    ]


def million(folder: Path, divide: int) -> list[Row]:
    size = MILLION | {"n": MILLION["n"] // divide}
    half = command_of(measure_fill, folder, modality="image", stop=0.5, **size)
    with subprocess.Popen(half, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as killed:
        assert killed.stdout is not None
        killed.stdout.readline()  # half is written
        time.sleep(0.05)
        killed.kill()
    found = alone(measure_fill, folder, modality="image", **size)
    sealed = alone(measure_seal_and_read, folder, **size)
    name, read = f"{size['n']:,} × {size['dim']} float16", f"{sealed['rows']:,.0f} rows, identical to those written"
    note = f"after the kill; wall-clock time {found['wall_slowdown']:.2f}"
    return [
        Row(f"share of rows kept after a kill at about half, {name}", found["found"] / size["n"], "", ">= 0.45"),
        Row(f"{SLOWDOWN}, {name}", found["slowdown"], "times", "<= 1.2", note=note),
        Row(f"peak memory of writing, {name}", found["peak_mb"], "MB", "< 2048"),
        Row(f"peak memory of sealing and reading in windows, {name}", sealed["peak_mb"], "MB", "< 2048"),
        Row(f"time to seal, {name}", sealed["seal_seconds"], "s"),
        Row(f"time to read, {name}", sealed["read_seconds"], "s", note=read),
    ]


# --- the measurements, each in a process of its own ---------------------------------------------------------------
def measure_fill(
    folder: Path, *, n: int, dim: int, block: int, modality: Modality, stop: float = 2.0
) -> dict[str, float]:
    """Writes what is missing of a set; prints ``half`` on the way if it is to be killed there.

    The last tenth is also written to a new set, block by block in turns: what a block costs changes twofold within a
    minute on a virtual machine, with memory that it touches for the first time and with its neighbours.
    """
    corpus = by_number(n) if modality == "image" else by_number(0, n)
    long, fresh = (opened(folder / name, corpus, dim, modality=modality) for name in ("store", f"new-{modality}"))
    missing, _ = (store.missing(key) for store, _, key in (long, fresh))
    last_tenth = n - max(3 * block, n // 10)
    taken, paired, memory = [], [], []
    for one in dense_blocks(n, dim, block, start=int(missing[0])):
        clocks = [
            both_clocks(partial(store.put, key, spec, one))
            for store, spec, key in ((long, fresh) if one.ords[0] >= last_tenth else (long,))
        ]
        taken.append(clocks[0][0] / len(one))
        memory.append(psutil.Process().memory_info().rss / 1e6)
        if len(clocks) == 2:
            paired.append(np.divide(clocks[0], clocks[1]))
        if one.ords[-1] >= stop * n:
            print("half", flush=True)
            stop = 2.0
    wall, processor = np.median(paired[1:], axis=0).tolist()
    tenth = max(1, len(taken) // 10)
    return {
        "found": n - len(missing),
        "slowdown": processor,
        "wall_slowdown": wall,
        "speed": dim * 2 / 1e6 / float(np.median(taken)),
        "growth_mb": float(np.median(memory[-tenth:]) - np.median(memory[len(memory) // 2 :][:tenth])),
        "peak_mb": peak_mb(),
    }


def measure_seal_and_read(folder: Path, *, n: int, dim: int, block: int) -> dict[str, float]:
    store, _, key = opened(folder / "store", by_number(n), dim)
    seal_seconds = timed(lambda: store.seal(key))
    start = time.perf_counter()
    rows = 0
    expected = dense_blocks(n, dim, block)
    for got in store.stored_blocks(key, window=block):
        given = next(expected).embeddings.values.astype(np.float16).astype(np.float32)
        if not np.array_equal(got.vectors.values.astype(np.float32), given):
            raise RuntimeError(f"rows from {rows} on are not what was written")
        rows += len(got.ords)
    return {
        "seal_seconds": seal_seconds,
        "read_seconds": time.perf_counter() - start,
        "rows": rows,
        "peak_mb": peak_mb(),
    }
