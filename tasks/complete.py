"""Tasks: evaluations of encoders without embeddings, and what their stored outcomes lack of the table's metrics."""

from __future__ import annotations

from collections.abc import Sequence

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.tasks.embed import Named, find_evaluations
from capim.tasks.protocols import MAIN
from capim.tasks.ranking.protocols import select_protocols
from capim.tasks.runtime.figures.result_writer import ResultWriter, all_languages, outdated_results
from capim.tasks.runtime.references import EvaluationRef, encoder_name
from capim.tasks.runtime.scoring import stored_evaluations
from capim.tasks.runtime.shell import shell
from capim.tasks.runtime.stored import outcome_encoders
from capim.tasks.statistics.resampling import Resampling


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


@shell("find-outdated")
def find_outdated(store_uri: str, evaluations: Sequence[EvaluationRef]) -> tuple[EvaluationRef, ...]:
    """Those of these evaluations that have results by another version of a metric than today's."""
    store = EmbeddingStore.open(store_uri)
    ids = sorted({id_ for each in evaluations for id_ in each.evaluations.values()})
    stale = {row["evaluation"] for row in outdated_results(store.rows("results", evaluation=ids).to_pylist())}
    return tuple(each for each in evaluations if not stale.isdisjoint(each.evaluations.values()))


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
    """The table's metrics that stored outcomes determine and that have no result with these settings yet.

    Figures over several protocols are computed anew if they are stored: where ranks are left open they never were.
    """
    store = EmbeddingStore.open(store_uri)
    scored = stored_evaluations(store, evaluation, protocols)
    writer = ResultWriter(scored=scored, resampling=resampling, run=run)
    evaluations = scored.evaluations
    groups = {
        "+": select_protocols(scored.corpus, MAIN) if evaluations.keys() >= set(MAIN) else (),
        "*": all_languages(scored.corpus, scored.protocols),
    }
    joint = {sign: scored.joint_evaluation(group) for sign, group in groups.items() if group}
    stored = store.counts("results", "evaluation", evaluation=list(joint.values()))
    present = writer.renew([*evaluations.values(), *joint.values()], keep_replicates=keep_replicates)
    anew = {s for s, id_ in joint.items() if id_ in stored and not any(s in protocol for protocol in present)}
    n_added = 0
    for protocol in scored.protocols:
        if protocol.id not in present or present[protocol.id].lacks(protocol):
            outcomes = [scored.read(protocol)]
            n_added += writer.write_metrics(outcomes, keep_replicates=keep_replicates, present=present)
    if "+" in anew:
        writer.write_rsum(groups["+"])
    if "*" in anew:
        writer.write_languages(groups["*"], {})
    writer.drop_outdated(list(evaluations.values()))
    return EvaluationRef(sets=evaluation.sets, evaluations=dict(scored.evaluations), n_scored=0, n_added=n_added)
