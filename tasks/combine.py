"""Tasks on text-to-image retrieval: two encoders as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.rows import in_order
from capim.store.schema import Result, Subject
from capim.store.schema import Slice as SliceRow
from capim.store.types import FUSION, TWO_STAGE, Corpus, EncoderSpec, digest16
from capim.tasks.analyses.analysis import Slice, slice_rows
from capim.tasks.derive import Derivation, Derived, Work, derive, one_by_one
from capim.tasks.hub.progress import track
from capim.tasks.metrics import metrics_of
from capim.tasks.metrics.retrieval import JUDGED_RECALLS, NDCG_5, NDCG_10, RECALLS
from capim.tasks.prefects.task import task
from capim.tasks.protocols import TEXT_TO_IMAGE, Protocol
from capim.tasks.ranking.cosine import dense_score_rows
from capim.tasks.ranking.layout import ALL_CAPTIONS
from capim.tasks.ranking.maxsim_products import gather
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_task, protocols_of
from capim.tasks.ranking.ranker import ScoreRows
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.ranking.two_stage import (
    SecondScores,
    dense_pairs,
    maxsim_pairs,
    reciprocal_rank_fusion,
    scores_per_token,
    two_stage,
    weighted_sum,
)
from capim.tasks.references import EvaluationRef, RunSettings, SetsRef
from capim.tasks.results.figures import Figures
from capim.tasks.results.scoring import stored_evaluations
from capim.tasks.results.stored import read_outcomes
from capim.tasks.results.summary import Evaluated, Source, result_rows
from capim.tasks.statistics.intervals import Interval

SHOWN = {metric.name for metric in (*RECALLS, NDCG_5, NDCG_10, JUDGED_RECALLS[-1])}


@task("fuse", run_name="fuse-{members[0].sets.corpus}")
def fuse(members: tuple[EvaluationRef, ...], settings: RunSettings, *, weights: Sequence[float]) -> Derived:
    """Fuse encoders by the weighted sum of their scores, or without weights by reciprocal rank fusion.

    The fused encoder is called ``A-with-B``, or ``A-with-B-weighted``; the reference has its name as a line.
    """
    retrieval = text_to_image(members[0].sets, settings)
    name = "-with-".join(member.sets.encoder for member in members)
    if weights:
        name += "-weighted"
        every_digit = (str(float(weight)).removesuffix(".0") for weight in weights)  # they identify the encoder
        options = {"rule": "weighted-sum", "weights": ", ".join(every_digit)}
        shape = (len(retrieval.corpus.captions), len(retrieval.corpus.images))
        scores = [retrieval.all_scores(member) for member in members]
        fused = weighted_sum(scores, weights, retrieval.task, shape=shape)
    else:
        options = {"rule": "reciprocal-rank"}
        fused = reciprocal_rank_fusion([retrieval.outcomes(member) for member in members], retrieval.task)
    spec = combined_spec(retrieval.store, name, FUSION, members, options)
    results = retrieval.results(fused, spec, members=members)
    setting = " ".join(options.values()).replace("-", " ")
    made = retrieval.derive_slices(spec, FUSION, [], lambda: result_slices(results, FUSION, setting))
    return replace(made, lines=(name,))


@task("rerank", run_name="rerank-{first.sets.encoder}-{second.sets.encoder}-{first.sets.corpus}")
def rerank(first: EvaluationRef, second: EvaluationRef, settings: RunSettings, *, depths: Sequence[int]) -> Derived:
    """Re-rank the first N results of one encoder with another, at every depth N; at most all of a smaller gallery.

    Accuracy and cost at every depth become slices; the largest depth is stored as the encoder ``FIRST-then-SECOND``.

    Raises:
        RequestError: The stored lists of the first encoder, which was imported, are shorter than a depth.
    """
    retrieval = text_to_image(first.sets, settings)
    name = f"{first.sets.encoder}-then-{second.sets.encoder}"
    found = retrieval.outcomes(first)
    longest = 0 if found.top_ords is None else found.top_ords.shape[1]
    wanted = sorted({min(depth, int(found.n_gallery.max())) for depth in depths})
    if wanted[-1] > longest:
        raise RequestError(
            f"--depths {wanted[-1]}: the lists of {first.sets.encoder!r} on {first.sets.corpus!r} hold {longest} "
            "items, which is the largest depth there"
        )
    with track(f"{name} · {first.sets.corpus}", total=len(depths), unit="depths") as advance:
        second_scores = retrieval.pair_scores(second)
        reached = two_stage(found, retrieval.task, second_scores, wanted)
        advance(len(depths))
    slices: list[Slice] = []
    for depth in reached:
        spec = combined_spec(retrieval.store, name, TWO_STAGE, [first, second], {"depth": depth.n})
        results = retrieval.results(depth.outcomes, spec, members=[first, second] if depth is reached[-1] else ())
        cost = {"n": depth.n, "pairs_per_query": depth.n, "seconds_per_query": depth.seconds_per_query}
        slices += result_slices(results, TWO_STAGE, str(depth.n), cost)
    made = retrieval.derive_slices(spec, TWO_STAGE, map(str, wanted), lambda: slices)
    return replace(made, lines=(name,))


@dataclass(frozen=True, kw_only=True)
class TextToImage:
    """The protocol ``t2i/all``, or ``t2i/judged``, on one stored corpus.

    ``uses`` grows with every derivation (``tasks.derive``).
    """

    store: EmbeddingStore
    corpus: Corpus
    protocol: Protocol
    task: RetrievalTask
    settings: RunSettings
    uses: list[str] = field(default_factory=list)

    def outcomes(self, member: EvaluationRef) -> Outcomes:
        """Return the stored outcomes of one encoder.

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
        """Return one encoder's scores of chosen captions with chosen images."""
        images, captions = member.sets.vectors(self.store)
        return maxsim_pairs(images, gather(captions())) if callable(images) else dense_pairs(captions[:], images[:])

    def all_scores(self, member: EvaluationRef) -> Iterator[ScoreRows]:
        """Return one encoder's scores of all captions with all images, block by block."""
        images, captions = member.sets.vectors(self.store)
        if callable(images):
            return scores_per_token(images, gather(captions()), n_images=len(self.corpus.images))
        return dense_score_rows(images, captions, self.task)

    def results(self, outcomes: Outcomes, spec: EncoderSpec, *, members: Sequence[EvaluationRef] = ()) -> list[Result]:
        """Return the results of a combined encoder; with ``members``, store its outcomes like those of any encoder."""
        made_of = [member.evaluations[self.protocol.id] for member in members]
        evaluation = digest16([spec.fingerprint, self.corpus.fingerprint, self.protocol.id, *made_of])
        sets = SetsRef.between(spec, self.corpus)
        ordered = in_order("outcomes", outcomes.to_arrow(evaluation, sets))
        stored = Outcomes.from_arrow(ordered, self.protocol)
        source = Source(**vars(sets), evaluation=evaluation, run=self.settings.run)
        evaluated = Evaluated.of(stored, self.corpus, source, metrics_of(outcomes))
        if members:
            self.store.write_encoder(spec)
            self.store.write_rows("outcomes", ordered, replace="evaluation")
            kept = EvaluationRef(sets=sets, evaluations={self.protocol.id: evaluation}, n_scored=0)
            scored = stored_evaluations(self.store, kept, ())
            self.uses.extend(Figures(scored=scored, **self.settings.of_results).derive())
        return result_rows([evaluated], self.settings.resampling)

    def derive_slices(
        self, spec: EncoderSpec, analysis: str, inputs: Iterable[str], slices: Callable[[], Iterable[Slice]]
    ) -> Derived:
        """Make the slices of one encoder that the store lacks; return a reference to these and to its results.

        Args:
            spec: The encoder; its fingerprint and what was derived before are inputs, too.
            analysis: Its name.
            inputs: All else that the slices depend on.
            slices: Makes them.
        """
        run, protocol = self.settings.run, self.protocol.id
        made = Derivation(
            kind="measurement",
            subject=Subject(analysis=analysis, corpus=self.corpus.fingerprint, protocol=protocol, encoder=spec.name),
            inputs=[spec.fingerprint, *self.uses, *inputs],
            settings=self.settings.resampling.used(),
            version="1",
        )

        def rows(_: Derivation) -> list[SliceRow]:
            fingerprints = {spec.name: spec.fingerprint}
            return slice_rows(slices(), corpus=self.corpus, protocol=protocol, fingerprints=fingerprints, run=run)

        found = derive(self.store, Work(table="slices", wanted=[made], compute=one_by_one(rows)), run=run)
        return replace(found, uses=(*self.uses, *found.uses))


