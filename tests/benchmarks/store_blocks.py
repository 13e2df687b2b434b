"""Corpora and blocks for the benchmarks of the store, and measurements in separate processes."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from capim.store import Block, Corpus, Embeddings, EmbeddingStore, EncoderSpec, SetKey
from capim.store.schema import CAPTIONS, IMAGES
from capim.store.types import Modality, VectorKind
from tests.benchmarks.rows import timed

REPOSITORY = Path(__file__).resolve().parents[2]
POOL = 4096  # different vectors; their order differs from block to block


def images(n: int) -> Corpus:
    filled = {"id": pa.array([f"i{i:08d}" for i in range(n)]), "key": pa.array([""] * n)}
    table = pa.table([filled.get(field.name, pa.nulls(n, field.type)) for field in IMAGES], schema=IMAGES)
    return Corpus(name="bench", images=table, captions=CAPTIONS.empty_table())


def captioned(n: int) -> Corpus:
    filled: dict[str, pa.Array] = {
        "id": pa.array([f"i{i:08d}" for i in range(n)]),
        "ordinal": pa.array(np.zeros(n, np.int32)),
        "language": pa.array(["en"] * n),
        "translator": pa.array(["human"] * n),
    }
    table = pa.table([filled.get(field.name, pa.nulls(n, field.type)) for field in CAPTIONS], schema=CAPTIONS)
    return Corpus(name="bench", images=IMAGES.empty_table(), captions=table)


def opened(
    folder: Path, corpus: Corpus, dim: int, *, vectors: VectorKind = "single", modality: Modality = "image"
) -> tuple[EmbeddingStore, EncoderSpec, SetKey]:
    store = EmbeddingStore.open(folder, create=True)
    store.write_corpus(corpus)
    spec = EncoderSpec(
        name="e", adapter="none", checkpoint="none", revision="r1", dim=dim, vectors=vectors, storage="float16"
    )
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
    """Blocks over all positions from ``start`` on; the content of a row depends on its position alone."""
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


def both_clocks(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the wall and of the processor, all threads together."""
    busy = time.process_time()
    seconds = timed(work)
    return seconds, time.process_time() - busy


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def measured(group: str, step: str, folder: Path, size: Mapping[str, object]) -> dict[str, float]:
    """Results of a measurement that runs in a separate process."""
    done = subprocess.run(
        command(group, step, folder, size), stdout=subprocess.PIPE, text=True, check=True, cwd=REPOSITORY
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def command(group: str, step: str, folder: Path, size: Mapping[str, object]) -> list[str]:
    """The command that runs ``measure_STEP`` of a group alone; it prints its results as JSON in the last line."""
    return [sys.executable, "-m", f"tests.benchmarks.bench_{group}", step, str(folder), json.dumps(size)]
