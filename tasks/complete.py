"""Tasks: evaluations of encoders without embeddings, and what their stored outcomes lack of the table's metrics."""

from __future__ import annotations

from collections.abc import Sequence

from store import EmbeddingStore
from store.errors import RequestError
from tasks.discover import Named, find_evaluations
from tasks.runtime.figures.result_writer import ResultWriter
from tasks.runtime.references import EvaluationRef, encoder_name
from tasks.runtime.scoring import stored_evaluations
from tasks.runtime.shell import shell
from tasks.runtime.stored import outcome_encoders
from tasks.statistics.resampling import Resampling


@shell("find-outcomes")
def find_outcomes(
    store_uri: str, *, corpora: Sequence[Named], encoders: Sequence[Named], sample: int | None, seed: int
) -> tuple[EvaluationRef, ...]:
    """The newest evaluations of imported outcomes, and of fused and re-ranked scores; empty if there are none.

    Raises:
        RequestError: A named encoder of this kind has no results on these corpora.
    """
    store = EmbeddingStore.open(store_uri)
    named = [encoder_name(e) for e in encoders]
    kind = outcome_encoders(store)
    names = (
        [name for name in named if name in kind] if named else sorted(kind & store.counts("results", "encoder").keys())
    )
    if not names:
        return ()
    try:
        return find_evaluations.fn(store_uri, corpora=corpora, encoders=names, sample=sample, seed=seed)
    except RequestError:
        if named:
            raise
        return ()  # none of them on these corpora


@shell("complete-figures", run_name="complete-{evaluation.sets.encoder}-{evaluation.sets.corpus}")
def complete_figures(
    evaluation: EvaluationRef,
    *,
    store_uri: str,
    protocols: Sequence[str],
    resampling: Resampling,
    run: str,
    keep_replicates: bool = False,
) -> EvaluationRef:
    """The table's metrics that stored outcomes determine and that have no result with these settings yet."""
    store = EmbeddingStore.open(store_uri)
    scored = stored_evaluations(store, evaluation, protocols)
    writer = ResultWriter(scored=scored, resampling=resampling, run=run)
    present = writer.renew(list(scored.evaluations.values()), keep_replicates=keep_replicates)
    n_added = 0
    for protocol in scored.protocols:
        if protocol.id not in present or present[protocol.id].lacks(protocol):
            outcomes = [scored.read(protocol)]
            n_added += writer.write_metrics(outcomes, keep_replicates=keep_replicates, present=present)
    return EvaluationRef(sets=evaluation.sets, evaluations=dict(scored.evaluations), n_scored=0, n_added=n_added)
