"""The embedding store beside plain files: size and speed.

Each measurement is a process of its own, so that its peak memory is its own; what is compared is timed in turns in the
same process, on the same rows. The store at a million rows and more is in ``bench_store_scale``.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from capim.store import Block, EmbeddingStore, SetKey
from capim.store.upkeep.inventory import disk_bytes
from tests.benchmarks.made import POOL, as_block, by_number, dense_blocks, ids_of, opened, pool
from tests.benchmarks.own_process import alone, peak_mb
from tests.benchmarks.rows import Row, timed

DENSE = {"n": 25_010, "dim": 1024, "block": 4096}
MULTI = {"n": 5000, "dim": 128, "vectors": 1030, "block": 64}


def run(quick: bool = False) -> list[Row]:
    """Every figure; ``quick`` divides the sizes by 50 and shows only that it works."""
    rows = []
    for step in (dense, multi):
        with tempfile.TemporaryDirectory() as folder:
            rows += step(Path(folder), 50 if quick else 1)
    return rows


def dense(folder: Path, divide: int) -> list[Row]:
    size = DENSE | {"n": max(2000, DENSE["n"] // divide)}
    found = alone(measure_dense, folder, **size)
    name, peer = f"{size['n']:,} × {size['dim']} float16", "pyarrow, fixed-size binary column, same rows"
    speeds = (
        f"{found['store_speed']:.0f} and {found['parquet_speed']:.0f} MB/s from float32 blocks to files; the store "
        "also checks every value, computes checksums and commits every block"
    )
    sealing = (
        f"{found['sealed_speed']:.0f} MB/s: files are merged, all rows read again and compared, the version tagged"
    )
    reading = f"{found['read_seconds']:.3f} and {found['load_seconds']:.3f} s; the store compares every row's checksum"
    rows = [Row(f"bytes on disk per byte of vectors, {name}", found["bytes"], "times", "<= 1.06", "raw vectors")]
    for how, ours, bar, note in (("", "store", ">= 0.5", speeds), (" with sealing", "sealed", "", sealing)):
        ratio = found[f"{ours}_speed"] / found["parquet_speed"]
        rows.append(Row(f"write speed relative to Parquet{how}, {name}", ratio, "times", bar, peer, note))
    ratio, peer = found["read_seconds"] / found["load_seconds"], "np.load and cast"
    title = f"time to read a float32 matrix relative to np.load, {name}"
    return [*rows, Row(title, ratio, "times", "<= 6", peer, reading)]


def multi(folder: Path, divide: int) -> list[Row]:
    size = MULTI | {"n": max(256, MULTI["n"] // divide)}
    written = alone(measure_multi_write, folder, **size)
    read = alone(measure_multi_read, folder, n=size["n"])
    name, seconds = f"{size['n']:,} × {size['vectors']:,} × {size['dim']} float16", f"{read['seconds']:.1f} s"
    return [
        Row(f"bytes on disk per byte of vectors, {name}", written["bytes"], "times", "<= 1.02", "raw vectors"),
        Row(f"memory added by streaming {name}", read["extra_mb"], "MB", "< 300", note=seconds),
        Row(f"memory added by writing and sealing {name}", written["extra_mb"], "MB", note="blocks of 64"),
    ]


# --- the measurements, each in a process of its own ---------------------------------------------------------------
def measure_dense(folder: Path, *, n: int, dim: int, block: int) -> dict[str, float]:
    megabytes = n * dim * 2 / 1e6
    blocks, corpus = list(dense_blocks(n, dim, block)), by_number(n)
    seconds: dict[str, list[list[float]]] = {}
    for _ in range(7):
        # Both to new files that are gone before the next: pages that a guest touches first cost it several times.
        shutil.rmtree(folder / "store", ignore_errors=True)
        store, spec, key = opened(folder / "store", corpus, dim)
        taken = {"store": [timed(partial(store.put, key, spec, one)) for one in blocks]}
        taken["sealed"] = [*taken["store"], timed(partial(store.seal, key))]
        taken["parquet"] = list(write_parquet(folder / "same.parquet", blocks))
        (folder / "same.parquet").unlink()
        for name, each in taken.items():
            seconds.setdefault(name, []).append(each)
    read = partial(store.vectors, encoder="e", corpus=corpus.name, modality="image")
    np.save(folder / "raw.npy", read().matrix.astype(np.float16))
    reads, loads = [], []
    for _ in range(7):
        reads.append(timed(read))
        loads.append(timed(lambda: np.load(folder / "raw.npy").astype(np.float32)))
    return {
        "bytes": on_disk(store, key) / (n * dim * 2),
        # Of every block the best of the turns: other work on the machine disturbs single blocks.
        **{f"{name}_speed": megabytes / float(np.min(taken, axis=0).sum()) for name, taken in seconds.items()},
        "read_seconds": min(reads),
        "load_seconds": min(loads),
    }


def write_parquet(path: Path, blocks: list[Block]) -> Iterator[float]:
    """Seconds for each block: the rows that a put writes, one row group per block."""
    writer = None
    for block in blocks:
        start = time.perf_counter()
        n, dim = block.embeddings.values.shape
        # Arrow's cast is the fastest rounding to float16 that pyarrow documents
        values = pc.cast(pa.array(block.embeddings.values.reshape(-1)), pa.float16())
        vectors = pa.FixedSizeBinaryArray.from_buffers(pa.binary(dim * 2), n, [None, values.buffers()[1]])
        columns: dict[str, Any] = {"item_id": ids_of(block.ords), "ord": block.ords, "vector": vectors}
        columns["input_sha"] = block.input_shas
        facts = {name: getattr(block.embeddings, name) for name in ("norms", "n_tokens", "truncated")}
        table = pa.table(columns | facts)
        writer = writer or pq.ParquetWriter(path, table.schema, compression="none")
        writer.write_table(table)
        yield time.perf_counter() - start
    if writer is not None:
        writer.close()


def measure_multi_write(folder: Path, *, n: int, dim: int, vectors: int, block: int) -> dict[str, float]:
    store, spec, key = opened(folder / "store", by_number(n), dim, vectors="multi")
    rows = pool(dim)
    generator = np.random.default_rng(1)
    before = 0.0
    for start in range(0, n, block):
        ords = np.arange(start, min(n, start + block), dtype=np.int32)
        values = rows[generator.integers(0, POOL, len(ords) * vectors)]
        offsets = np.arange(len(ords) + 1, dtype=np.int64) * vectors
        store.put(key, spec, as_block(ords, values, offsets))
        before = before or peak_mb()
    store.seal(key)
    return {"bytes": on_disk(store, key) / (n * vectors * dim * 2), "extra_mb": peak_mb() - before}


def measure_multi_read(folder: Path, *, n: int) -> dict[str, float]:
    store = EmbeddingStore.open(folder / "store")
    store.sealed_sets()
    before = peak_mb()
    start = time.perf_counter()
    items = 0
    for block in store.multivectors(encoder="e", corpus="bench", modality="image"):
        block.values[:, 0].astype(np.float32).sum()  # has to be read
        items += len(block)
    if items != n:
        raise RuntimeError(f"{items} of {n} items came back")
    return {"seconds": time.perf_counter() - start, "extra_mb": peak_mb() - before}


def on_disk(store: EmbeddingStore, key: SetKey) -> int:
    return disk_bytes(Path(store.uri) / f"{key.table}.lance")
