"""Imported outcomes as rows of the store: what identifies them, and the figures that they determine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from store.errors import RequestError
from store.exchange.imported_encoder import UNVERSIONED, declared_encoder, note_faults
from store.types import Corpus, EncoderSpec, digest16
from tasks.metrics import metrics_of
from tasks.metrics.headline import DIRECTIONS
from tasks.results.imported.exported import in_query_order
from tasks.results.rsum import RECALLS, rsum_row
from tasks.results.summary import Evaluated, Provenance, result_rows
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.layout import cluster_count
from tasks.statistics.resampling import Resampling

ADAPTER = "outcomes"
_IDENTITY = ("evaluation", "encoder", "encoder_fingerprint", "corpus", "corpus_fingerprint")


def encoder_of_outcomes(
    name: str, *, revision: str | None = None, note: str | None = None, namesakes: Sequence[EncoderSpec] = ()
) -> EncoderSpec:
    """The model that outcomes are of: what the user says it is. No adapter ever loads it; ``dim`` has no meaning.

    Args:
        name: Its name.
        revision: Any text that tells its versions apart; that of the stored model unless given.
        note: A remark for readers of reports; likewise.
        namesakes: What the name has meant in the store, oldest first.

    Raises:
        RequestError: The name is that of a model of another kind, or is not a name; the revision can move; or the
            stored model has another note.
    """
    for spec in namesakes:
        if spec.adapter != ADAPTER:
            raise RequestError(
                f"encoder {name!r} is in the store as another kind ({spec.adapter}, {spec.checkpoint}); import "
                "outcomes under another name"
            )
    revision = revision or (namesakes[-1].revision if namesakes else UNVERSIONED)
    known = next((spec for spec in reversed(namesakes) if spec.revision == revision), None)
    if known is not None:
        if faults := note_faults(known, note):
            raise RequestError(faults)
        return known
    return declared_encoder(name, ADAPTER, revision, note, dim=1)


def evaluation_of(outcomes: Outcomes, encoder: EncoderSpec, corpus: Corpus) -> str:
    """The id of imported outcomes: a digest of their contents, the encoder, the corpus and the protocol."""
    contents = hashlib.sha256("\n".join(map(str, outcomes.query_ids)).encode())
    for field in fields(outcomes):
        values = getattr(outcomes, field.name)
        if isinstance(values, np.ndarray) and values.dtype != object:
            contents.update(f"{field.name} {values.dtype} {values.shape}".encode())
            contents.update(np.ascontiguousarray(values).tobytes())
    return digest16([encoder.fingerprint, corpus.fingerprint, outcomes.protocol.id, contents.hexdigest()])


class ImportedRows(NamedTuple):
    """Rows of ``schema.OUTCOMES`` and of ``schema.RESULTS`` of one protocol."""

    outcomes: pa.Table
    results: pa.Table


@dataclass(frozen=True, kw_only=True)
class Imported:
    """The outcomes of one model on one corpus, by evaluation id.

    Attributes:
        encoder: From :func:`encoder_of_outcomes`.
        corpus: The corpus.
        outcomes: Evaluation id -> outcomes of one protocol.
    """

    encoder: EncoderSpec
    corpus: Corpus
    outcomes: Mapping[str, Outcomes]

    @classmethod
    def of(cls, outcomes: Sequence[Outcomes], encoder: EncoderSpec, corpus: Corpus) -> Imported:
        """The outcomes under their ids, in query order."""
        none = dict.fromkeys(_IDENTITY, "")
        ordered = [Outcomes.from_arrow(in_query_order(each.to_arrow(**none)), each.protocol) for each in outcomes]
        by_id = {evaluation_of(each, encoder, corpus): each for each in ordered}
        return cls(encoder=encoder, corpus=corpus, outcomes=by_id)

    def rows(self, evaluation: str, *, run: str, resampling: Resampling) -> ImportedRows:
        """Outcomes, and every metric that they determine, as rows of a run."""
        outcomes = self.outcomes[evaluation]
        identity = self._identity(evaluation)
        evaluated = Evaluated(
            outcomes=outcomes,
            metrics=metrics_of(outcomes),
            provenance=Provenance(**identity, run=run),
            n_clusters=cluster_count(self.corpus, outcomes.protocol),
        )
        return ImportedRows(outcomes.to_arrow(**identity), result_rows([evaluated], resampling))

    def rsum(self, *, run: str, resampling: Resampling) -> pa.Table | None:
        """The row of RSUM; None unless both headlines were imported and determine the six recalls."""
        by_protocol = {each.protocol.id: (key, each) for key, each in self.outcomes.items()}
        both = [by_protocol[protocol] for protocol in DIRECTIONS if protocol in by_protocol]
        names = {metric.name for metric in RECALLS}
        if len(both) < len(DIRECTIONS) or not all(names <= {m.name for m in metrics_of(o)} for _, o in both):
            return None
        identity = self._identity(digest16([key for key, _ in both]))
        source = Provenance(**identity, run=run)
        t2i, i2t = (outcomes for _, outcomes in both)
        return rsum_row(t2i, i2t, source, n_clusters=len(self.corpus.images), resampling=resampling)

    def _identity(self, evaluation: str) -> dict[str, str]:
        encoder, corpus = self.encoder, self.corpus
        values = (evaluation, encoder.name, encoder.fingerprint, corpus.name, corpus.fingerprint)
        return dict(zip(_IDENTITY, values, strict=True))
