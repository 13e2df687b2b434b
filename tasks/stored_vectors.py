"""Stored vectors in the form that the analyses take."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from store import EmbeddingStore
from store.types import Modality
from tasks.analysis.embedded import Embedded, Multi, Ragged, Side, Single


def vector_reader(store: EmbeddingStore, fingerprints: Mapping[str, str], corpus: str) -> Callable[[str], Embedded]:
    """Reads an encoder's vectors when an analysis asks for them.

    Args:
        store: Where they are.
        fingerprints: Encoder name -> fingerprint.
        corpus: Fingerprint of the corpus.
    """

    def single(encoder: str, modality: Modality) -> Side:
        vectors = store.vectors(encoder=encoder, corpus=corpus, modality=modality)
        return Side(matrix=vectors.matrix, norms=vectors.norms)

    def multi(encoder: str, modality: Modality) -> Ragged:
        blocks = list(store.multivectors(encoder=encoder, corpus=corpus, modality=modality))
        counts = np.concatenate([np.diff(block.offsets) for block in blocks])
        values = np.concatenate([block.values.astype(np.float32) for block in blocks])
        return Ragged(values=values, offsets=np.concatenate([[0], np.cumsum(counts)]))

    def read(name: str) -> Embedded:
        encoder = fingerprints[name]
        if store.encoder(encoder).vectors == "multi":
            return Multi(images=multi(encoder, "image"), captions=multi(encoder, "caption"))
        return Single(images=single(encoder, "image"), captions=single(encoder, "caption"))

    return read
