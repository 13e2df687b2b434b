"""Stored outcomes and stored vectors in the form that analyses take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.errors import WorkError
from capim.store.keys import spec_from_json
from capim.store.types import MODALITIES, Corpus, Modality
from capim.store.values import Ragged
from capim.tasks.analyses.analysis_input import LateInteractionVectors, SingleVectors, StoredVectors
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.outcomes import Outcomes


def read_outcomes(store: EmbeddingStore, evaluation: str, protocol: Protocol) -> Outcomes:
    """The outcomes of one evaluation.

    Raises:
        WorkError: They are not in the store, though results of them are.
    """
    rows = store.rows("outcomes", evaluation=evaluation)
    if not rows.num_rows:
        raise WorkError(
            f"no outcomes of evaluation {evaluation} ({protocol.id}) in {store.uri}; run `capim evaluate` again"
        )
    return Outcomes.from_arrow(rows, protocol)


def newest_evaluations(store: EmbeddingStore, wanted: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """A row of results for each encoder, corpus and protocol that has outcomes, of several evaluations the newest.

    ``wanted`` are columns with their values, as ``EmbeddingStore.rows`` takes them. Sorted by corpus and protocol.
    """
    rows = sorted(store.rows("results", **wanted).to_pylist(), key=lambda row: row["created"])
    single = [row for row in rows if not set("*+") & set(row["protocol"])]  # others are figures over several protocols
    newest = {(row["corpus_fingerprint"], row["protocol"], row["encoder"]): row for row in single}
    return [row for _, row in sorted(newest.items())]


WITHOUT_VECTORS = frozenset({"outcomes", "two-stage", "fusion"})  # adapters of encoders that have outcomes only


def outcome_encoders(store: EmbeddingStore) -> set[str]:
    """Names and fingerprints of the encoders that have outcomes only; of a name, what was last registered under it."""
    rows = sorted(store.encoders().to_pylist(), key=lambda row: row["written"])
    adapters = {row[key]: spec_from_json(row["spec"]).adapter for row in rows for key in ("fingerprint", "name")}
    return {encoder for encoder, adapter in adapters.items() if adapter in WITHOUT_VECTORS}


def has_vectors(store: EmbeddingStore, encoder: str, corpus: str) -> bool:
    """Whether both sets of an encoder on a corpus are sealed: they may have been dropped, and their results kept."""
    keys = [store.key(encoder=encoder, corpus=corpus, modality=modality) for modality in MODALITIES]
    return all(store.sealed(key) is not None for key in keys)


MOST_IMAGES = 1000  # of a late-interaction encoder: with a thousand vectors of 128 float32 each, half a GiB


def vector_reader(
    store: EmbeddingStore, fingerprints: Mapping[str, str], corpus: str, *, seed: int
) -> Callable[[str], StoredVectors | None]:
    """A function that reads the vectors of an encoder by name; it returns None for encoders without vectors.

    Where a late-interaction encoder has more than ``MOST_IMAGES`` images, a sample of so many is drawn with ``seed``.
    """

    def late(encoder: str, modality: Modality, most: int | None = None) -> Ragged:
        key = store.key(encoder=encoder, corpus=corpus, modality=modality)
        sealed = store.sealed(key)
        ords = chosen(0 if sealed is None else sealed.n_rows, most, seed)
        wanted = Ragged.concatenate(rows.vectors for rows in store.stored_blocks(key, ords=ords))
        return wanted.with_values(wanted.values.astype(np.float32))

    def read(name: str) -> StoredVectors | None:
        encoder = fingerprints[name]
        spec = store.encoder(encoder)
        if spec.adapter in WITHOUT_VECTORS or not has_vectors(store, encoder, corpus):
            return None
        if spec.vectors == "multi":
            return LateInteractionVectors(images=late(encoder, "image", MOST_IMAGES), captions=late(encoder, "caption"))
        images = store.vectors(encoder=encoder, corpus=corpus, modality="image")
        captions = store.vectors(encoder=encoder, corpus=corpus, modality="caption")
        return SingleVectors(
            images=images.matrix, captions=captions.matrix, image_norms=images.norms, caption_norms=captions.norms
        )

    return read


def read_truncated(
    store: EmbeddingStore, fingerprints: Mapping[str, str], corpus: Corpus
) -> dict[str, NDArray[np.bool_]]:
    """Encoder name -> which captions were longer than its model reads, of the encoders that truncated any."""
    rows = store.sql(
        "SELECT corpus_fingerprint, encoder_fingerprint, ord FROM embeddings WHERE truncated AND modality = 'caption'"
    ).filter(pc.field("corpus_fingerprint") == corpus.fingerprint)
    by_encoder: dict[str, NDArray[np.bool_]] = {}
    for name, fingerprint in fingerprints.items():
        ords = rows.filter(pc.field("encoder_fingerprint") == fingerprint)["ord"].to_numpy()
        if len(ords):
            by_encoder[name] = np.isin(np.arange(len(corpus.captions)), ords)
    return by_encoder


def chosen(n: int, most: int | None, seed: int) -> NDArray[np.int32]:
    """All of ``n`` positions, or ``most`` of them drawn without replacement; ascending.

    Examples:
        >>> chosen(3, None, 0).tolist(), chosen(1000, 2, 0).size
        ([0, 1, 2], 2)
    """
    if most is None or n <= most:
        return np.arange(n, dtype=np.int32)
    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False)).astype(np.int32)
