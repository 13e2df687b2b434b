"""The embedding store at 1.5 million captions and at a million images: does it slow down, what memory does it take.

Each measurement is a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.rows import Row, timed
from tests.benchmarks.store_blocks import (
    REPOSITORY,
    both_clocks,
    captioned,
    command,
    dense_blocks,
    images,
    measured,
    opened,
    peak_mb,
    resident_mb,
)

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
    found = measured("store_scale", "fill", folder, size | {"modality": "caption"})
    name = f"{size['n']:,} captions × {size['dim']} float16"
    return [
        Row(
            f"CPU time per row, last tenth relative to the same rows in a new set, {name}",
            found["slowdown"],
            "times",
            "<= 1.2",
            "",
            f"wall-clock time {found['wall_slowdown']:.2f}; {found['speed']:.0f} MB/s",
        ),
        Row(
            f"memory gained over the second half, {name}",
            found["growth_mb"],
            "MB",
            "< 100",
            "",
            f"peak {found['peak_mb']:.0f} MB",
        ),
    ]


def million(folder: Path, divide: int) -> list[Row]:
    size = MILLION | {"n": MILLION["n"] // divide}
    half = size | {"modality": "image", "stop": 0.5}
    killed = subprocess.Popen(
        command("store_scale", "fill", folder, half), stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    assert killed.stdout is not None
    killed.stdout.readline()  # half is written
    time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    found = measured("store_scale", "fill", folder, size | {"modality": "image"})
    sealed = measured("store_scale", "seal_and_read", folder, size)
    name = f"{size['n']:,} × {size['dim']} float16"
    return [
        Row(f"share of rows kept after a kill at about half, {name}", found["found"] / size["n"], "", ">= 0.45"),
        Row(
            f"CPU time per row, last tenth relative to the same rows in a new set, {name}",
            found["slowdown"],
            "times",
            "<= 1.2",
            "",
            f"after the kill; wall-clock time {found['wall_slowdown']:.2f}",
        ),
        Row(f"peak memory of writing, {name}", found["peak_mb"], "MB", "< 2048"),
        Row(f"peak memory of sealing and reading in windows, {name}", sealed["peak_mb"], "MB", "< 2048"),
        Row(f"time to seal, {name}", sealed["seal_seconds"], "s"),
        Row(
            f"time to read, {name}",
            sealed["read_seconds"],
            "s",
            "",
            "",
            f"{sealed['rows']:,.0f} rows, identical to those written",
        ),
    ]


# --- the measurements, each in a process of its own ---------------------------------------------------------------
def measure_fill(folder: Path, size: dict[str, Any]) -> dict[str, float]:
    """Writes what is missing of a set; prints ``half`` on the way if it is to be killed there.

    The last tenth is also written to a new set, block by block in turns: what a block costs changes twofold within a
    minute on a virtual machine, with memory that it touches for the first time and with its neighbours.
    """
    n, dim, block, modality = size["n"], size["dim"], size["block"], size["modality"]
    corpus = images(n) if modality == "image" else captioned(n)
    long, fresh = (opened(folder / name, corpus, dim, modality=modality) for name in ("store", f"new-{modality}"))
    missing, _ = (store.missing(key, n) for store, _, key in (long, fresh))
    stop = size.get("stop", 2.0) * n
    last_tenth = n - max(3 * block, n // 10)
    taken, paired, memory = [], [], []
    for one in dense_blocks(n, dim, block, modality, start=int(missing[0])):
        clocks = [
            both_clocks(partial(store.put, key, spec, one))
            for store, spec, key in ((long, fresh) if one.ords[0] >= last_tenth else (long,))
        ]
        taken.append(clocks[0][0] / len(one))
        memory.append(resident_mb())
        if len(clocks) == 2:
            paired.append(np.divide(clocks[0], clocks[1]))
        if one.ords[-1] >= stop:
            print("half", flush=True)
            stop = 2.0 * n
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


def measure_seal_and_read(folder: Path, size: dict[str, int]) -> dict[str, float]:
    n, dim, block = size["n"], size["dim"], size["block"]
    store, _, key = opened(folder / "store", images(n), dim)
    seal_seconds = timed(lambda: store.seal(key, n_items=n))
    start = time.perf_counter()
    rows = 0
    expected = dense_blocks(n, dim, block, "image")
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


if __name__ == "__main__":
    _, step, folder, size = sys.argv
    print(json.dumps(globals()[f"measure_{step}"](Path(folder), json.loads(size))))
