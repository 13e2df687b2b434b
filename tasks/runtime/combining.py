"""Text-to-image retrieval on one stored corpus, for the tasks that combine encoders or measure indexes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.tables.rows import in_order
from capim.store.types import MODALITIES, Corpus, EncoderSpec, Modality, digest16
from capim.store.values import Ragged
from capim.tasks.analyses.slices import Slice, slice_rows
from capim.tasks.metrics import metrics_of
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.cosine import dense_score_rows
from capim.tasks.ranking.layout import drawn_clusters
from capim.tasks.ranking.maxsim_products import Blocks, gather
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_tasks, protocols_of
from capim.tasks.ranking.ranker import ScoreRows
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.ranking.two_stage import SecondScores, dense_pairs, maxsim_pairs, scores_per_token
from capim.tasks.results.summary import Evaluated, Provenance, result_rows
from capim.tasks.runtime.references import EvaluationRef, SetsRef
from capim.tasks.runtime.scoring import vectors_of
from capim.tasks.runtime.stored import read_outcomes
from capim.tasks.statistics.intervals import Interval
from capim.tasks.statistics.resampling import Resampling

TEXT_TO_IMAGE = ("t2i/all", "t2i/judged")  # a corpus has one of these: captions of images, or judged documents
METRICS_SHOWN = ("R@1", "R@5", "R@10", "nDCG@5", "nDCG@10", "recall@10")


@dataclass(frozen=True, kw_only=True)
class TextToImage:
    """The protocol ``t2i/all``, or ``t2i/judged``, on one stored corpus, for the run of that id."""

    store: EmbeddingStore
    corpus: Corpus
    protocol: Protocol
    task: RetrievalTask
    run: str

    def outcomes(self, member: EvaluationRef) -> Outcomes:
        """The stored outcomes of one encoder.

        Raises:
            RequestError: There are none, or they are of different queries.
        """
        encoder, corpus = member.sets.encoder, self.corpus.name
        command = f"`capim evaluate --corpora {corpus} --encoders {encoder}`"
        evaluation = member.evaluations.get(self.protocol.id)
        if evaluation is None:
            raise RequestError(f"no {self.protocol.id} outcomes of {encoder!r} on {corpus!r}; run {command}")
        outcomes = read_outcomes(self.store, evaluation, self.protocol)
        if not np.array_equal(outcomes.query_ords, self.task.queries):
            raise RequestError(f"{encoder!r} was evaluated on different queries of {corpus!r}; run {command} again")
        return outcomes

    def pair_scores(self, member: EvaluationRef) -> SecondScores:
        """One encoder's scores of chosen captions with chosen images."""
        if late := self._late(member):
            return maxsim_pairs(*late)
        encoder = member.sets.encoder_fingerprint
        return dense_pairs(self.matrix(encoder, "caption"), self.matrix(encoder, "image"))

    def all_scores(self, member: EvaluationRef) -> Iterator[ScoreRows]:
        """One encoder's scores of all captions with all images, block by block."""
        if late := self._late(member):
            return scores_per_token(*late, n_images=len(self.corpus.images))
        encoder = member.sets.encoder_fingerprint
        return dense_score_rows(self.matrix(encoder, "image"), self.matrix(encoder, "caption"), self.task)

    def matrix(self, encoder: str, modality: Modality) -> NDArray[np.float32]:
        """The vectors of a single-vector encoder, in corpus order."""
        return self.store.vectors(encoder=encoder, corpus=self.corpus.fingerprint, modality=modality).matrix

    def items(self, encoder: str, modality: Modality, ords: NDArray[np.int32]) -> Ragged:
        """The vectors of any encoder that its scores come from, at these positions, in their order, numbered from 0."""
        if self.store.encoder(encoder).vectors == "single":
            return Ragged.from_counts(self.matrix(encoder, modality)[ords], np.ones(len(ords)))
        key = self.store.key(encoder=encoder, corpus=self.corpus.fingerprint, modality=modality)
        distinct, back = np.unique(ords, return_inverse=True)
        found = Ragged.concatenate(rows.vectors for rows in self.store.stored_blocks(key, ords=distinct))
        return replace(found.take(back), ords=np.arange(len(ords), dtype=np.int32))

    def _late(self, member: EvaluationRef) -> tuple[Blocks, Ragged] | None:
        """The images and the captions of a late-interaction encoder; None for another one."""
        if self.store.encoder(member.sets.encoder_fingerprint).vectors == "single":
            return None
        images, captions = (vectors_of(self.store, member.sets, modality) for modality in MODALITIES)
        return (images, gather(captions())) if callable(images) and callable(captions) else None

    def results(self, outcomes: Outcomes, spec: EncoderSpec, resampling: Resampling, *, keep: bool) -> pa.Table:
        """Result rows of a combined encoder; with ``keep`` they and the outcomes are stored like any encoder's."""
        provenance = Provenance(
            evaluation=digest16([spec.fingerprint, self.corpus.fingerprint, self.protocol.id]),
            encoder=spec.name,
            encoder_fingerprint=spec.fingerprint,
            corpus=self.corpus.name,
            corpus_fingerprint=self.corpus.fingerprint,
            run=self.run,
        )
        ordered = in_order("outcomes", outcomes.to_arrow(**provenance.identity))
        evaluated = Evaluated(
            outcomes=Outcomes.from_arrow(ordered, self.protocol),
            metrics=metrics_of(outcomes),
            provenance=provenance,
            drawn=drawn_clusters(self.corpus, self.protocol),
        )
        rows = result_rows([evaluated], resampling)
        if keep:
            self.store.write_encoder(spec)
            self.store.write_rows("outcomes", ordered, replace="evaluation")
            self.store.write_rows("results", rows, replace="result")
        return rows

    def write_slices(self, spec: EncoderSpec, slices: Sequence[Slice]) -> int:
        """Store slices of one encoder; returns their number."""
        fingerprints = {spec.name: spec.fingerprint}
        rows = slice_rows(
            slices, corpus=self.corpus, protocol=self.protocol.id, fingerprints=fingerprints, run=self.run
        )
        return self.store.write_rows("slices", rows, replace="slice")


