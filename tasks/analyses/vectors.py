"""Stored vectors in the form for analyses, and explanations of why a stored caption and image match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.errors import RequestError, unknown
from capim.store.schema import texts
from capim.store.types import MODALITIES, Corpus, Modality
from capim.store.vectors import UNKNOWN, Explanation, Ragged, grids_of, tokens_of
from capim.tasks.analyses.analysis import SingleVectors
from capim.tasks.results.stored import has_vectors


@dataclass(frozen=True)
class StoredVectors:
    """The stored vectors of some encoders on one corpus, in the form of ``AnalysisInput``.

    Attributes:
        fingerprints: Encoder name -> fingerprint.
    """

    store: EmbeddingStore
    fingerprints: Mapping[str, str]
    corpus: Corpus

    def single(self, name: str) -> SingleVectors | None:
        """Return the vectors of an encoder; None for one without one vector per item."""
        encoder, corpus = self.fingerprints[name], self.corpus.fingerprint
        if not has_vectors(self.store, encoder, corpus) or self.store.encoder(encoder).vectors == "multi":
            return None
        images = self.store.vectors(encoder=encoder, corpus=corpus, modality="image")
        captions = self.store.vectors(encoder=encoder, corpus=corpus, modality="caption")
        return SingleVectors(
            images=images.matrix, captions=captions.matrix, image_norms=images.norms, caption_norms=captions.norms
        )

    def items(self, name: str, modality: Modality, ords: NDArray[np.int32]) -> Ragged | None:
        """Return the vectors of some items of an encoder; None for one without vectors."""
        encoder, corpus = self.fingerprints[name], self.corpus.fingerprint
        found = has_vectors(self.store, encoder, corpus)
        return stored_items(self.store, encoder, corpus, modality, ords) if found else None


def stored_items(
    store: EmbeddingStore, encoder: str, corpus: str, modality: Modality, ords: NDArray[np.int32]
) -> Ragged:
    """Return the vectors of some items of a sealed set as stored, in the order of ``ords``, numbered from 0."""
    vectors = store.windows(encoder=encoder, corpus=corpus, modality=modality)
    if not callable(vectors):
        all_at_once = len(ords) > len(vectors) // 8  # one scan is faster than many rows one by one
        return Ragged.from_counts((vectors[:] if all_at_once else vectors)[ords], np.ones(len(ords)))
    distinct, back = np.unique(ords, return_inverse=True)
    found = Ragged.concatenate(vectors(distinct))
    return replace(found.take(back), ords=np.arange(len(ords), dtype=np.int32))


def chosen(n: int, most: int, seed: int) -> NDArray[np.int32]:
    """Return all of ``n`` positions, or ``most`` of them drawn without replacement; ascending.

    Examples:
        >>> chosen(3, 5, 0).tolist(), chosen(1000, 4, 0).tolist(), chosen(1000, 4, 1).tolist()
        ([0, 1, 2], [269, 510, 635, 848], [471, 510, 754, 950])
    """
    if n <= most:
        return np.arange(n, dtype=np.int32)
    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False)).astype(np.int32)


def explain_pair(store: EmbeddingStore, *, encoder: str, corpus: str, caption: str, image: str) -> Explanation:
    """Return the explanation of a stored caption and a stored image, from their stored vectors.

    Args:
        encoder: Name or fingerprint of a late-interaction encoder.
        corpus: Name or fingerprint.

    Raises:
        RequestError: If the encoder has one vector per item, or an id is not in the corpus; all errors together.
    """
    stored = store.corpus(corpus)
    spec = store.encoder(encoder)
    faults = []
    if spec.vectors == "single":
        faults.append(
            f"encoder {encoder!r} has one vector per item; only late-interaction encoders, with vectors of patches and "
            "tokens, can be explained"
        )
    positions = []
    for modality, items, wanted in (("caption", stored.captions, caption), ("image", stored.images, image)):
        ids = texts(items["id"])
        if wanted in ids:
            positions.append(ids.index(wanted))
        else:
            faults.append(f"corpus {stored.name!r}: {unknown(modality, wanted, ids)}")
    if faults:
        raise RequestError(faults)
    [found] = explain_pairs(store, encoder=encoder, corpus=corpus, pairs=[(positions[0], positions[1])])
    return found


def explain_pairs(
    store: EmbeddingStore, *, encoder: str, corpus: str, pairs: Sequence[tuple[int, int]]
) -> list[Explanation]:
    """Return the explanations of some pairs, in their order; each vector is read once.

    Args:
        encoder: Name or fingerprint of a late-interaction encoder.
        corpus: Name or fingerprint.
        pairs: Positions of a caption and an image in the corpus.
    """
    from capim.tasks.ranking.maxsim_products import token_similarities  # imports torch

    spec, stored = store.encoder(encoder), store.corpus(corpus)
    items: dict[tuple[Modality, int], tuple[NDArray[np.float32], str]] = {}
    for modality, side in zip(MODALITIES, (1, 0), strict=True):
        key = store.key(encoder=spec.fingerprint, corpus=stored.fingerprint, modality=modality)
        for rows in store.stored_blocks(key, ords=np.unique(np.array([pair[side] for pair in pairs], np.int32))):
            layouts = [UNKNOWN] * len(rows.ords) if rows.layouts is None else texts(rows.layouts)
            for position, vectors, layout in zip(rows.ords.tolist(), rows.vectors, layouts, strict=True):
                items[modality, position] = vectors.astype(np.float32), layout
    found = []
    for caption, image in pairs:
        (of_caption, tokens), (of_image, grids) = items["caption", caption], items["image", image]
        similarities, shares = token_similarities(of_caption, of_image)
        found.append(
            Explanation(
                encoder=spec.name,
                corpus=stored.name,
                caption_id=str(stored.captions["id"][caption]),
                image_id=str(stored.images["id"][image]),
                text=stored.captions["text"][caption].as_py() or "",
                sha=stored.images["sha"][image].as_py() or "",
                tokens=tokens_of(tokens) or tuple(f"token {n}" for n in range(1, len(shares) + 1)),
                shares=shares,
                similarities=similarities,
                grids=grids_of(grids),
            )
        )
    return found
