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
from tests.benchmarks.own_process import peak_mb, rows_alone
from tests.benchmarks.rows import Row, timed


def run(quick: bool = False) -> list[Row]:
    """Every figure; ``quick`` divides the sizes by 50 and shows only that it works."""
    n_dense, n_multi = (2000, 256) if quick else (25_010, 5000)
    with tempfile.TemporaryDirectory() as folder:
        rows = rows_alone(dense, Path(folder), n=n_dense, dim=1024, block=4096)
    with tempfile.TemporaryDirectory() as folder:
        size = {"n": n_multi, "dim": 128, "vectors": 1030}
        on_disk, memory = rows_alone(multi_written, Path(folder), block=64, **size)
        return [*rows, on_disk, *rows_alone(multi_read, Path(folder), **size), memory]


# --- the measurements, each in a process of its own ---------------------------------------------------------------
def dense(folder: Path, *, n: int, dim: int, block: int) -> list[Row]:
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
    # Of every block the best of the turns: other work on the machine disturbs single blocks.
    speed = {name: megabytes / float(np.min(taken, axis=0).sum()) for name, taken in seconds.items()}
    writing = (
        f"{speed['store']:.0f} and {speed['parquet']:.0f} MB/s from float32 blocks to files; the store "
        "also checks every value, computes checksums and commits every block"
    )
    sealing = f"{speed['sealed']:.0f} MB/s: files are merged, all rows read again and compared, the version tagged"
    reading = f"{min(reads):.3f} and {min(loads):.3f} s; the store compares every row's checksum"
    name, peer = f"{n:,} × {dim} float16", "pyarrow, fixed-size binary column, same rows"
    of_raw, write = on_disk(store, key) / (n * dim * 2), "write speed relative to Parquet"
    to_load, read_as = min(reads) / min(loads), "time to read a float32 matrix relative to np.load"
    plain, sealed = (speed[how] / speed["parquet"] for how in ("store", "sealed"))
    return [
        Row(f"bytes on disk per byte of vectors, {name}", of_raw, "times", "<= 1.06", "raw vectors"),
        Row(f"{write}, {name}", plain, "times", ">= 0.5", peer, writing),
        Row(f"{write} with sealing, {name}", sealed, "times", "", peer, sealing),
        Row(f"{read_as}, {name}", to_load, "times", "<= 6", "np.load and cast", reading),
    ]


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


def multi_written(folder: Path, *, n: int, dim: int, vectors: int, block: int) -> list[Row]:
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
    of_raw, name = on_disk(store, key) / (n * vectors * dim * 2), f"{n:,} × {vectors:,} × {dim} float16"
    memory, note = f"memory added by writing and sealing {name}", f"blocks of {block}"
    return [
        Row(f"bytes on disk per byte of vectors, {name}", of_raw, "times", "<= 1.02", "raw vectors"),
        Row(memory, peak_mb() - before, "MB", note=note),
    ]


def multi_read(folder: Path, *, n: int, dim: int, vectors: int) -> list[Row]:
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
    name = f"memory added by streaming {n:,} × {vectors:,} × {dim} float16"
    return [Row(name, peak_mb() - before, "MB", "< 300", note=f"{time.perf_counter() - start:.1f} s")]


def on_disk(store: EmbeddingStore, key: SetKey) -> int:
    return disk_bytes(Path(store.uri) / f"{key.table}.lance")
