"""Corpora of the shapes that are measured, random vectors for them, and blocks of such vectors for a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store import Block, Corpus, Embeddings, EmbeddingStore, EncoderSpec, SetKey
from capim.store.schema import CAPTIONS, IMAGES
from capim.store.types import Modality, VectorKind
from capim.store.vectors import Ragged
from capim.tasks.corpora.readers.karpathy import read_coco_karpathy
from capim.tasks.corpora.subset import sample_corpus
from capim.tasks.ranking.protocols import build_tasks, select_protocols
from capim.tasks.ranking.tasks import RetrievalTask
from tests.shared_data import SHARED_DATA

SPLIT = SHARED_DATA / "coco_karpathy" / "test_5k.json"
BOTH: tuple[Modality, ...] = ("image", "caption")
POOL = 4096  # different vectors; their order differs from block to block


def karpathy(limit: int | None = None) -> Corpus:
    """The Karpathy test split by ids, with both extra ground truths; its shape alone without the data."""
    if not SPLIT.is_file():
        return by_number(limit or 5000, 5 * (limit or 5000))
    corpus = read_coco_karpathy(SPLIT)
    return corpus if limit is None else sample_corpus(corpus, limit, seed=0)


def both_ways(corpus: Corpus) -> list[RetrievalTask]:
    """Every caption as a query for its image, and every image for any of its captions."""
    tasks = build_tasks(corpus, select_protocols(corpus, ["t2i/all", "i2t/any"]))
    return [task for task in tasks if isinstance(task, RetrievalTask)]


def by_number(n_images: int, n_captions: int = 0) -> Corpus:
    """A corpus of any size, whose ids are numbers; caption ``k`` describes image ``k`` modulo their number, if any."""
    number = np.arange(n_captions)
    images = {"id": ids_of(np.arange(n_images)), "key": [""] * n_images}
    captions = {
        "id": ids_of(number),
        "image_id": ids_of(number % n_images) if n_images else None,
        "text": ["x"] * n_captions,
        "ordinal": (number // max(1, n_images)).astype(np.int32),
        "language": ["en"] * n_captions,
        "translator": ["human"] * n_captions,
    }
    return Corpus(
        name="bench", images=_table(IMAGES, images, n_images), captions=_table(CAPTIONS, captions, n_captions)
    )


def ids_of(numbers: NDArray[np.integer]) -> list[str]:
    """The ids of items of ``by_number``."""
    return [f"i{number:08d}" for number in numbers.tolist()]


def _table(schema: pa.Schema, filled: dict[str, Any], n: int) -> pa.Table:
    given = {name: values for name, values in filled.items() if values is not None}
    columns = [pa.array(given[f.name], f.type) if f.name in given else pa.nulls(n, f.type) for f in schema]
    return pa.table(columns, schema=schema)


def unit(values: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Every row with the length 1."""
    return cast("NDArray[np.float32]", values / np.linalg.norm(values, axis=1, keepdims=True))


def near(
    n_images: int, image_of: NDArray[np.integer], dim: int, *, noise: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Unit vectors of images in clusters of about twenty, and of captions near the image that each describes."""
    rng = np.random.default_rng(0)
    topics = rng.standard_normal((n_images // 20 + 1, dim), dtype=np.float32)
    images = topics[rng.integers(len(topics), size=n_images)] + rng.standard_normal((n_images, dim), dtype=np.float32)
    captions = images[image_of] + np.float32(noise) * rng.standard_normal((len(image_of), dim), dtype=np.float32)
    return unit(images), unit(captions)


def as_block(ords: NDArray[np.int32], values: NDArray[np.float32], offsets: NDArray[np.int64] | None = None) -> Block:
    """Vectors as a store takes them."""
    n = len(ords)
    tokens, whole = np.full(n, 77, np.int32), np.zeros(n, bool)
    norms = np.ones(n, np.float32)
    return Block(
        ords=ords,
        embeddings=Embeddings(values=values, norms=norms, n_tokens=tokens, truncated=whole, offsets=offsets),
        input_shas=["0123456789abcdef" * 2] * n,
        batch_id="bench",
    )


def windows(
    items: Sequence[NDArray[np.floating[Any]]], ords: NDArray[np.int32] | None = None, *, size: int = 128
) -> Iterator[Ragged]:
    """Multi-vectors of items, or of some of them, as a store yields them."""
    wanted = np.arange(len(items)) if ords is None else ords
    for start in range(0, len(wanted), size):
        part = wanted[start : start + size]
        yield Ragged.of([items[ord_] for ord_ in part], ords=part)


def opened(
    folder: Path, corpus: Corpus, dim: int, *, vectors: VectorKind = "single", modality: Modality = "image"
) -> tuple[EmbeddingStore, EncoderSpec, SetKey]:
    """A store with the corpus, its encoder, and the key of a set."""
    store = EmbeddingStore.open(folder, create=True)
    spec = EncoderSpec(
        name="e", adapter="none", checkpoint="none", revision="r1", dim=dim, vectors=vectors, storage="float16"
    )
    store.write_corpus(corpus)
    store.write_encoder(spec)
    return store, spec, store.key(encoder=spec.name, corpus=corpus.name, modality=modality)


def pool(dim: int) -> np.ndarray:
    """The vectors that rows are chosen from."""
    return unit(np.random.default_rng(0).standard_normal((POOL, dim)).astype(np.float32))


def dense_blocks(n: int, dim: int, block: int, start: int = 0) -> Iterator[Block]:
    """Blocks over all positions from ``start`` on; the content of a row depends on its position alone."""
    rows = pool(dim)
    for first in range(start, n, block):
        ords = np.arange(first, min(n, first + block), dtype=np.int32)
        yield as_block(ords, rows[(ords * 7 + ords // POOL) % POOL])
