"""Task: a user's metric of the encoders of one corpus, by the way of every other metric.

The user's code runs first, on all stored outcomes, so that nothing is stored where it fails. Its values are then
evaluated, compared and sliced as those of a metric of the table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.rows import delete
from capim.store.schema import TABLE_OF, TABLES, Comparison, Replicates, Result, Slice
from capim.store.types import Corpus
from capim.tasks.analyses.table import of_parts
from capim.tasks.compare import comparisons
from capim.tasks.derive import Derived, derive
from capim.tasks.encoders.device import choose_device
from capim.tasks.hub.progress import track
from capim.tasks.metrics import Metric, is_known
from capim.tasks.metrics.custom import OwnValues, bound, load_metric
from capim.tasks.metrics.metric import GivenValues, Ties
from capim.tasks.prefects.task import task
from capim.tasks.protocols import Protocol
from capim.tasks.ranking.evaluate import ScoreBlock, score_blocks
from capim.tasks.ranking.outcomes import Outcomes
from capim.tasks.ranking.protocols import build_task, select_protocols
from capim.tasks.ranking.resources import Resources
from capim.tasks.ranking.tasks import RetrievalTask
from capim.tasks.references import EvaluationRef, RunSettings, SetsRef, by_revision, corpus_of
from capim.tasks.report import analyses_of
from capim.tasks.results.comparison import PAIR
from capim.tasks.results.figures import Figures
from capim.tasks.results.scoring import stored_evaluations
from capim.tasks.results.stored import has_vectors, read_outcomes
from capim.tasks.statistics.clusters import known_queries

TIES: tuple[Ties, ...] = ("lost", "expected", "won")


@task("custom-metric", run_name="{metric}-{evaluations[0].sets.corpus}")
def custom_metric(
    evaluations: tuple[EvaluationRef, ...], settings: RunSettings, *, metric: str | Metric, results: bool
) -> Derived:
    """Store comparisons and slices of ``FILE.py:NAME``, and with ``results`` its results; nothing if its code fails.

    A protocol where it applies to no query has no rows.

    Raises:
        RequestError: The metric cannot be loaded or fails, or none of the protocols was evaluated.
    """
    store, resampling, run = EmbeddingStore.open(settings.store_uri), settings.resampling, settings.run
    corpus, protocols = corpus_of(store, evaluations), settings.protocols
    evaluated = {protocol for each in evaluations for protocol in each.evaluations}
    chosen = [p for p in select_protocols(corpus, protocols or sorted(evaluated)) if p.id in evaluated]
    if not chosen:
        raise RequestError(
            f"there are no outcomes of {', '.join(protocols)} on {corpus.name!r}; run `capim evaluate --corpora "
            f"{corpus.name} --protocols {','.join(protocols)}` first"
        )
    reading = _Reading(store=store, metric=load_metric(metric), corpus=corpus, device=choose_device(settings.device))
    with track(f"{reading.metric} · {corpus.name}", total=len(chosen), unit="protocols") as advance:
        for protocol in chosen:
            reading.read(protocol, evaluations)
            advance(1)
    own = replace(reading.metric, values=GivenValues(reading.values))
    having = [known for each in evaluations if (known := reading.known(each)).evaluations]
    groups = [(protocol, alike) for protocol in chosen for alike in reading.comparable(protocol, having)]
    uses: list[str] = []
    for each in having if results else ():
        scored = stored_evaluations(store, each, ())
        uses += Figures(scored=scored, table=[own], **settings.of_results).derive()
    for protocol, alike in groups:
        work = comparisons(store, corpus, alike, [protocol.id], resampling, run, [own])
        uses += derive(store, work, run=run).uses
    if own.reduce == "mean":
        slices = [analyses_of(store, corpus, each, of_parts(), resampling, run, own) for each in by_revision(having)]
        uses += derive(store, *slices, run=run).uses
    _drop_without_value(store, own, corpus, [protocol.id for protocol in chosen], evaluations, having)
    return Derived(lines=tuple(reading.left_out), uses=tuple(uses))


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """Runs a user's code on the stored evaluations of one corpus.

    Attributes:
        left_out: Encoders without a value under a protocol, with the reason.
        values: Evaluation -> how ties are decided -> the value of each query.
    """

    store: EmbeddingStore
    metric: Metric
    corpus: Corpus
    device: str
    left_out: list[str] = field(default_factory=list)
    values: dict[str, dict[Ties, NDArray[np.float64]]] = field(default_factory=dict)

    def read(self, protocol: Protocol, evaluations: Sequence[EvaluationRef]) -> None:
        """Compute the values of all encoders under one protocol.

        Raises:
            RequestError: The user's code fails, or returns something else than numbers of queries.
        """
        blocks = isinstance(self.metric.values, OwnValues) and "block" in self.metric.values.takes
        if protocol.direction not in self.metric.directions:
            self.left_out.append(f"{self.corpus.name}, {protocol.id}: only retrieval protocols have score blocks")
            return
        for each in evaluations:
            sets, evaluation = each.sets, each.evaluations.get(protocol.id)
            name = f"{sets.encoder} on {self.corpus.name}, {protocol.id}"
            if evaluation is None:
                continue
            if blocks and not has_vectors(self.store, sets.encoder_fingerprint, sets.corpus_fingerprint):
                self.left_out.append(f"{name}: no score blocks, the store has no embeddings of this encoder")
                continue
            outcomes = read_outcomes(self.store, evaluation, protocol)
            metric = bound(self.metric, self.corpus, partial(self.blocks, sets))
            if not is_known(metric, outcomes):
                self.left_out.append(f"{name}: its ranks are known as ranges, which do not determine the metric")
                continue
            values = {ties: metric.per_query(outcomes, ties) for ties in (("expected",) if blocks else TIES)}
            if known_queries(values["expected"]).any():
                self.values[evaluation] = dict.fromkeys(TIES, values["expected"]) | values
                given = replace(metric, values=GivenValues(self.values))
                for ties in TIES:
                    given.value(outcomes, ties)  # an aggregate is the user's code, too

    def known(self, evaluation: EvaluationRef) -> EvaluationRef:
        """Return the evaluations of one encoder that have values."""
        having = {protocol: id_ for protocol, id_ in evaluation.evaluations.items() if id_ in self.values}
        return replace(evaluation, evaluations=having)

    def comparable(self, protocol: Protocol, having: Sequence[EvaluationRef]) -> list[list[EvaluationRef]]:
        """Return all that have a value; by the kind of their vectors, where the values are in the unit of the scores.

        Cosines and MaxSim sums have no unit in common: a difference of such values says nothing about the models.
        """
        evaluations = [each for each in having if protocol.id in each.evaluations]
        kinds: dict[str, list[EvaluationRef]] = defaultdict(list)
        for each in evaluations:
            kinds[self.store.encoder(each.sets.encoder_fingerprint).vectors].append(each)
        if len(kinds) > 1 and self.measures_scores(kinds["single"][0], protocol):
            names = {kind: ", ".join(each.sets.encoder for each in found) for kind, found in kinds.items()}
            self.left_out.append(
                f"{self.corpus.name}, {protocol.id}: values in the unit of the scores: MaxSim sums "
                f"({names['multi']}) are not compared with cosines ({names['single']}); divide by a spread of the "
                "scores, or count ranks"
            )
            return [*kinds.values()]
        return [evaluations] if evaluations else []

    def measures_scores(self, evaluation: EvaluationRef, protocol: Protocol) -> bool:
        """True if values change where all scores are doubled and the ranks stay as they are."""
        id_ = evaluation.evaluations[protocol.id]
        outcomes = read_outcomes(self.store, id_, protocol)
        scores = {name: getattr(outcomes, name) for name in ("top_scores", "scores", "relevant_scores")}
        doubled = replace(outcomes, **{name: 2 * of for name, of in scores.items() if of is not None})

        def blocks(_: Outcomes) -> Iterator[ScoreBlock]:
            return (block._replace(scores=2 * block.scores) for block in self.blocks(evaluation.sets, outcomes))

        again = bound(self.metric, self.corpus, blocks).per_query(doubled)
        return not np.array_equal(self.values[id_]["expected"], again, equal_nan=True)

    def blocks(self, sets: SetsRef, outcomes: Outcomes) -> Iterator[ScoreBlock]:
        """Yield the score blocks of an encoder under a retrieval protocol; their rows are positions in its outcomes."""
        task = build_task(self.corpus, outcomes.protocol)
        if not isinstance(task, RetrievalTask):
            raise TypeError(f"protocol {outcomes.protocol.id!r} has no gallery")
        images, captions = sets.vectors(self.store)
        position = {query: row for row, query in enumerate(outcomes.query_ids)}
        rows = np.array([position[query] for query in task.query_ids], dtype=np.int64)
        for block in score_blocks(images, captions, task, resources=Resources(self.device)):
            yield block._replace(rows=rows[block.rows])


def _drop_without_value(
    store: EmbeddingStore,
    metric: Metric,
    corpus: Corpus,
    protocols: Sequence[str],
    evaluations: Collection[EvaluationRef],
    having: Collection[EvaluationRef],
) -> None:
    """Drop the stored rows of encoders to which the metric does not apply any more under these protocols."""
    known = {(each.sets.encoder_fingerprint, protocol) for each in having for protocol in each.evaluations}
    encoders, one = [each.sets.encoder_fingerprint for each in evaluations], ("encoder_fingerprint",)
    of_metric = partial(store.all, corpus_fingerprint=[corpus.fingerprint], protocol=protocols, metric=[metric.name])
    for row_type, sides in ((Result, one), (Replicates, one), (Slice, one), (Comparison, PAIR)):
        rows: list[Any] = of_metric(row_type, **dict.fromkeys(sides, encoders))
        [key, *_] = TABLES[TABLE_OF[row_type]].key
        stale = [
            getattr(row, key) for row in rows if not all((getattr(row, side), row.protocol) in known for side in sides)
        ]
        delete(store.connection, TABLE_OF[row_type], key, stale)
