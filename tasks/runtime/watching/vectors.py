"""Some items of a set as they are stored, and encoded again; and the canaries of an endpoint."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.schema import texts
from capim.store.types import Corpus, Modality
from capim.tasks.corpora.images.decode import decode_image
from capim.tasks.encoders import Encoder, encode_captions, encode_images
from capim.tasks.reference.regression import WatchFinding, WatchRule, judge_vectors
from capim.tasks.runtime.canaries import canary_cosines
from capim.tasks.runtime.references import SetsRef
from capim.tasks.runtime.scoring import vectors_of

Vectors = list[NDArray[np.float32]]


def stored_vectors(store: EmbeddingStore, sets: SetsRef, modality: Modality, ords: NDArray[np.int32]) -> Vectors:
    """Stored vectors of these items (``ords`` ascending), each of shape ``(n_vectors, dim)``."""
    vectors = vectors_of(store, sets, modality)
    if callable(vectors):
        return [item.astype(np.float32) for block in vectors(ords) for item in block]
    return [row[None] for row in vectors[ords]]


def fresh_vectors(encoder: Encoder, corpus: Corpus, modality: Modality, ords: NDArray[np.int32]) -> Vectors:
    """The same items encoded now in one batch; empty for images of a corpus without image bytes."""
    if modality == "caption":
        embeddings = encode_captions(encoder, texts(corpus.captions["text"].take(ords)))
    elif corpus.source is None:
        return []
    else:
        keys = texts(corpus.images["key"].take(ords))
        embeddings = encode_images(encoder, [decode_image(corpus.source.read(key)) for key in keys])
    return np.split(embeddings.values, np.cumsum(embeddings.counts)[:-1])


def changed_canaries(store: EmbeddingStore, encoder: Encoder, rule: WatchRule, *, run: str) -> list[WatchFinding]:
    """A finding if the canary vectors of an endpoint have changed; none for a model that runs here."""
    found = canary_cosines(store, encoder, run=run)
    return judge_vectors(f"{encoder.spec.name}, canaries", np.asarray([*found.values()]), rule) if found else []
