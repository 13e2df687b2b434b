"""Stored outcomes, as metrics and analyses take them, and the evaluations that are current."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from capim.store import EmbeddingStore
from capim.store.current import newest_rows
from capim.store.errors import WorkError
from capim.store.schema import Result
from capim.store.types import MODALITIES, EncoderSpec
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.outcomes import Outcomes

K = TypeVar("K")


def read_outcomes(store: EmbeddingStore, evaluation: str, protocol: Protocol) -> Outcomes:
    """The outcomes of one evaluation.

    Raises:
        WorkError: They are not in the store, though results of them are.
    """
    return read_all_outcomes(store, {evaluation: evaluation}, protocol)[evaluation]


def read_all_outcomes(store: EmbeddingStore, evaluations: Mapping[K, str], protocol: Protocol) -> dict[K, Outcomes]:
    """The outcomes of several evaluations by the same protocol, in one pass over the table; see :func:`read_outcomes`.

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


def newest_evaluations(store: EmbeddingStore, wanted: Mapping[str, Sequence[str]]) -> list[Result]:
    """A row of results for each encoder, corpus and protocol that has outcomes, of several evaluations the newest.

    ``wanted`` are columns with their values, as ``EmbeddingStore.rows`` takes them. A name means its current state, see
    ``store.current``, unless these are fingerprints. Sorted by corpus and protocol.
    """
    rows = (row for row in store.evaluated(**wanted) if not Protocol.of(row.protocol).is_combined)
    return newest_rows(rows, "results", by=("corpus", "protocol", "encoder"), uses=store.uses())


def outcome_encoders(store: EmbeddingStore) -> set[str]:
    """Names and fingerprints of the encoders that have outcomes only; of a name, what was last registered under it."""
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
