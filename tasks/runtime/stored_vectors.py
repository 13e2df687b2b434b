"""Stored vectors in the form that the analyses take."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from store import EmbeddingStore
from store.types import Modality
from tasks.diagnosis.ablations.embedded import Embedded, Multi, Ragged, Side, Single

WITHOUT_VECTORS = frozenset({"hit-lists", "two-stage", "fusion"})  # adapters of what stands for others' lists
MOST_IMAGES = 1000  # of a late-interaction encoder: a thousand vectors of 128 float32 each make half a GiB


def vector_reader(
    store: EmbeddingStore, fingerprints: Mapping[str, str], corpus: str, *, seed: int
) -> Callable[[str], Embedded | None]:
    """Reads an encoder's vectors when an analysis asks for them; None where nobody has any (imported hit lists).

    Args:
        store: Where they are.
        fingerprints: Encoder name -> fingerprint.
        corpus: Fingerprint of the corpus.
        seed: Of the choice of ``MOST_IMAGES`` images where a late-interaction encoder has more.
    """

    def single(encoder: str, modality: Modality) -> Side:
        vectors = store.vectors(encoder=encoder, corpus=corpus, modality=modality)
        return Side(matrix=vectors.matrix, norms=vectors.norms)

    def multi(encoder: str, modality: Modality, most: int | None = None) -> tuple[Ragged, NDArray[np.int32]]:
        sealed = store.sealed(store.key(encoder=encoder, corpus=corpus, modality=modality))
        wanted = chosen(0 if sealed is None else sealed.n_rows, most, seed)
        pieces, counts = [], []
        for block in store.multivectors(encoder=encoder, corpus=corpus, modality=modality):
            for at in np.flatnonzero(np.isin(block.ords, wanted)):
                pieces.append(block.values[block.offsets[at] : block.offsets[at + 1]])
                counts.append(len(pieces[-1]))
        values = np.concatenate(pieces).astype(np.float32)
        return Ragged(values=values, offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)), wanted

    def read(name: str) -> Embedded | None:
        encoder = fingerprints[name]
        spec = store.encoder(encoder)
        if spec.adapter in WITHOUT_VECTORS:
            return None
        if spec.vectors == "multi":
            images, ords = multi(encoder, "image", MOST_IMAGES)
            return Multi(images=images, captions=multi(encoder, "caption")[0], image_ords=ords)
        return Single(images=single(encoder, "image"), captions=single(encoder, "caption"))

    return read


def chosen(n: int, most: int | None, seed: int) -> NDArray[np.int32]:
    """All of ``n`` positions, or ``most`` of them drawn without replacement; ascending.

    Examples:
        >>> chosen(3, None, 0).tolist(), chosen(1000, 2, 0).size
        ([0, 1, 2], 2)
    """
    if most is None or n <= most:
        return np.arange(n, dtype=np.int32)
    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False)).astype(np.int32)
