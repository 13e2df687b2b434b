"""The embedding store beside plain files: size, speed, memory at a million rows, and fifty kills.

Each measurement is a process of its own, so that its peak memory is its own; what is compared is timed in turns in the
same process, on the same rows. Run alone: ``python -m tests.benchmarks.bench_store``.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from store import Block, Corpus, Embeddings, EmbeddingStore, EncoderSpec, SetKey
from store.keys import table_of
from store.schema import CAPTIONS, IMAGES
from tests.benchmarks.rows import Row

REPOSITORY = Path(__file__).resolve().parents[2]
POOL = 4096  # different vectors; their order differs from block to block
DENSE = {"n": 25_010, "dim": 1024, "block": 4096}
MULTI = {"n": 5000, "dim": 128, "vectors": 1030, "block": 64}
CAPTIONS_ROWS = {"n": 1_500_000, "dim": 768, "block": 4096}
MILLION = {"n": 1_000_000, "dim": 768, "block": 4096}


def run(quick: bool = False) -> list[Row]:
    """Every figure; ``quick`` divides the sizes by 50 and shows only that it works."""
    rows = []
    for step in (dense, multi, captions, million, kills):
        with tempfile.TemporaryDirectory() as folder:
            rows += step(Path(folder), 50 if quick else 1)
    return rows


def dense(folder: Path, divide: int) -> list[Row]:
    size = DENSE | {"n": max(2000, DENSE["n"] // divide)}
    found = measured("dense", folder, size)
    name = f"{size['n']:,} × {size['dim']} float16"
    return [
        Row(f"bytes on disk per vector byte, {name}", found["bytes"], "×", "<= 1.06", "raw vectors"),
        Row(
            f"write speed over Parquet, {name}",
            found["store_speed"] / found["parquet_speed"],
            "×",
            ">= 0.5",
            "pyarrow, fixed-size binary column, same rows",
            f"{found['store_speed']:.0f} and {found['parquet_speed']:.0f} MB/s; "
            f"Parquet with a list column {found['parquet_list_speed']:.0f} MB/s",
        ),
        Row(
            f"read into a float32 matrix, {name}",
            found["read_seconds"] / found["load_seconds"],
            "×",
            "<= 6",
            "np.load and cast",
            f"{found['read_seconds']:.3f} and {found['load_seconds']:.3f} s; every row's checksum compared",
        ),
    ]


def multi(folder: Path, divide: int) -> list[Row]:
    size = MULTI | {"n": max(256, MULTI["n"] // divide)}
    written = measured("multi_write", folder, size)
    read = measured("multi_read", folder, size)
    name = f"{size['n']:,} × {size['vectors']:,} × {size['dim']} float16"
    return [
        Row(f"bytes on disk per vector byte, {name}", written["bytes"], "×", "<= 1.02", "raw vectors"),
        Row(
            f"memory above the start while streaming {name}",
            read["extra_mb"],
            "MB",
            "< 300",
            "",
            f"{read['seconds']:.1f} s",
        ),
        Row(
            f"memory above the start while writing and sealing {name}",
            written["extra_mb"],
            "MB",
            "",
            "",
            "blocks of 64",
        ),
    ]


def captions(folder: Path, divide: int) -> list[Row]:
    size = CAPTIONS_ROWS | {"n": CAPTIONS_ROWS["n"] // divide}
    found = measured("fill", folder, size | {"modality": "caption"})
    name = f"{size['n']:,} captions × {size['dim']} float16"
    return [
        Row(
            f"processor time per row, last tenth over first, {name}",
            found["slowdown"],
            "×",
            "<= 1.2",
            "",
            f"by the clock {found['wall_slowdown']:.2f}; {found['speed']:.0f} MB/s",
        ),
        Row(
            f"memory gained over the second half, {name}",
            found["growth_mb"],
            "MB",
            "< 100",
            "",
            f"peak {found['peak_mb']:.0f} MB; 0 with MALLOC_MMAP_THRESHOLD_=1000000: the allocator's fragments",
        ),
    ]


def million(folder: Path, divide: int) -> list[Row]:
    size = MILLION | {"n": MILLION["n"] // divide, "modality": "image"}
    half = dict(size, stop=0.5)
    killed = subprocess.Popen(command("fill", folder, half), stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    assert killed.stdout is not None
    killed.stdout.readline()  # half is written
    time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    found = measured("fill", folder, size)
    sealed = measured("seal_and_read", folder, size)
    name = f"{size['n']:,} × {size['dim']} float16"
    return [
        Row(f"rows kept by a kill at about half, {name}", found["found"] / size["n"], "share", ">= 0.45"),
        Row(
            f"processor time per row, last tenth over first, {name}",
            found["slowdown"],
            "×",
            "<= 1.2",
            "",
            f"after the kill; by the clock {found['wall_slowdown']:.2f}",
        ),
        Row(f"peak memory of writing, {name}", found["peak_mb"], "MB", "< 2048"),
        Row(f"peak memory of sealing and reading in windows, {name}", sealed["peak_mb"], "MB", "< 2048"),
        Row(f"seal, {name}", sealed["seal_seconds"], "s"),
        Row(f"read, {name}", sealed["read_seconds"], "s", "", "", f"{sealed['rows']:,.0f} rows, all bits as given"),
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
    damaged = [f"{finding.what}: {finding.detail}" for finding in torn.verify() if finding.state == "damaged"]
    return [
        Row("kills -9 of two racing writers at work", killed, "kills", f">= {2 * rounds}"),
        Row(
            "sets bit-equal to an uninterrupted store after them",
            float(equal),
            "",
            ">= 1",
            "",
            "dense and multi-vector",
        ),
        Row("findings of damage by `store verify` after them", len(damaged), "", "<= 0", "", "; ".join(damaged)),
    ]


# --- the measurements, each in a process of its own ---------------------------------------------------------------
def measure_dense(folder: Path, size: dict[str, int]) -> dict[str, float]:
    n, dim, block = size["n"], size["dim"], size["block"]
    megabytes = n * dim * 2 / 1e6
    blocks = list(dense_blocks(n, dim, block, "image"))
    corpus = images(n)
    seconds: dict[str, list[list[float]]] = {"store": [], "parquet": [], "parquet_list": []}
    for turn in range(5):
        store, spec, key = opened(folder / f"store{turn}", corpus, dim)
        seconds["store"].append([timed(partial(store.put, key, spec, one)) for one in blocks])
        for kind in ("parquet", "parquet_list"):
            seconds[kind].append(list(write_parquet(folder / f"{kind}.parquet", blocks, kind)))
    store.seal(key, n_items=n)
    np.save(
        folder / "raw.npy", store.vectors(encoder="e", corpus=corpus.name, modality="image").matrix.astype(np.float16)
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


def write_parquet(path: Path, blocks: list[Block], kind: str) -> Iterator[float]:
    """Seconds for each block: the rows that a put writes, from the same float32 blocks, one row group per block."""
    writer = None
    for block in blocks:
        start = time.perf_counter()
        values = block.embeddings.values.astype(np.float16)
        n, dim = values.shape
        if kind == "parquet_list":
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), dim)
        else:
            vectors = pa.FixedSizeBinaryArray.from_buffers(pa.binary(dim * 2), n, [None, pa.py_buffer(values)])
        table = pa.table(
            {
                "item_id": block.ids,
                "ord": block.ords,
                "vector": vectors,
                "norm": block.embeddings.norms,
                "n_tokens": block.embeddings.n_tokens,
                "truncated": block.embeddings.truncated,
                "input_sha": block.input_shas,
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema, compression="none")
        writer.write_table(table)
        yield time.perf_counter() - start
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


def measure_fill(folder: Path, size: dict[str, object]) -> dict[str, float]:
    """Writes what is missing of a set; prints ``half`` on the way if it is to be killed there."""
    n, dim, block = int(str(size["n"])), int(str(size["dim"])), int(str(size["block"]))
    modality = str(size["modality"])
    corpus = images(n) if modality == "image" else captioned(n)
    store, spec, key = opened(folder / "store", corpus, dim, modality=modality)
    missing = store.missing(key, n)
    stop = float(str(size.get("stop", 2.0))) * n
    taken, processor, memory = [], [], []
    for one in dense_blocks(n, dim, block, modality, start=int(missing[0])):
        start, busy = time.perf_counter(), time.process_time()
        store.put(key, spec, one)
        taken.append((time.perf_counter() - start) / len(one))
        processor.append((time.process_time() - busy) / len(one))
        memory.append(resident_mb())
        if one.ords[-1] >= stop:
            print("half", flush=True)
            stop = 2.0 * n
    tenth = max(1, len(taken) // 10)
    return {
        "found": n - len(missing),
        # Of the processor: the clock on the wall also shows other work on the machine and the disk's own cache.
        "slowdown": float(np.median(processor[-tenth - 1 : -1]) / np.median(processor[1 : tenth + 1])),
        "wall_slowdown": float(np.quantile(taken[-tenth - 1 : -1], 0.25) / np.quantile(taken[1 : tenth + 1], 0.25)),
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
    for got in store.iter_vectors(encoder="e", corpus="bench", modality="image", window=block):
        given = next(expected).embeddings.values.astype(np.float16).astype(np.float32)
        if not np.array_equal(got.matrix, given):
            raise RuntimeError(f"rows from {rows} on are not what was written")
        rows += len(got)
    return {
        "seal_seconds": seal_seconds,
        "read_seconds": time.perf_counter() - start,
        "rows": rows,
        "peak_mb": peak_mb(),
    }


# --- what they are made of ----------------------------------------------------------------------------------------
def images(n: int) -> Corpus:
    nothing = {"sha": pa.string(), "width": pa.int32(), "height": pa.int32(), "objects": pa.list_(pa.string())}
    columns = {"id": [f"i{i:08d}" for i in range(n)], "key": pa.repeat("", n)}
    table = pa.table(columns | {name: pa.nulls(n, kind) for name, kind in nothing.items()}, schema=IMAGES)
    return Corpus(name="bench", images=table, captions=CAPTIONS.empty_table())


def captioned(n: int) -> Corpus:
    columns = {
        "id": [f"i{i:08d}" for i in range(n)],
        "image_id": pa.nulls(n, pa.string()),
        "text": pa.nulls(n, pa.string()),
        "ordinal": pa.array(np.zeros(n, np.int32)),
        "language": pa.repeat("en", n),
        "translator": pa.repeat("human", n),
        "annotation_id": pa.nulls(n, pa.string()),
    }
    return Corpus(name="bench", images=IMAGES.empty_table(), captions=pa.table(columns, schema=CAPTIONS))


def opened(
    folder: Path, corpus: Corpus, dim: int, *, vectors: str = "single", modality: str = "image"
) -> tuple[EmbeddingStore, EncoderSpec, SetKey]:
    store = EmbeddingStore.open(folder, create=True)
    store.write_corpus(corpus)
    spec = EncoderSpec(name="e", adapter="none", checkpoint="none", revision="r1", dim=dim, vectors=vectors)
    store.write_encoder(spec)
    key = SetKey(
        corpus=corpus.name,
        corpus_fingerprint=corpus.fingerprint,
        modality=modality,
        encoder=spec.name,
        encoder_fingerprint=spec.fingerprint,
        vectors=spec.vectors,
    )
    return store, spec, key


def unit(n: int, dim: int) -> np.ndarray:
    values = np.random.default_rng(0).standard_normal((n, dim)).astype(np.float32)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def dense_blocks(n: int, dim: int, block: int, modality: str, start: int = 0) -> Iterator[Block]:
    """Blocks over all positions from ``start`` on; what a row holds depends on its position alone."""
    pool = unit(POOL, dim)
    for first in range(start, n, block):
        ords = np.arange(first, min(n, first + block), dtype=np.int32)
        yield as_block(ords, pool[(ords * 7 + ords // POOL) % POOL])


def as_block(ords: np.ndarray, values: np.ndarray, offsets: np.ndarray | None = None) -> Block:
    n = len(ords)
    embeddings = Embeddings(
        values=values,
        norms=np.ones(n, np.float32),
        n_tokens=np.full(n, 77, np.int32),
        truncated=np.zeros(n, bool),
        offsets=offsets,
    )
    return Block(
        ords=ords,
        ids=[f"i{position:08d}" for position in ords.tolist()],
        embeddings=embeddings,
        input_shas=["0123456789abcdef" * 2] * n,
        batch_id="bench",
    )


def on_disk(store: EmbeddingStore, key: SetKey) -> int:
    folder = Path(store.uri) / f"{table_of(key)}.lance"
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def load(path: Path) -> object:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def command(step: str, folder: Path, size: dict[str, object]) -> list[str]:
    return [sys.executable, "-m", "tests.benchmarks.bench_store", step, str(folder), json.dumps(size)]


def measured(step: str, folder: Path, size: dict[str, object]) -> dict[str, float]:
    """What a measurement in a process of its own found."""
    done = subprocess.run(command(step, folder, size), stdout=subprocess.PIPE, text=True, check=True, cwd=REPOSITORY)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _, step, folder, size = sys.argv
        print(json.dumps(globals()[f"measure_{step}"](Path(folder), json.loads(size))))
    else:
        for row in run():
            print(f"{row.name:70s} {row.value:10.4g} {row.unit:6s} {row.bar:8s} {row.note}")
