"""The ranking of a suite from stored outcomes: reads the headline of every corpus by every encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from capim.reports.rows.families import counted_once
from capim.store import EmbeddingStore
from capim.store.types import Corpus, EvalProtocol
from capim.tasks.metrics.headline import Figure, headline_of
from capim.tasks.results.suite import (
    CorpusHeadline,
    EncoderId,
    cluster_photographs,
    contents_of,
    figure_values,
    named_once,
    ranking_rows,
)
from capim.tasks.runtime.progress import track
from capim.tasks.runtime.references import EvaluationRef, by_corpus
from capim.tasks.runtime.stored import read_outcomes
from capim.tasks.scoring.protocols.layout import drawn_clusters
from capim.tasks.scoring.protocols.selection import select_protocols
from capim.tasks.statistics.ranking.suite import LEAST_CORPORA
from capim.tasks.statistics.resampling import Resampling
from capim.tasks.statistics.statistic import ClusteredValues


def suite_rows(
    store: EmbeddingStore, evaluations: Sequence[EvaluationRef], *, resampling: Resampling, run: str
) -> pa.Table | str:
    """Rows of ``schema.RANKINGS``, or why there are none; empty for a single corpus, of which nobody expects them."""
    groups = by_corpus(evaluations)
    if len(groups) < LEAST_CORPORA:
        few = f"a ranking over corpora needs {LEAST_CORPORA} of them, got {len(groups)}"
        return few if len(groups) > 1 else ""
    corpora = []
    with track("ranking over corpora", total=len(groups), unit="corpora") as advance:
        for group in groups:
            corpora.append(_headline(store, group))
            advance(1)
    rows = ranking_rows(corpora, run=run, resampling=resampling)
    if rows.num_rows:
        return rows
    copies = [counted_once([each.corpus, *each.copies]) for each in named_once(corpora) if each.copies]
    return "; ".join([f"no ranking: no two encoders have {LEAST_CORPORA} corpora in common", *copies])


def _headline(store: EmbeddingStore, evaluations: Sequence[EvaluationRef]) -> CorpusHeadline:
    sets = evaluations[0].sets
    corpus = store.corpus(sets.corpus, sets.corpus_fingerprint)
    evaluated = sorted({protocol for evaluation in evaluations for protocol in evaluation.evaluations})
    protocols = {protocol.id: protocol for protocol in select_protocols(corpus, evaluated)}
    figures = headline_of(protocols.values())
    clustered = protocols[figures[0].protocol] if figures else None
    return CorpusHeadline(
        corpus=sets.corpus,
        fingerprint=sets.corpus_fingerprint,
        figures=figures,
        values={
            EncoderId(e.sets.encoder, e.sets.encoder_fingerprint): _values(store, e, figures, corpus, protocols)
            for e in evaluations
        },
        contents=contents_of(corpus),
        photographs=cluster_photographs(corpus, clustered) if clustered else (),
    )


def _values(
    store: EmbeddingStore,
    evaluation: EvaluationRef,
    figures: Sequence[Figure],
    corpus: Corpus,
    protocols: Mapping[str, EvalProtocol],
) -> list[ClusteredValues] | str:
    """The values of one encoder for every figure, or why one has none."""
    found = []
    for figure in figures:
        if figure.protocol not in evaluation.evaluations:
            return f"not evaluated under {figure.protocol}"
        protocol = protocols[figure.protocol]
        outcomes = read_outcomes(store, evaluation.evaluations[protocol.id], protocol)
        values = figure_values(outcomes, figure, drawn_clusters(corpus, protocol))
        if isinstance(values, str):
            return values
        found.append(values)
    return found
