"""The nine made-up models of ``tests.reports.large`` in a store on disk.

``python -m tests.benchmarks.large_store DIR [QUERIES]``. Outcomes with lists of the top hundred for every caption and
model, all rows of a report, some thumbnails, and the vectors of the first model, drawn at random.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from capim.store import Block, Embeddings, EmbeddingStore
from capim.store.schema import texts
from capim.store.types import EncoderSpec, IndexedImage, Modality
from tests.reports.large import coco
from tests.reports.stand_in import SCHEMAS

CAPTIONS = 5  # of an image
AT_ONCE = 10_000  # vectors in memory


def make(folder: Path, *, n_queries: int = 100_000, n_models: int = 9, n_pictures: int = 200) -> EmbeddingStore:
    """The store, written with the store's own writers."""
    made = coco(n_images=n_queries // CAPTIONS, n_models=n_models, n_languages=3, n_pictures=n_pictures)
    store = EmbeddingStore.open(folder, create=True)
    for corpus in made.contents.values():
        store.write_corpus(corpus)
    for spec in made.specs.values():
        store.write_encoder(spec)
    store.write_image_index(IndexedImage(sha, 213, 160, bytes_, None) for sha, bytes_ in made.pictures.items())
    for table, rows in made.tables.items():
        if rows:
            own = {"pid": 1} if table == "runs" else {}  # which no report shows
            store.write_rows(table, pa.Table.from_pylist([{**own, **row} for row in rows], schema=SCHEMAS[table]))
    for evaluation in sorted(made.arrow):
        store.write_rows("outcomes", made.arrow.pop(evaluation))
    modalities: tuple[Modality, ...] = ("image", "caption")
    for modality in modalities:
        _embed(store, next(iter(made.specs.values())), modality)
    return store


def _embed(store: EmbeddingStore, spec: EncoderSpec, modality: Modality) -> None:
    """Random unit vectors around a hundred centres."""
    key = store.key(encoder=spec.name, corpus="coco-karpathy", modality=modality)
    ids = texts(store.items("coco-karpathy", modality)["id"])
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(100, spec.dim)).astype(np.float32)
    for start in range(0, len(ids), AT_ONCE):
        part = ids[start : start + AT_ONCE]
        values = centres[rng.integers(0, 100, len(part))] + rng.normal(size=(len(part), spec.dim)).astype(np.float32)
        block = Block(
            ords=np.arange(start, start + len(part), dtype=np.int32),
            ids=part,
            embeddings=Embeddings(
                values=(values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32),
                norms=np.ones(len(part), np.float32),
                n_tokens=np.ones(len(part), np.int32),
                truncated=np.zeros(len(part), bool),
            ),
            input_shas=[""] * len(part),
            batch_id="b",
        )
        store.put(key, spec, block)
    store.seal(key, n_items=len(ids))


if __name__ == "__main__":
    make(Path(sys.argv[1]), n_queries=int(sys.argv[2]) if len(sys.argv) > 2 else 100_000)
