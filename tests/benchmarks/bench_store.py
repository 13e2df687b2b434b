"""The embedding store beside plain files: size, speed, and fifty kills.

Each measurement is a process of its own, so that its peak memory is its own; what is compared is timed in turns in the
same process, on the same rows. The store at a million rows and more is in ``bench_store_scale``.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from capim.store import Block, EmbeddingStore, SetKey
from capim.store.integrity import verify
from tests.benchmarks.rows import Row, timed
from tests.benchmarks.store_blocks import (
    POOL,
    REPOSITORY,
    as_block,
    both_clocks,
    dense_blocks,
    images,
    measured,
    opened,
    peak_mb,
    unit,
)

DENSE = {"n": 25_010, "dim": 1024, "block": 4096}
MULTI = {"n": 5000, "dim": 128, "vectors": 1030, "block": 64}


def run(quick: bool = False) -> list[Row]:
    """Every figure; ``quick`` divides the sizes by 50 and shows only that it works."""
    rows = []
    for step in (dense, multi, kills):
        with tempfile.TemporaryDirectory() as folder:
            rows += step(Path(folder), 50 if quick else 1)
    return rows


def dense(folder: Path, divide: int) -> list[Row]:
    size = DENSE | {"n": max(2000, DENSE["n"] // divide)}
    found = measured("store", "dense", folder, size)
    name = f"{size['n']:,} × {size['dim']} float16"
    return [
        Row(f"bytes on disk per byte of vectors, {name}", found["bytes"], "times", "<= 1.06", "raw vectors"),
        Row(
            f"write speed relative to Parquet, {name}",
            found["store_speed"] / found["parquet_speed"],
            "times",
            ">= 0.5",
            "pyarrow, fixed-size binary column, same rows",
            f"{found['store_speed']:.0f} and {found['parquet_speed']:.0f} MB/s from float32 blocks to files; the store "
            f"also checks every value, computes checksums and commits every block; Parquet with a list column "
            f"{found['parquet_list_speed']:.0f} MB/s",
        ),
        Row(
            f"write speed relative to Parquet by CPU time, {name}",
            found["store_busy_speed"] / found["parquet_busy_speed"],
            "times",
            "",
            "pyarrow, fixed-size binary column, same rows",
            "the store writes a block with two threads",
        ),
        Row(
            f"write speed relative to Parquet with sealing, {name}",
            found["sealed_speed"] / found["parquet_speed"],
            "times",
            "",
            "pyarrow, fixed-size binary column, same rows",
            f"{found['sealed_speed']:.0f} MB/s: files are merged, all rows read again and compared, the version tagged",
        ),
        Row(
            f"time to read a float32 matrix relative to np.load, {name}",
            found["read_seconds"] / found["load_seconds"],
            "times",
            "<= 6",
            "np.load and cast",
            f"{found['read_seconds']:.3f} and {found['load_seconds']:.3f} s; the store compares every row's checksum",
        ),
    ]


def multi(folder: Path, divide: int) -> list[Row]:
    size = MULTI | {"n": max(256, MULTI["n"] // divide)}
    written = measured("store", "multi_write", folder, size)
    read = measured("store", "multi_read", folder, size)
    name = f"{size['n']:,} × {size['vectors']:,} × {size['dim']} float16"
    return [
        Row(f"bytes on disk per byte of vectors, {name}", written["bytes"], "times", "<= 1.02", "raw vectors"),
        Row(
            f"memory added by streaming {name}",
            read["extra_mb"],
            "MB",
            "< 300",
            "",
            f"{read['seconds']:.1f} s",
        ),
        Row(
            f"memory added by writing and sealing {name}",
            written["extra_mb"],
            "MB",
            "",
            "",
            "blocks of 64",
        ),
    ]


def kills(folder: Path, divide: int) -> list[Row]:
    """Fifty kills of racing writers, then one clean run, against an uninterrupted store."""
    crashes = load(REPOSITORY / "tests" / "store" / "test_crashes.py")
    rounds = max(2, 25 // divide)
    n_items = 800 * rounds
    killed = crashes.kill_racing_writers(folder / "torn", n_items, rounds, seed=5)
    for name in ("torn", "whole"):
        writer = crashes.start(folder / name, n_items, seed=99)
        _, errors = writer.communicate()
        if writer.returncode:
            raise RuntimeError(errors)
    torn, whole = EmbeddingStore.open(folder / "torn"), EmbeddingStore.open(folder / "whole")
    equal = crashes.same_contents(torn, whole)
    damaged = [f"{finding.what}: {finding.detail}" for finding in verify(torn) if finding.state == "damaged"]
    return [
        Row("kill -9 of two concurrent writers", killed, "kills", f">= {2 * rounds}"),
        Row(
            "sets identical to an uninterrupted store after the kills",
            float(equal),
            "",
            ">= 1",
            "",
            "dense and multi-vector",
        ),
        Row("damage found by `store verify` after the kills", len(damaged), "", "<= 0", "", "; ".join(damaged)),
    ]


# --- the measurements, each in a process of its own ---------------------------------------------------------------
def measure_dense(folder: Path, size: dict[str, int]) -> dict[str, float]:
    n, dim, block = size["n"], size["dim"], size["block"]
    megabytes = n * dim * 2 / 1e6
    blocks = list(dense_blocks(n, dim, block, "image"))
    corpus = images(n)
    seconds: dict[str, list[list[float]]] = {}
    for _ in range(7):
        # Both to new files that are gone before the next: pages that a guest touches first cost it several times.
        shutil.rmtree(folder / "store", ignore_errors=True)
        store, spec, key = opened(folder / "store", corpus, dim)
        puts = [both_clocks(partial(store.put, key, spec, one)) for one in blocks]
        sealing = timed(partial(store.seal, key, n_items=n))
        taken = {"store": [clock for clock, _ in puts], "store_busy": [busy for _, busy in puts]}
        taken["sealed"] = [*taken["store"], sealing]
        for kind in ("parquet", "parquet_list"):
            writes = list(write_parquet(folder / f"{kind}.parquet", blocks, kind))
            taken |= {kind: [clock for clock, _ in writes], f"{kind}_busy": [busy for _, busy in writes]}
            (folder / f"{kind}.parquet").unlink()
        for name, each in taken.items():
            seconds.setdefault(name, []).append(each)
    np.save(
        folder / "raw.npy",
        store.vectors(encoder="e", corpus=corpus.name, modality="image").matrix.astype(np.float16),
    )
    reads, loads = [], []
    for _ in range(7):
        reads.append(timed(lambda: store.vectors(encoder="e", corpus=corpus.name, modality="image")))
        loads.append(timed(lambda: np.load(folder / "raw.npy").astype(np.float32)))
    return {
        "bytes": on_disk(store, key) / (n * dim * 2),
        # Of every block the best of the turns: other work on the machine disturbs single blocks.
        **{f"{name}_speed": megabytes / float(np.min(taken, axis=0).sum()) for name, taken in seconds.items()},
        "read_seconds": min(reads),
        "load_seconds": min(loads),
    }


def write_parquet(path: Path, blocks: list[Block], kind: str) -> Iterator[tuple[float, float]]:
    """Seconds for each block (by the wall, of the processor): the rows that a put writes, one row group per block."""
    writer = None
    for block in blocks:
        start, busy = time.perf_counter(), time.process_time()
        n, dim = block.embeddings.values.shape
        # Arrow's cast is the fastest rounding to float16 that pyarrow documents
        values = pc.cast(pa.array(block.embeddings.values.reshape(-1)), pa.float16())
        vectors: pa.Array
        if kind == "parquet_list":
            vectors = pa.FixedSizeListArray.from_arrays(values, dim)
        else:
            vectors = pa.FixedSizeBinaryArray.from_buffers(pa.binary(dim * 2), n, [None, values.buffers()[1]])
        table = pa.table(
            {
                "item_id": pa.array(block.ids),
                "ord": pa.array(block.ords),
                "vector": vectors,
                "norm": pa.array(block.embeddings.norms),
                "n_tokens": pa.array(block.embeddings.n_tokens),
                "truncated": pa.array(block.embeddings.truncated),
                "input_sha": pa.array(block.input_shas),
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema, compression="none")
        writer.write_table(table)
        yield time.perf_counter() - start, time.process_time() - busy
    if writer is not None:
        writer.close()


def measure_multi_write(folder: Path, size: dict[str, int]) -> dict[str, float]:
    n, dim, vectors, block = size["n"], size["dim"], size["vectors"], size["block"]
    corpus = images(n)
    store, spec, key = opened(folder / "store", corpus, dim, vectors="multi")
    pool = unit(POOL, dim)
    generator = np.random.default_rng(1)
    before = 0.0
    for start in range(0, n, block):
        ords = np.arange(start, min(n, start + block), dtype=np.int32)
        values = pool[generator.integers(0, POOL, len(ords) * vectors)]
        offsets = np.arange(len(ords) + 1, dtype=np.int64) * vectors
        store.put(key, spec, as_block(ords, values, offsets))
        before = before or peak_mb()
    store.seal(key, n_items=n)
    return {"bytes": on_disk(store, key) / (n * vectors * dim * 2), "extra_mb": peak_mb() - before}


def measure_multi_read(folder: Path, size: dict[str, int]) -> dict[str, float]:
    store = EmbeddingStore.open(folder / "store")
    store.sealed_sets()
    before = peak_mb()
    start = time.perf_counter()
    total, items = 0.0, 0
    for block in store.multivectors(encoder="e", corpus="bench", modality="image"):
        total += float(block.values[:, 0].astype(np.float32).sum())
        items += len(block)
    if items != size["n"]:
        raise RuntimeError(f"{items} of {size['n']} items came back")
    return {"seconds": time.perf_counter() - start, "extra_mb": peak_mb() - before, "sum": total}


def on_disk(store: EmbeddingStore, key: SetKey) -> int:
    folder = Path(store.uri) / f"{key.table}.lance"
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    _, step, folder, size = sys.argv
    print(json.dumps(globals()[f"measure_{step}"](Path(folder), json.loads(size))))
