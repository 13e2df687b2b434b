"""Stored outcomes, as metrics and analyses take them, and the evaluations that are current."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from capim.store import EmbeddingStore
from capim.store.errors import WorkError
from capim.store.schema import Result
from capim.store.types import MODALITIES, EncoderSpec
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.outcomes import Outcomes

K = TypeVar("K")


def read_outcomes(store: EmbeddingStore, evaluation: str, protocol: Protocol) -> Outcomes:
    """Return the outcomes of one evaluation.

    Raises:
        WorkError: They are not in the store, though results of them are.
    """
    return read_all_outcomes(store, {evaluation: evaluation}, protocol)[evaluation]


def read_all_outcomes(store: EmbeddingStore, evaluations: Mapping[K, str], protocol: Protocol) -> dict[K, Outcomes]:
    """Return the outcomes of several evaluations under one protocol, in one pass; see :func:`read_outcomes`.

    ``evaluations`` are ids under any key.
    """
    rows = store.outcomes([*evaluations.values()])
    for evaluation in evaluations.values():
        if not rows[evaluation].num_rows:
            raise WorkError(
                f"no outcomes of evaluation {evaluation} ({protocol.id}) in {store.uri}; run `capim evaluate` again"
            )
    return {
        key: replace(Outcomes.from_arrow(rows[evaluation], protocol), evaluation=evaluation)
        for key, evaluation in evaluations.items()
    }


def current_evaluations(store: EmbeddingStore, **equals: str | Sequence[str]) -> list[Result]:
    """Return a row of results for each encoder, corpus and protocol that has outcomes, of the newest evaluation.

    ``equals`` are as :meth:`EmbeddingStore.evaluated` takes them. Sorted by corpus and protocol.
    """
    return [row for row in store.evaluated(**equals) if not Protocol.of(row.protocol).is_combined]


def outcome_encoders(store: EmbeddingStore) -> set[str]:
    """Return names and fingerprints of encoders with outcomes only; for a name, the one registered last."""
    rows = sorted(store.encoders(), key=lambda row: row.written)
    specs: dict[str, EncoderSpec] = {}
    for row in rows:
        specs |= dict.fromkeys((row.fingerprint, row.name), EncoderSpec.from_json(row.spec))
    return {encoder for encoder, spec in specs.items() if not spec.has_vectors}


def has_vectors(store: EmbeddingStore, encoder: str, corpus: str) -> bool:
    """True if both sets of an encoder on a corpus are sealed: they may have been dropped, and their results kept."""
    if not store.encoder(encoder).has_vectors:
        return False
    keys = [store.key(encoder=encoder, corpus=corpus, modality=modality) for modality in MODALITIES]
    return all(store.sealed(key) is not None for key in keys)
