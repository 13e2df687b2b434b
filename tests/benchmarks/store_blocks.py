"""Sets for the benchmarks of the store: one encoder of any size, and blocks whose rows depend on their position."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from capim.store import Block, Corpus, EmbeddingStore, EncoderSpec, SetKey
from capim.store.types import Modality, VectorKind
from tests.benchmarks.made import as_block, kept_in, unit

POOL = 4096  # different vectors; their order differs from block to block


def opened(
    folder: Path, corpus: Corpus, dim: int, *, vectors: VectorKind = "single", modality: Modality = "image"
) -> tuple[EmbeddingStore, EncoderSpec, SetKey]:
    """A store with the corpus, its encoder, and the key of a set."""
    store = EmbeddingStore.open(folder, create=True)
    spec = EncoderSpec(
        name="e", adapter="none", checkpoint="none", revision="r1", dim=dim, vectors=vectors, storage="float16"
    )
    return store, spec, kept_in(store, corpus, spec, modality)


def pool(dim: int) -> np.ndarray:
    """The vectors that rows are chosen from."""
    return unit(np.random.default_rng(0).standard_normal((POOL, dim)).astype(np.float32))


def dense_blocks(n: int, dim: int, block: int, start: int = 0) -> Iterator[Block]:
    """Blocks over all positions from ``start`` on; the content of a row depends on its position alone."""
    rows = pool(dim)
    for first in range(start, n, block):
        ords = np.arange(first, min(n, first + block), dtype=np.int32)
        yield as_block(ords, rows[(ords * 7 + ords // POOL) % POOL])
