"""Stores for tests: random embeddings of rendered scenes, evaluated without a model; and rows of analyses by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store import Block, Embeddings, EmbeddingStore
from capim.store.row_types import TIME, columns_of
from capim.store.schema import TABLES, texts
from capim.store.types import MODALITIES, Corpus, EncoderSpec, Modality

SPECS = (
    EncoderSpec(name="one", adapter="hf_dual", checkpoint="me/one", revision="a1", dim=8),
    EncoderSpec(name="many", adapter="colvision", checkpoint="me/many", revision="a1", dim=8, vectors="multi"),
)
R = TypeVar("R")
OTHER = EncoderSpec(name="other", adapter="hf_dual", checkpoint="me/other", revision="a1", dim=8)


def embeddings(spec: EncoderSpec, n: int, seed: int, near: NDArray[np.float32] | float = 0.0) -> Embeddings:
    """Random unit vectors, drawn around those of ``near``; three per item for a late-interaction encoder."""
    per_item = 3 if spec.vectors == "multi" else 1
    values = np.random.default_rng(seed).normal(size=(n * per_item, spec.dim)).astype(np.float32) + near
    return Embeddings(
        values=values / np.linalg.norm(values, axis=1, keepdims=True),
        norms=np.ones(n, dtype=np.float32),
        n_tokens=np.full(n, per_item, dtype=np.int32),
        truncated=np.zeros(n, dtype=bool),
        offsets=np.arange(n + 1) * per_item if per_item > 1 else None,
    )


def random_store(
    path: Path, corpus: Corpus, specs: Sequence[EncoderSpec] = SPECS, *, signal: float = 0.0
) -> EmbeddingStore:
    """A store with sealed sets of every spec; those of ``OTHER`` are drawn anew, of others with the same seed.

    With a ``signal``, encoders of one vector are better than chance: captions are drawn around so much of their image.
    """
    store = EmbeddingStore.open(path, create=True)
    store.write_corpus(corpus)
    for spec in specs:
        store.write_encoder(spec)
        for modality in MODALITIES:
            ids = texts(corpus.items(modality)["id"])
            seed, near = len(ids) + 1000 * (spec is OTHER), np.zeros(1, dtype=np.float32)
            if signal and modality == "caption":
                images = texts(corpus.images["id"])
                pictures = embeddings(spec, len(images), seed=len(images) + 1000 * (spec is OTHER)).values
                near = np.float32(signal) * pictures[[images.index(of) for of in texts(corpus.captions["image_id"])]]
            put_all(store, spec, corpus, modality, embeddings(spec, len(ids), seed, near))
    return store


def put_all(store: EmbeddingStore, spec: EncoderSpec, corpus: Corpus, modality: Modality, made: Embeddings) -> None:
    """Stores and seals the embeddings of every image or caption of a corpus."""
    ids = texts(corpus.items(modality)["id"])
    key = store.key(encoder=spec.fingerprint, corpus=corpus.fingerprint, modality=modality)
    ords = np.arange(len(ids), dtype=np.int32)
    store.put(key, spec, Block(ords=ords, embeddings=made, input_shas=[""] * len(ids), batch_id="b"))
    store.seal(key)


def scored(store: EmbeddingStore, corpus: Corpus, specs: Sequence[EncoderSpec], **how: Any) -> tuple[Any, ...]:
    """Evaluations of these encoders on a corpus."""
    from capim.tasks.evaluate import score
    from capim.tasks.references import RunSettings, SetsRef

    of_corpus = {"corpus": corpus.name, "corpus_fingerprint": corpus.fingerprint}
    sets = [SetsRef(encoder=spec.name, encoder_fingerprint=spec.fingerprint, **of_corpus) for spec in specs]
    return tuple(score.fn(each, RunSettings(store_uri=store.uri, **how)) for each in sets)


BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
_FILLERS: dict[pa.DataType, Any] = {pa.string(): "x", pa.bool_(): False, TIME: BEGUN, pa.list_(pa.string()): []}


def rows_of(table: str, *rows: dict[str, Any]) -> pa.Table:
    """Rows of a table whose other required columns hold x, 1, False, [] or ``BEGUN``; it may lack columns of theirs."""
    schema = TABLES[table].columns
    filler = {field.name: _FILLERS.get(field.type, 1) for field in schema if not field.nullable}
    return pa.Table.from_pylist([filler | row for row in rows], schema=schema)


def row_of(row_type: type[R], **columns: Any) -> R:
    """A row of a type, whose other required fields hold x, 1, False, [] or ``BEGUN``."""
    required = [field for field in columns_of(row_type) if not field.nullable]
    return row_type(**{field.name: _FILLERS.get(field.type, 1) for field in required} | columns)


def write_row(store: EmbeddingStore, table: str, day: int, **columns: Any) -> str:
    """Stores a row of an analysis that the run of a day wrote; gives its key, unless one is given."""
    key = f"{table}-{day}"
    row = {TABLES[table].key[0]: key, "run": f"run{day:03d}", "created": BEGUN + timedelta(days=day)}
    store.write_rows(table, rows_of(table, row | {"image_tag": "", "caption_tag": ""} | columns))
    return key
