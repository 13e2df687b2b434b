"""Tasks: paired comparisons of all encoders of a corpus, by one protocol and by several; a ranking over corpora."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from capim.store import EmbeddingStore
from capim.tasks.metrics.headline import planned_figures
from capim.tasks.results.comparison import compared_metrics, comparison_rows, encoder_key
from capim.tasks.runtime.figures.combined import combined_rows
from capim.tasks.runtime.figures.families import family_of, write_family
from capim.tasks.runtime.figures.headlines import suite_rows
from capim.tasks.runtime.progress import track
from capim.tasks.runtime.references import CompareRef, EvaluationRef, RankingRef
from capim.tasks.runtime.shell import shell
from capim.tasks.runtime.stored import read_outcomes
from capim.tasks.scoring.protocols.layout import drawn_clusters
from capim.tasks.scoring.protocols.selection import protocols_of, select_protocols
from capim.tasks.statistics.resampling import Resampling


@shell("compare", run_name="compare-{evaluations[0].sets.corpus}-{protocols[0]}")
def compare_corpus(
    evaluations: tuple[EvaluationRef, ...],
    *,
    protocols: Sequence[str],
    store_uri: str,
    resampling: Resampling,
    run: str,
) -> CompareRef:
    """Store pairwise comparisons of encoders that were evaluated on one corpus, beside those of larger requests."""
    store = EmbeddingStore.open(store_uri)
    sets = evaluations[0].sets
    corpus = store.corpus(sets.corpus, sets.corpus_fingerprint)
    headline = planned_figures(protocols_of(corpus))
    tables: list[pa.Table] = []
    runs: set[str] = set()
    with track(f"{sets.corpus} · comparing", total=len(protocols), unit="protocols") as advance:
        for protocol in select_protocols(corpus, protocols):
            encoders = {
                encoder_key(e.sets.encoder, e.sets.encoder_fingerprint): read_outcomes(
                    store, e.evaluations[protocol.id], protocol
                )
                for e in evaluations
                if protocol.id in e.evaluations
            }
            rows = comparison_rows(
                encoders,
                compared_metrics(encoders.values()),
                corpus=sets.corpus,
                corpus_fingerprint=sets.corpus_fingerprint,
                run=run,
                drawn=drawn_clusters(corpus, protocol),
                resampling=resampling,
                headline=headline,
            )
            runs.update(write_family(store, rows))
            tables.append(rows)
            advance(1)
    return family_of(sets.corpus, sets.corpus_fingerprint, tables, runs)


@shell("compare-combined", run_name="compare-combined-{evaluations[0].sets.corpus}")
def compare_combined(
    evaluations: tuple[EvaluationRef, ...], *, store_uri: str, resampling: Resampling, run: str
) -> CompareRef:
    """Store comparisons by RSUM and by means over languages, where these protocols were evaluated."""
    store = EmbeddingStore.open(store_uri)
    sets = evaluations[0].sets
    corpus = store.corpus(sets.corpus, sets.corpus_fingerprint)
    rows = combined_rows(store, corpus, evaluations, resampling=resampling, run=run)
    return family_of(sets.corpus, sets.corpus_fingerprint, [rows], write_family(store, rows))


@shell("rank")
def rank_suite(
    evaluations: tuple[EvaluationRef, ...], *, store_uri: str, resampling: Resampling, run: str
) -> RankingRef:
    """Store the ranking of these encoders over their corpora, by macro mean and Borda count of the headlines.

    The encoders of a corpus must have been evaluated on the same queries, as for :func:`compare_corpus`.
    """
    store = EmbeddingStore.open(store_uri)
    rows = suite_rows(store, evaluations, resampling=resampling, run=run)
    if isinstance(rows, str):
        return RankingRef(reason=rows)
    store.write_rows("rankings", rows, replace="ranking")
    return RankingRef(ranking=rows["ranking"][0].as_py())