def text_to_image(sets: SetsRef, settings: RunSettings) -> TextToImage:
    """Return the retrieval task of a stored corpus.

    Raises:
        RequestError: The corpus has no retrieval queries.
    """
    store = EmbeddingStore.open(settings.store_uri)
    corpus = store.corpus(sets.corpus, sets.corpus_fingerprint)
    for protocol in protocols_of(corpus):
        if protocol.id in TEXT_TO_IMAGE and isinstance(found := build_task(corpus, protocol), RetrievalTask):
            task = replace(found, query_space=ALL_CAPTIONS, queries=found.query_ords)  # of all captions, by their ords
            return TextToImage(store=store, corpus=corpus, protocol=protocol, task=task, settings=settings)
    raise RequestError(f"corpus {corpus.name!r} has no retrieval queries")


def combined_spec(
    store: EmbeddingStore, name: str, adapter: str, members: Sequence[EvaluationRef], options: Mapping[str, str | int]
) -> EncoderSpec:
    """Return the spec of several encoders combined, with the licences of all; it has no vectors."""
    licences = {store.encoder(member.sets.encoder_fingerprint).licence for member in members}
    return EncoderSpec(
        name=name,
        adapter=adapter,
        checkpoint="+".join(member.sets.encoder for member in members),
        revision=f"of-{digest16([member.sets.encoder_fingerprint for member in members])}",
        dim=1,
        options=dict(options),
        licence=" and ".join(sorted(licences)),
    )


def result_slices(
    results: Sequence[Result], analysis: str, setting: str, detail: Mapping[str, float | str] | None = None
) -> list[Slice]:
    """Return the shown metrics of a combined encoder as slices; ``setting`` is their level."""
    return [
        Slice(
            encoder=row.encoder,
            analysis=analysis,
            feature="top list",
            level_name=setting,
            metric=row.metric,
            interval=Interval(
                value=math.nan if row.value is None else row.value, low=row.ci_low, high=row.ci_high, reason=row.reason
            ),
            n_queries=row.n_queries,
            n_clusters=row.n_clusters,
            detail=detail,
        )
        for row in results
        if row.metric in SHOWN
    ]
