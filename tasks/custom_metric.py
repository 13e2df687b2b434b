"""Task: a user's metric of the encoders of one corpus: its results, comparisons and slices, like any other metric's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.maintenance.removal import drop_stale
from capim.store.schema import texts
from capim.store.types import MODALITIES, Corpus
from capim.tasks.analyses.analysis import AnalysisInput, slice_rows
from capim.tasks.analyses.table import diagnose, of_parts
from capim.tasks.encoders.device import choose_device
from capim.tasks.metrics import Metric, is_known
from capim.tasks.metrics.custom import CustomMetric, load_metric
from capim.tasks.metrics.metric import RETRIEVAL
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.evaluate import ScoreBlock, score_blocks
from capim.tasks.ranking.layout import drawn_clusters
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_task, select_protocols
from capim.tasks.ranking.resources import Resources
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.report import is_diagnosed
from capim.tasks.results.comparison import comparison_rows, encoder_key
from capim.tasks.results.summary import Evaluated, Provenance, replicate_rows, result_rows
from capim.tasks.runtime.progress import track
from capim.tasks.runtime.references import EvaluationRef, MetricRef, SetsRef
from capim.tasks.runtime.results import record_metrics
from capim.tasks.runtime.stored import has_vectors, read_outcomes, vectors_of
from capim.tasks.runtime.task import shell
from capim.tasks.statistics.draws import Resampling


@shell("custom-metric", run_name="{metric}-{evaluations[0].sets.corpus}")
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
) -> MetricRef:
    """Store comparisons and slices of ``FILE.py:NAME``, and with ``results`` its results; nothing if its code fails.

    ``protocols`` and ``analyses``: all where none is named. A protocol where it applies to no query has no rows.

    Raises:
        RequestError: The metric cannot be loaded or fails, or none of the protocols was evaluated.
    """
    store, sets = EmbeddingStore.open(store_uri), evaluations[0].sets
    own = OwnMetric(
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
    parts = []
    with track(f"{own.custom.name} · {sets.corpus}", total=len(chosen), unit="protocols") as advance:
        for protocol in chosen:
            sliced = (analyses or of_parts()) if is_diagnosed(protocol) else ()
            parts.append(own.rows(protocol, sliced, results=results, keep_replicates=keep_replicates))
            advance(1)
    rows = own.write(parts, chosen, results=results, all_slices=not analyses)
    return MetricRef(
        results=tuple(texts(rows["results"]["result"])) if "results" in rows else (),
        comparisons=tuple(texts(rows["comparisons"]["comparison"])) if "comparisons" in rows else (),
        left_out=tuple(own.left_out),
    )


Tables = dict[str, pa.Table]


@dataclass(frozen=True, kw_only=True)
class OwnMetric:
    """A user's metric on the stored evaluations of one corpus.

    Attributes:
        left_out: Encoders without a figure under a protocol, with the reason; filled in by :meth:`rows`.
    """

    store: EmbeddingStore
    custom: CustomMetric
    corpus: Corpus
    evaluations: Sequence[EvaluationRef]
    device: str
    resampling: Resampling
    run: str
    left_out: list[str] = field(default_factory=list)

    def rows(self, protocol: Protocol, analyses: Sequence[str], *, results: bool, keep_replicates: bool) -> Tables:
        """Table -> rows under one protocol: comparisons, slices (of ``analyses``), and results where wanted.

        Raises:
            RequestError: The user's code fails, or returns something else than numbers of queries.
        """
        if "block" in self.custom.takes and protocol.direction not in RETRIEVAL:
            self.left_out.append(f"{self.corpus.name}, {protocol.id}: only retrieval protocols have score blocks")
            return {}
        owners: dict[Outcomes, SetsRef] = {}
        metric = self.custom.metric(lambda outcomes: self._blocks(owners[outcomes], outcomes), self.corpus)
        evaluated = [
            Evaluated(
                outcomes=outcomes,
                metrics=[metric],
                provenance=self._provenance(evaluation.evaluations[protocol.id]),
                drawn=drawn_clusters(self.corpus, protocol),
            )
            for evaluation, outcomes in self._outcomes(metric, protocol, owners)
        ]
        evaluated = [each for each in evaluated if each.samples]
        if not evaluated:
            return {}
        tables = {
            "comparisons": self._comparisons(metric, evaluated),
            "slices": self._slices(metric, evaluated, analyses),
        }
        if results:
            tables["results"] = result_rows(evaluated, self.resampling)
        if results and keep_replicates:
            tables["replicates"] = pa.concat_tables([replicate_rows(each, self.resampling) for each in evaluated])
        return tables

    def write(
        self, parts: Sequence[Tables], protocols: Sequence[Protocol], *, results: bool, all_slices: bool
    ) -> Tables:
        """Write the rows of these protocols, table by table, and return them.

        Rows of an earlier state of the metric, of the same encoders under these protocols, are dropped: it may apply
        to fewer queries now. With ``all_slices`` also slices.
        """
        names = dict.fromkeys(name for tables in parts for name in tables)
        joined = {name: pa.concat_tables([tables[name] for tables in parts if name in tables]) for name in names}
        if joined:
            record_metrics(self.store, [self.custom.metric()], run=self.run)
        encoders = [evaluation.sets.encoder_fingerprint for evaluation in self.evaluations]
        keys = {"comparisons": "comparison", "slices": "slice", "results": "result", "replicates": "result"}
        for name, key in keys.items() if results else list(keys.items())[:2]:
            if name in joined:
                self.store.write_rows(name, joined[name], replace=key)
            if name == "slices" and not all_slices:
                continue
            sides = ("fingerprint_a", "fingerprint_b") if name == "comparisons" else ("encoder_fingerprint",)
            drop_stale(
                self.store,
                name,
                key,
                kept=texts(joined[name][key]) if name in joined else (),
                metric=self.custom.name,
                corpus_fingerprint=self.corpus.fingerprint,
                protocol=[protocol.id for protocol in protocols],
                **dict.fromkeys(sides, encoders),
            )
        return joined

    def _outcomes(
        self, metric: Metric, protocol: Protocol, owners: dict[Outcomes, SetsRef]
    ) -> Iterator[tuple[EvaluationRef, Outcomes]]:
        """The encoders that have what the metric takes; ``owners`` gets whose outcomes they are."""
        for evaluation in self.evaluations:
            name = f"{evaluation.sets.encoder} on {self.corpus.name}, {protocol.id}"
            if protocol.id not in evaluation.evaluations:
                continue
            if "block" in self.custom.takes and not has_vectors(
                self.store, evaluation.sets.encoder_fingerprint, evaluation.sets.corpus_fingerprint
            ):
                self.left_out.append(f"{name}: no score blocks, the store has no embeddings of this encoder")
                continue
            outcomes = read_outcomes(self.store, evaluation.evaluations[protocol.id], protocol)
            owners[outcomes] = evaluation.sets
            if is_known(metric, outcomes):
                yield evaluation, outcomes
            else:
                self.left_out.append(f"{name}: its ranks are known as ranges, which do not determine the metric")

    def _provenance(self, evaluation: str) -> Provenance:
        stored = self.store.rows("results", evaluation=evaluation).slice(0, 1).to_pylist()[0]
        return Provenance(**{**{name: stored[name] for name in Provenance.__dataclass_fields__}, "run": self.run})

    def _comparisons(self, metric: Metric, evaluated: Sequence[Evaluated]) -> pa.Table:
        return comparison_rows(
            {
                encoder_key(each.provenance.encoder, each.provenance.encoder_fingerprint): each.outcomes
                for each in evaluated
            },
            [metric],
            corpus=self.corpus.name,
            corpus_fingerprint=self.corpus.fingerprint,
            run=self.run,
            drawn=evaluated[0].drawn,
            resampling=self.resampling,
        )

    def _slices(self, metric: Metric, evaluated: Sequence[Evaluated], analyses: Sequence[str]) -> pa.Table:
        """Means over parts of the queries; an aggregate has none."""
        outcomes = {each.provenance.encoder: each.outcomes for each in evaluated}
        protocol = evaluated[0].outcomes.protocol
        wanted = [name for name in of_parts() if name in analyses] if metric.reduce == "mean" else []
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
            fingerprints={each.provenance.encoder: each.provenance.encoder_fingerprint for each in evaluated},
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
