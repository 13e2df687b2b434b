"""Task: a user's metric of the encoders of one corpus: its results, comparisons and slices, like any other metric's."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.rows import delete
from capim.store.schema import TABLES, Comparison, Result, Slice
from capim.store.types import MODALITIES, Corpus
from capim.tasks.analyses.analysis import AnalysisInput, slice_rows
from capim.tasks.analyses.table import diagnose, of_parts
from capim.tasks.derive import Derivation, Derived, Work, derive, one_by_one
from capim.tasks.encoders.device import choose_device
from capim.tasks.hub.progress import track
from capim.tasks.metrics import is_known
from capim.tasks.metrics.custom import CustomMetric, load_metric
from capim.tasks.metrics.metric import RETRIEVAL
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.evaluate import ScoreBlock, score_blocks
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_task, select_protocols
from capim.tasks.ranking.resources import Resources
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.report import diagnosed
from capim.tasks.results.comparison import PAIR, compared_figures, encoder_key, figure_rows
from capim.tasks.results.summary import Evaluated, Source, replicate_rows, result_rows
from capim.tasks.runtime.references import EvaluationRef, SetsRef
from capim.tasks.runtime.results import record_metrics
from capim.tasks.runtime.stored import has_vectors, read_outcomes, vectors_of
from capim.tasks.runtime.task import task
from capim.tasks.statistics.draws import Resampling


@task("custom-metric", run_name="{metric}-{evaluations[0].sets.corpus}")
def custom_metric(
    evaluations: tuple[EvaluationRef, ...],
    metric: str | CustomMetric,
    *,
    store_uri: str,
    protocols: Sequence[str],
    analyses: Sequence[str],
    device: str,
    resampling: Resampling,
    results: bool,
    keep_replicates: bool,
    run: str,
) -> Derived:
    """Store comparisons and slices of ``FILE.py:NAME``, and with ``results`` its results; nothing if its code fails.

    ``protocols`` and ``analyses``: all where none is named. A protocol where it applies to no query has no rows.

    Raises:
        RequestError: The metric cannot be loaded or fails, or none of the protocols was evaluated.
    """
    store, sets = EmbeddingStore.open(store_uri), evaluations[0].sets
    own = _OwnMetric(
        store=store,
        custom=load_metric(metric),
        corpus=store.corpus(sets.corpus, sets.corpus_fingerprint),
        evaluations=evaluations,
        device=choose_device(device),
        resampling=resampling,
        run=run,
    )
    evaluated = {protocol for evaluation in evaluations for protocol in evaluation.evaluations}
    chosen = [p for p in select_protocols(own.corpus, protocols or sorted(evaluated)) if p.id in evaluated]
    if not chosen:
        raise RequestError(
            f"there are no outcomes of {', '.join(protocols)} on {sets.corpus!r}; run `capim evaluate --corpora "
            f"{sets.corpus} --protocols {','.join(protocols)}` first"
        )
    made: dict[str, dict[Derivation, Sequence[Any]]] = defaultdict(dict)
    having: set[tuple[str, str]] = set()  # encoders and protocols with a figure
    with track(f"{own.custom.name} · {sets.corpus}", total=len(chosen), unit="protocols") as advance:
        for protocol in chosen:
            evaluated_here = own.evaluated(protocol)
            having |= {(each.source.encoder_fingerprint, protocol.id) for each in evaluated_here}
            for table, derivation, rows in own.derived(evaluated_here, analyses or of_parts(), keep_replicates):
                if results or table not in ("results", "replicates"):
                    made[table][derivation] = rows
            advance(1)
    works = [
        Work(table=table, wanted=[*tables], compute=one_by_one(tables.__getitem__)) for table, tables in made.items()
    ]
    derived = derive(store, *works, run=run)  # nothing is stored before all of the user's code has run
    if made:
        record_metrics(store, [own.custom.metric()], run=run)
    own.drop_without_figure([protocol.id for protocol in chosen], having)
    return replace(derived, lines=tuple(own.left_out))


@dataclass(frozen=True, kw_only=True)
class _OwnMetric:
    """A user's metric on the stored evaluations of one corpus.

    Attributes:
        left_out: Encoders without a figure under a protocol, with the reason; filled in by :meth:`evaluated`.
    """

    store: EmbeddingStore
    custom: CustomMetric
    corpus: Corpus
    evaluations: Sequence[EvaluationRef]
    device: str
    resampling: Resampling
    run: str
    left_out: list[str] = field(default_factory=list)

    def evaluated(self, protocol: Protocol) -> list[Evaluated]:
        """The outcomes under one protocol to which the metric applies.

        Raises:
            RequestError: The user's code fails, or returns something else than numbers of queries.
        """
        if (blocks := "block" in self.custom.takes) and protocol.direction not in RETRIEVAL:
            self.left_out.append(f"{self.corpus.name}, {protocol.id}: only retrieval protocols have score blocks")
            return []
        owners: dict[Outcomes, SetsRef] = {}
        metric = self.custom.metric(lambda outcomes: self._blocks(owners[outcomes], outcomes), self.corpus)
        found = []
        for each in self.evaluations:
            sets, evaluation = each.sets, each.evaluations.get(protocol.id)
            name = f"{sets.encoder} on {self.corpus.name}, {protocol.id}"
            if evaluation is None:
                continue
            if blocks and not has_vectors(self.store, sets.encoder_fingerprint, sets.corpus_fingerprint):
                self.left_out.append(f"{name}: no score blocks, the store has no embeddings of this encoder")
                continue
            outcomes = read_outcomes(self.store, evaluation, protocol)
            owners[outcomes] = sets
            if not is_known(metric, outcomes):
                self.left_out.append(f"{name}: its ranks are known as ranges, which do not determine the metric")
                continue
            row = self.store.all(Result, evaluation=evaluation)[0]
            tags = {"image_tag": row.image_tag, "caption_tag": row.caption_tag}
            source = Source(**asdict(sets), **tags, evaluation=evaluation, run=self.run)
            found.append(Evaluated.of(outcomes, self.corpus, source, [metric]))
        return [each for each in found if each.samples]

    def derived(
        self, evaluated: Sequence[Evaluated], analyses: Sequence[str], keep_replicates: bool
    ) -> Iterator[tuple[str, Derivation, Sequence[Any]]]:
        """What is made of the metric's values under one protocol: table, key, rows.

        The values are among the inputs: the same code may give others, if it reads a file or draws numbers.
        """
        if not evaluated:
            return
        [metric], protocol = evaluated[0].metrics, evaluated[0].outcomes.protocol

        def of(kind: str, each: Sequence[Evaluated], **settings: object) -> Derivation:
            values = [hashlib.sha256(metric.per_query(one.outcomes).tobytes()).hexdigest() for one in each]
            return Derivation(
                kind=kind,
                subject={"protocol": protocol.id, "metric": metric.name},
                inputs=[f"{one.source.evaluation} {digest}" for one, digest in zip(each, values, strict=True)],
                settings=asdict(self.resampling) | settings,
                version=str(metric.version),
            )

        for each in evaluated:
            yield "results", (result := of("result", [each])), (rows := result_rows([each], self.resampling))
            if keep_replicates:
                drawn = replicate_rows(each, self.resampling)
                own = result.row_key(rows[0].result)
                yield "replicates", of("replicates", [each]), [replace(row, result=own) for row in drawn]
        for alike in self.comparable(evaluated):
            yield "comparisons", of("comparison", alike), self.comparisons(alike)
        wanted = [name for name in of_parts() if name in analyses]
        slices = self.slices(evaluated, wanted)
        versioned = [replace(row, metric_version=str(metric.version)) for row in slices]
        yield "slices", of("analysis", evaluated, analyses=wanted), versioned

    def drop_without_figure(self, protocols: Sequence[str], having: Collection[tuple[str, str]]) -> None:
        """Drop what is stored of encoders to which the metric does not apply any more under these protocols."""
        encoders = [each.sets.encoder_fingerprint for each in self.evaluations]
        one = ("encoder_fingerprint",)
        for table, sides in (("results", one), ("replicates", one), ("slices", one), ("comparisons", PAIR)):
            equals = {
                "corpus_fingerprint": [self.corpus.fingerprint],
                "protocol": protocols,
                "metric": [self.custom.name],
            }
            rows = self.store.rows(table, **equals, **dict.fromkeys(sides, encoders)).to_pylist()
            [key, *_] = TABLES[table].key
            stale = [row[key] for row in rows if not all((row[side], row["protocol"]) in having for side in sides)]
            delete(self.store.connection, table, key, stale)

    def comparable(self, evaluated: Sequence[Evaluated]) -> list[list[Evaluated]]:
        """All of them; by the kind of their scores, where other scores with the same ranks give other values.

        Cosines and MaxSim sums have no unit in common: a difference of such values says nothing about the models.
        """
        kinds: dict[str, list[Evaluated]] = defaultdict(list)
        for each in evaluated:
            kinds[self.store.encoder(each.source.encoder_fingerprint).vectors].append(each)
        if len(kinds) == 1 or not self._measures_scores(kinds["single"][0]):
            return [[*evaluated]]
        names = {kind: ", ".join(each.source.encoder for each in found) for kind, found in kinds.items()}
        self.left_out.append(
            f"{self.corpus.name}, {evaluated[0].outcomes.protocol.id}: values in the unit of the scores: MaxSim sums "
            f"({names['multi']}) are not compared with cosines ({names['single']}); divide by a spread of the "
            "scores, or count ranks"
        )
        return [*kinds.values()]

    def _measures_scores(self, each: Evaluated) -> bool:
        """Whether values change where all scores are doubled and the ranks stay as they are."""
        sets = next(one.sets for one in self.evaluations if each.source.evaluation in one.evaluations.values())
        scores = {name: getattr(each.outcomes, name) for name in ("top_scores", "scores", "relevant_scores")}
        doubled = replace(each.outcomes, **{name: 2 * of for name, of in scores.items() if of is not None})
        blocks = (block._replace(scores=2 * block.scores) for block in self._blocks(sets, each.outcomes))
        [metric], again = each.metrics, self.custom.metric(lambda _: blocks, self.corpus)
        return not np.array_equal(metric.per_query(each.outcomes), again.per_query(doubled), equal_nan=True)

    def comparisons(self, evaluated: Sequence[Evaluated]) -> list[Comparison]:
        """The comparisons of every pair under one protocol."""
        outcomes = {
            encoder_key(each.source.encoder, each.source.encoder_fingerprint): each.outcomes for each in evaluated
        }
        return figure_rows(
            compared_figures(outcomes, evaluated[0].metrics, evaluated[0].drawn),
            corpus=self.corpus.name,
            corpus_fingerprint=self.corpus.fingerprint,
            run=self.run,
            resampling=self.resampling,
        )

    def slices(self, evaluated: Sequence[Evaluated], analyses: Sequence[str]) -> list[Slice]:
        """Means over parts of the queries of one protocol; an aggregate has none."""
        outcomes = {each.source.encoder: each.outcomes for each in evaluated}
        [metric], protocol = evaluated[0].metrics, evaluated[0].outcomes.protocol
        named = [each.id for each in diagnosed(self.corpus, self.evaluations)] if analyses else []
        wanted = analyses if metric.reduce == "mean" and protocol.id in named else ()
        data = AnalysisInput(
            corpus=self.corpus,
            protocol=protocol,
            outcomes=outcomes,
            resampling=self.resampling,
            metric=metric.name,
            given={name: metric.per_query(of_encoder) for name, of_encoder in outcomes.items()},
        )
        return slice_rows(
            diagnose(data, wanted) if wanted else (),
            corpus=self.corpus,
            protocol=protocol.id,
            fingerprints={each.source.encoder: each.source.encoder_fingerprint for each in evaluated},
            run=self.run,
        )

    def _blocks(self, sets: SetsRef, outcomes: Outcomes) -> Iterator[ScoreBlock]:
        """The score blocks of an encoder under a retrieval protocol; their rows are positions in its outcomes."""
        task = build_task(self.corpus, outcomes.protocol)
        if not isinstance(task, RetrievalTask):
            raise TypeError(f"protocol {outcomes.protocol.id!r} has no gallery")
        images, captions = (vectors_of(self.store, sets, modality) for modality in MODALITIES)
        position = {query: row for row, query in enumerate(outcomes.query_ids)}
        rows = np.array([position[query] for query in task.query_ids], dtype=np.int64)
        for block in score_blocks(images, captions, task, resources=Resources(self.device)):
            yield block._replace(rows=rows[block.rows])
