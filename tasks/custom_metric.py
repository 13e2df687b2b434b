"""Task: evaluate a user's metric on stored outcomes or scores; its rows are like those of any other metric."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

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
from tasks.runtime.stored import read_outcomes
from tasks.scoring.outcomes import Outcomes
from tasks.scoring.protocols.layout import cluster_count
from tasks.scoring.protocols.selection import build_tasks, select_protocols
from tasks.scoring.protocols.tasks import RetrievalTask
from tasks.scoring.score_blocks import score_blocks
from tasks.statistics.resampling import Resampling


@shell("custom-metric", run_name="{metric}-{evaluation.sets.encoder}-{evaluation.sets.corpus}")
def custom_metric(
    evaluation: EvaluationRef,
    metric: str,
    *,
    store_uri: str,
    protocols: Sequence[str],
    resampling: Resampling,
    run: str,
) -> list[str]:
    """Store result rows of ``module:function`` for one encoder on one corpus; returns their ids.

    Raises:
        RequestError: The metric takes score blocks, and no protocol has any: blocks are for single-vector encoders and
            retrieval protocols.
    """
    store = EmbeddingStore.open(store_uri)
    sets = evaluation.sets
    custom = load_metric(metric)
    corpus = store.corpus(sets.corpus, sets.corpus_fingerprint)
    written: list[str] = []
    for protocol in select_protocols(corpus, protocols or list(evaluation.evaluations)):
        if protocol.id not in evaluation.evaluations or not _fits(custom, store, evaluation, protocol):
            continue
        outcomes = read_outcomes(store, evaluation.evaluations[protocol.id], protocol)
        stored = store.rows("results", evaluation=evaluation.evaluations[protocol.id]).to_pylist()[0]
        columns = {name: stored[name] for name in Provenance.__dataclass_fields__ if name != "run"}
        evaluated = Evaluated(
            outcomes=outcomes,
            metrics=[custom.metric(_blocks(store, evaluation, protocol))],
            provenance=Provenance(**columns, run=run),
            n_clusters=cluster_count(corpus, protocol),
        )
        rows = result_rows([evaluated], resampling)
        store.write_rows("results", rows, replace="result")
        written += cast("list[str]", rows["result"].to_pylist())
    if not written:
        raise RequestError(
            f"metric {metric!r} takes score blocks, which need a single-vector encoder and a retrieval protocol; "
            f"write it as a function of (outcomes) to evaluate {sets.encoder!r} on {sets.corpus!r}"
        )
    return written


def stored_results(store_uri: str, ids: Sequence[str]) -> pa.Table:
    """Result rows of these ids."""
    return EmbeddingStore.open(store_uri).rows("results", result=list(ids)).select(RESULTS.names)


def _fits(custom: CustomMetric, store: EmbeddingStore, evaluation: EvaluationRef, protocol: EvalProtocol) -> bool:
    if custom.takes == "outcomes":
        return True
    spec = store.encoder(evaluation.sets.encoder_fingerprint)
    return spec.vectors == "single" and protocol.direction in ("t2i", "i2t")


def _blocks(
    store: EmbeddingStore, evaluation: EvaluationRef, protocol: EvalProtocol
) -> Callable[[Outcomes], Iterable[object]]:
    """A function that yields the score blocks of a protocol; their rows are positions in the stored outcomes."""

    def blocks(outcomes: Outcomes) -> Iterable[object]:
        sets = evaluation.sets
        corpus = store.corpus(sets.corpus, sets.corpus_fingerprint)
        [task] = build_tasks(corpus, [protocol])
        if not isinstance(task, RetrievalTask):
            raise TypeError(f"protocol {protocol.id!r} has no gallery")
        encoder, whole = sets.encoder_fingerprint, sets.corpus_fingerprint
        images = store.vectors(encoder=encoder, corpus=whole, modality="image").matrix
        captions = store.vectors(encoder=encoder, corpus=whole, modality="caption").matrix
        row_of = {query: row for row, query in enumerate(outcomes.query_ids)}
        rows = np.array([row_of[query] for query in task.query_ids], dtype=np.int64)
        for block in score_blocks(images, captions, task):
            yield block._replace(rows=rows[block.rows])

    return blocks
