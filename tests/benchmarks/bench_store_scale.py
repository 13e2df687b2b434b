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
from tests.benchmarks.own_process import REPOSITORY, command_of, peak_mb, rows_alone
from tests.benchmarks.rows import Row, both_clocks, timed

SLOWDOWN = "CPU time per row, last tenth relative to the same rows in a new set"
SIZE = {"dim": 768, "block": 4096}


def run(quick: bool = False) -> list[Row]:
    """Every figure; ``quick`` divides the sizes by 50 and shows only that it works."""
    divide = 50 if quick else 1
    captions, images = {"n": 1_500_000 // divide, **SIZE}, {"n": 1_000_000 // divide, **SIZE}
    with tempfile.TemporaryDirectory() as name:
        slowdown, gained, *_ = rows_alone(filled, Path(name), modality="caption", **captions)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        half = command_of(filled, folder, modality="image", stop=0.5, **images)
        with subprocess.Popen(half, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as killed:
            assert killed.stdout is not None
            killed.stdout.readline()  # half is written
            time.sleep(0.05)
            killed.kill()
        of_images, _, peak, kept = rows_alone(filled, folder, modality="image", **images)
        return [slowdown, gained, kept, of_images, peak, *rows_alone(sealed_and_read, folder, **images)]


# --- the measurements, each in a process of its own ---------------------------------------------------------------
def filled(folder: Path, *, n: int, dim: int, block: int, modality: Modality, stop: float = 2.0) -> list[Row]:
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
    growth = float(np.median(memory[-tenth:]) - np.median(memory[len(memory) // 2 :][:tenth]))
    name = f"{n:,} {'captions ' if modality == 'caption' else ''}× {dim} float16"
    speed = f"wall-clock time {wall:.2f}; {dim * 2 / 1e6 / float(np.median(taken)):.0f} MB/s"
    note, before = f"peak {peak_mb():.0f} MB", 1 - len(missing) / n
    return [
        Row(f"{SLOWDOWN}, {name}", processor, "times", "<= 1.2", note=speed),
        Row(f"memory gained over the second half, {name}", growth, "MB", "< 100", note=note),
        Row(f"peak memory of writing, {name}", peak_mb(), "MB", "< 2048"),
        Row(f"share of rows kept after a kill at about half, {name}", before, "", ">= 0.45"),
    ]


def sealed_and_read(folder: Path, *, n: int, dim: int, block: int) -> list[Row]:
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
    reading, name = time.perf_counter() - start, f"{n:,} × {dim} float16"
    identical = f"{rows:,.0f} rows, identical to those written"
    return [
        Row(f"peak memory of sealing and reading in windows, {name}", peak_mb(), "MB", "< 2048"),
        Row(f"time to seal, {name}", seal_seconds, "s"),
        Row(f"time to read, {name}", reading, "s", note=identical),
    ]