def text_to_image(store_uri: str, sets: SetsRef, run: str) -> TextToImage:
    """The retrieval task of a stored corpus.

    Raises:
        RequestError: The corpus has no retrieval queries.
    """
    store = EmbeddingStore.open(store_uri)
    corpus = store.corpus(sets.corpus, sets.corpus_fingerprint)
    protocol = next((each for each in protocols_of(corpus) if each.id in TEXT_TO_IMAGE), None)
    if protocol is None:
        raise RequestError(f"corpus {corpus.name!r} has no retrieval queries")
    [task] = build_tasks(corpus, [protocol])
    if not isinstance(task, RetrievalTask):
        raise RequestError(f"corpus {corpus.name!r} has no retrieval queries")
    return TextToImage(store=store, corpus=corpus, protocol=protocol, task=task, run=run)


def combined_spec(
    name: str, adapter: str, members: Sequence[EvaluationRef], options: Mapping[str, str | int]
) -> EncoderSpec:
    """The spec of several encoders combined; it has no vectors."""
    return EncoderSpec(
        name=name,
        adapter=adapter,
        checkpoint="+".join(member.sets.encoder for member in members),
        revision=f"of-{digest16([member.sets.encoder_fingerprint for member in members])}",
        dim=1,
        options=dict(options),
    )


def result_slices(
    results: pa.Table, analysis: str, setting: str, detail: Mapping[str, float | str] | None = None
) -> list[Slice]:
    """The shown metrics of a combined encoder as slices; ``setting`` is their level."""
    return [
        Slice(
            encoder=row["encoder"],
            analysis=analysis,
            feature="top list",
            level_name=setting,
            metric=row["metric"],
            interval=Interval(value=row["value"], low=row["ci_low"], high=row["ci_high"], reason=row["reason"]),
            n_queries=row["n_queries"],
            n_clusters=row["n_clusters"],
            detail=detail,
        )
        for row in results.to_pylist()
        if row["metric"] in METRICS_SHOWN
    ]
