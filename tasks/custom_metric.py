"""Shell: a user's own metric over stored outcomes or scores, with the interval and the row of every other metric."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from store import EmbeddingStore
from store.errors import RequestError
from store.schema import RESULTS
from store.types import EvalProtocol
from tasks.metrics.custom import CustomMetric, load_metric
from tasks.results.summary import Evaluated, Provenance, result_rows
from tasks.runtime.references import EvaluationRef
from tasks.runtime.shell import shell
from tasks.runtime.stored_outcomes import read_outcomes
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.layout import cluster_count
from tasks.scoring.protocols.selection import build_tasks, select_protocols
from tasks.scoring.protocols.tasks import RetrievalTask
from tasks.scoring.score_blocks import score_blocks
from tasks.statistics.resampling import Resampling


@shell("own-metric", kind="score", run_name="{metric}-{evaluation.sets.encoder}-{evaluation.sets.corpus}")
def custom_metric(
    evaluation: EvaluationRef,
    metric: str,
    *,
    store_uri: str,
    protocols: Sequence[str],
    resampling: Resampling,
    run: str,
) -> list[str]:
    """Result rows of ``module:function`` for one encoder on one corpus; returns their ids.

    Protocols that the function cannot be asked about (blocks of quadruples or of late interaction) are left out;
    where none is left that is an error.
    """
    store = EmbeddingStore.open(store_uri)
    sets = evaluation.sets
    own = load_metric(metric)
    corpus = store.corpus(sets.corpus, sets.corpus_fingerprint)
    written: list[str] = []
    for protocol in select_protocols(corpus, protocols or list(evaluation.evaluations)):
        if protocol.id not in evaluation.evaluations or not _fits(own, store, evaluation, protocol):
            continue
        outcomes = read_outcomes(store, evaluation.evaluations[protocol.id], protocol)
        known = store.rows("results", evaluation=evaluation.evaluations[protocol.id]).to_pylist()[0]
        columns = {name: known[name] for name in Provenance.__dataclass_fields__ if name != "run"}
        evaluated = Evaluated(
            outcomes=outcomes,
            metrics=[own.metric(_blocks(store, evaluation, protocol))],
            provenance=Provenance(**columns, run=run),
            n_clusters=cluster_count(corpus, protocol),
        )
        rows = result_rows([evaluated], resampling)
        store.write_rows("results", rows, replace="result")
        written += rows["result"].to_pylist()
    if not written:
        raise RequestError(
            f"metric {metric!r} takes score blocks, which {sets.encoder!r} on {sets.corpus!r} has none of: "
            "blocks are for single-vector encoders under retrieval protocols; take (outcomes) instead"
        )
    return written


def stored_results(store_uri: str, ids: Sequence[str]) -> pa.Table:
    """The result rows of these ids."""
    return EmbeddingStore.open(store_uri).rows("results", result=list(ids)).select(RESULTS.names)


def _fits(own: CustomMetric, store: EmbeddingStore, evaluation: EvaluationRef, protocol: EvalProtocol) -> bool:
    if own.takes == "outcomes":
        return True
    spec = store.encoder(evaluation.sets.encoder_fingerprint)
    return spec.vectors == "single" and protocol.direction in ("t2i", "i2t")


def _blocks(
    store: EmbeddingStore, evaluation: EvaluationRef, protocol: EvalProtocol
) -> Callable[[Outcomes], Iterable[object]]:
    """The score blocks of a protocol, each query's rows where its stored outcome stands."""

    def blocks(outcomes: Outcomes) -> Iterable[object]:
        sets = evaluation.sets
        corpus = store.corpus(sets.corpus, sets.corpus_fingerprint)
        [judgement] = build_tasks(corpus, [protocol])
        if not isinstance(judgement, RetrievalTask):
            raise TypeError(f"protocol {protocol.id!r} has no galleries to score against")
        encoder, whole = sets.encoder_fingerprint, sets.corpus_fingerprint
        images = store.vectors(encoder=encoder, corpus=whole, modality="image").matrix
        captions = store.vectors(encoder=encoder, corpus=whole, modality="caption").matrix
        place = {query: row for row, query in enumerate(outcomes.query_ids)}
        stored = np.array([place[query] for query in judgement.query_ids], dtype=np.int64)
        for block in score_blocks(images, captions, judgement):
            yield block._replace(rows=stored[block.rows])

    return blocks
