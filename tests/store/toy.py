"""Small stores, corpora and embeddings with values that can be worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from capim.store import Block, Corpus, Embeddings, EmbeddingStore, EncoderSpec, SetKey
from capim.store.schema import CAPTIONS, IMAGES
from capim.store.types import Modality
from capim.store.upkeep.integrity import verify
from capim.store.vectors import offsets_of


def make_corpus(n_images: int = 20, name: str = "toy", languages: tuple[str, ...] = ("en",)) -> Corpus:
    """Two captions for each image, language and translator."""
    images = [
        {"id": f"i{i:05d}", "key": f"{i}.png", "sha": f"{i:032x}", "width": 8, "height": 6} for i in range(n_images)
    ]
    captions = [
        {
            "id": f"{language}/human/{2 * i + ordinal}",
            "image_id": f"i{i:05d}",
            "text": f"{language} text {i} {ordinal}",
            "ordinal": ordinal,
            "language": language,
            "translator": "human",
        }
        for i in range(n_images)
        for language in languages
        for ordinal in range(2)
    ]
    return Corpus(
        name=name,
        images=pa.Table.from_pylist(images, schema=IMAGES),
        captions=pa.Table.from_pylist(captions, schema=CAPTIONS),
        licence="CC0-1.0",
        origin="tests",
    )


def make_spec(**changes: Any) -> EncoderSpec:
    fields: dict[str, Any] = {"name": "enc", "adapter": "none", "checkpoint": "none", "revision": "r1", "dim": 16}
    return EncoderSpec(**(fields | changes))


def make_key(corpus: Corpus, spec: EncoderSpec, modality: Modality = "image") -> SetKey:
    return SetKey.of(spec, corpus.name, corpus.fingerprint, modality)


def make_embeddings(ords: Any, spec: EncoderSpec) -> Embeddings:
    """Unit vectors that depend on nothing but the position; item ``i`` of a multi-vector set has ``1 + i % 3``."""
    values, counts = [], []
    for position in np.asarray(ords).tolist():
        count = 1 + position % 3 if spec.vectors == "multi" else 1
        rows = np.random.default_rng(position).standard_normal((count, spec.dim)).astype(np.float32)
        values.append(rows / np.linalg.norm(rows, axis=1, keepdims=True))
        counts.append(count)
    n = len(counts)
    return Embeddings(
        values=np.concatenate(values) if values else np.empty((0, spec.dim), np.float32),
        norms=np.full(n, 2.0, np.float32),
        n_tokens=np.asarray(ords, np.int32) % 7,
        truncated=np.asarray(ords) % 2 == 0,
        offsets=offsets_of(counts) if spec.vectors == "multi" else None,
    )


def make_block(spec: EncoderSpec, ords: Any, batch_id: str = "b0") -> Block:
    ords = np.asarray(ords, dtype=np.int32)
    made, hashes = make_embeddings(ords, spec), ["ab" * 16] * len(ords)
    return Block(ords=ords, embeddings=made, input_shas=hashes, batch_id=batch_id)


def fill(
    store: EmbeddingStore, corpus: Corpus, spec: EncoderSpec, modality: Modality = "image", step: int = 7
) -> SetKey:
    """Writes and seals one whole set in blocks of ``step``."""
    store.write_corpus(corpus)
    store.write_encoder(spec)
    key, n = make_key(corpus, spec, modality), corpus.items(modality).num_rows
    for start in range(0, n, step):
        store.put(key, spec, make_block(spec, range(start, min(n, start + step))))
    store.seal(key)
    return key


def begin(store: EmbeddingStore, n_images: int, **changes: Any) -> tuple[EncoderSpec, SetKey]:
    """Registers a corpus of so many images and an encoder; gives the encoder, and the key of the set of images."""
    corpus, spec = make_corpus(n_images), make_spec(**changes)
    store.write_corpus(corpus)
    store.write_encoder(spec)
    return spec, make_key(corpus, spec)


def states(store: EmbeddingStore) -> set[str]:
    """Those that ``capim store verify`` finds in it, as another process."""
    return {check.state for check in verify(EmbeddingStore.open(store.uri))}
