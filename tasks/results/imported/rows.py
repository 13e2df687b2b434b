"""Imported outcomes as rows of the store: what identifies them, and the figures that they determine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import pyarrow as pa

from capim.store.errors import RequestError
from capim.store.exchange.importing import UNVERSIONED, declared_encoder, note_faults
from capim.store.types import Corpus, EncoderSpec, digest16
from capim.tasks.metrics import metrics_of
from capim.tasks.metrics.retrieval import RECALLS
from capim.tasks.protocols import MAIN
from capim.tasks.ranking.layout import drawn_clusters, drawn_images
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.results.combined import rsum_row
from capim.tasks.results.imported.exported import in_query_order
from capim.tasks.results.summary import Evaluated, Provenance, result_rows
from capim.tasks.statistics.draws import Resampling

ADAPTER = "outcomes"


def encoder_of_outcomes(
    name: str, *, revision: str | None = None, note: str | None = None, namesakes: Sequence[EncoderSpec] = ()
) -> EncoderSpec:
    """The model that outcomes are of: what the user says it is. No adapter ever loads it; ``dim`` has no meaning.

    Args:
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


@dataclass(frozen=True, kw_only=True)
class Imported:
    """The outcomes of one model on one corpus, by evaluation id.

    Attributes:
        outcomes: Evaluation id -> outcomes of one protocol.
    """

    encoder: EncoderSpec
    corpus: Corpus
    outcomes: Mapping[str, Outcomes]

    @classmethod
    def of(cls, outcomes: Sequence[Outcomes], encoder: EncoderSpec, corpus: Corpus) -> Imported:
        """The outcomes under their ids, in query order."""
        imported = cls(encoder=encoder, corpus=corpus, outcomes={})
        columns = imported._provenance("", "").identity
        ordered = [Outcomes.from_arrow(in_query_order(each.to_arrow(**columns)), each.protocol) for each in outcomes]
        return replace(imported, outcomes={evaluation_of(each, encoder, corpus): each for each in ordered})

    def rows(self, evaluation: str, *, run: str, resampling: Resampling) -> tuple[pa.Table, pa.Table]:
        """Rows of ``schema.OUTCOMES``, and of ``schema.RESULTS`` with every metric that they determine."""
        outcomes, provenance = self.outcomes[evaluation], self._provenance(evaluation, run)
        evaluated = Evaluated(
            outcomes=outcomes,
            metrics=metrics_of(outcomes),
            provenance=provenance,
            drawn=drawn_clusters(self.corpus, outcomes.protocol),
        )
        return outcomes.to_arrow(**provenance.identity), result_rows([evaluated], resampling)

    def rsum(self, *, run: str, resampling: Resampling) -> pa.Table | None:
        """The row of RSUM; None unless both headlines were imported and determine the six recalls."""
        by_protocol = {each.protocol.id: (key, each) for key, each in self.outcomes.items()}
        both = [by_protocol[protocol] for protocol in MAIN if protocol in by_protocol]
        names = {metric.name for metric in RECALLS}
        if len(both) < len(MAIN) or not all(names <= {m.name for m in metrics_of(o)} for _, o in both):
            return None
        source = self._provenance(digest16([key for key, _ in both]), run)
        t2i, i2t = (outcomes for _, outcomes in both)
        return rsum_row(t2i, i2t, source, drawn=drawn_images(self.corpus), resampling=resampling)

    def _provenance(self, evaluation: str, run: str) -> Provenance:
        return Provenance(
            evaluation=evaluation,
            encoder=self.encoder.name,
            encoder_fingerprint=self.encoder.fingerprint,
            corpus=self.corpus.name,
            corpus_fingerprint=self.corpus.fingerprint,
            run=run,
        )
