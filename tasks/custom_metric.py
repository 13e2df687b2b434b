"""Task: a user's metric of the encoders of one corpus: its results, comparisons and slices, like any other metric's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import pyarrow as pa

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.removal import drop_stale
from capim.store.schema import texts
from capim.store.types import MODALITIES, Corpus
from capim.tasks.analyses.analysis import AnalysisInput, slice_rows
from capim.tasks.analyses.table import diagnose, of_parts
from capim.tasks.encoders.device import choose_device
from capim.tasks.metrics import is_known
from capim.tasks.metrics.custom import CustomMetric, load_metric
from capim.tasks.metrics.metric import RETRIEVAL
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.evaluate import ScoreBlock, score_blocks
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_task, select_protocols
from capim.tasks.ranking.resources import Resources
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.report import is_diagnosed
from capim.tasks.results.comparison import SIDES, comparison_rows, encoder_key
from capim.tasks.results.summary import Evaluated, replicate_rows, result_rows
from capim.tasks.runtime.progress import track
from capim.tasks.runtime.references import EvaluationRef, MetricRef, SetsRef
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
) -> MetricRef:
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
    parts: dict[str, list[pa.Table]] = defaultdict(list)
    with track(f"{own.custom.name} · {sets.corpus}", total=len(chosen), unit="protocols") as advance:
        for protocol in chosen:
            of_protocol = own.evaluated(protocol)
            if of_protocol:
                parts["comparisons"].append(own.comparisons(of_protocol))
                parts["slices"].append(own.slices(of_protocol, analyses or of_parts()))
                parts["results"] += [result_rows(of_protocol, resampling)] if results else []
                parts["replicates"] += [
                    replicate_rows(each, resampling) for each in of_protocol if results and keep_replicates
                ]
            advance(1)
    if parts:
        record_metrics(store, [own.custom.metric()], run=run)
    keys = {"comparisons": "comparison", "slices": "slice"}
    keys |= {"results": "result", "replicates": "result"} if results else {}
    encoders = [each.sets.encoder_fingerprint for each in evaluations]
    kept: dict[str, tuple[str, ...]] = {}
    for table, key in keys.items():
        rows = pa.concat_tables(parts[table]) if parts[table] else None
        kept[table] = () if rows is None else tuple(texts(rows[key]))
        if rows is not None:
            store.write_rows(table, rows, replace=key)
        if table == "slices" and analyses:
            continue
        sides = SIDES if table == "comparisons" else ("encoder_fingerprint",)
        drop_stale(  # rows of an earlier state of the metric: it may apply to fewer queries now
            store,
            table,
            key,
            kept=kept[table],
            metric=own.custom.name,
            corpus_fingerprint=own.corpus.fingerprint,
            protocol=[protocol.id for protocol in chosen],
            **dict.fromkeys(sides, tuple(encoders)),
        )
    return MetricRef(results=kept.get("results", ()), comparisons=kept["comparisons"], left_out=tuple(own.left_out))


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
            row = self.store.rows("results", evaluation=evaluation).slice(0, 1).to_pylist()[0]
            tags = {tag: row[tag] for tag in ("image_tag", "caption_tag")}
            source = {**asdict(sets), **tags, "evaluation": evaluation, "run": self.run}
            found.append(Evaluated.of(outcomes, self.corpus, source, [metric]))
        return [each for each in found if each.samples]

    def comparisons(self, evaluated: Sequence[Evaluated]) -> pa.Table:
        """The comparisons of every pair under one protocol."""
        return comparison_rows(
            {
                encoder_key(each.source["encoder"], each.source["encoder_fingerprint"]): each.outcomes
                for each in evaluated
            },
            evaluated[0].metrics,
            corpus=self.corpus.name,
            corpus_fingerprint=self.corpus.fingerprint,
            run=self.run,
            drawn=evaluated[0].drawn,
            resampling=self.resampling,
        )

    def slices(self, evaluated: Sequence[Evaluated], analyses: Sequence[str]) -> pa.Table:
        """Means over parts of the queries of one protocol; an aggregate has none."""
        outcomes = {each.source["encoder"]: each.outcomes for each in evaluated}
        [metric], protocol = evaluated[0].metrics, evaluated[0].outcomes.protocol
        wanted = [
            name for name in of_parts() if name in analyses and metric.reduce == "mean" and is_diagnosed(protocol)
        ]
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
            fingerprints={each.source["encoder"]: each.source["encoder_fingerprint"] for each in evaluated},
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
