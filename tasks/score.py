"""Task: score one encoder on one corpus; outcomes and results go into the store."""

from __future__ import annotations

from collections.abc import Sequence

from capim.store import EmbeddingStore
from capim.store.maintenance.removal import drop_superseded
from capim.tasks.metrics.headline import DIRECTIONS, RSUM
from capim.tasks.results.languages import Part
from capim.tasks.runtime.figures.result_writer import ResultWriter, all_languages
from capim.tasks.runtime.progress import track
from capim.tasks.runtime.references import EvaluationRef, SetsRef
from capim.tasks.runtime.scoring import open_sets, outcomes_of
from capim.tasks.runtime.shell import shell
from capim.tasks.scoring.protocols.selection import select_protocols
from capim.tasks.scoring.resources import Resources
from capim.tasks.statistics.resampling import Resampling

RANKING = 0.5  # the part of the work on a protocol that comes before its metrics and their intervals


@shell("score", run_name="score-{sets.encoder}-{sets.corpus}")
def score(
    sets: SetsRef,
    *,
    store_uri: str,
    protocols: Sequence[str],
    device: str,
    resampling: Resampling,
    run: str,
    keep_replicates: bool = False,
    memory_bytes: int | None = None,
    n_parts: int = 1,
) -> EvaluationRef:
    """Outcomes and results of one encoder on one corpus; of ``n_parts`` parts, those that `score_part` stored merge.

    Stored outcomes are read instead of scored again, and of stored results only what is missing of the table's metrics
    is computed.
    """
    store = EmbeddingStore.open(store_uri)
    scored = open_sets(store, sets, protocols)
    writer = ResultWriter(scored=scored, resampling=resampling, run=run)
    evaluations = scored.evaluations
    headlines = select_protocols(scored.corpus, DIRECTIONS) if evaluations.keys() >= set(DIRECTIONS) else ()
    languages = all_languages(scored.corpus, scored.protocols)
    joint = [scored.joint_evaluation(group) for group in (headlines, languages) if group]
    renewed = writer.renew([*evaluations.values(), *joint], keep_replicates=keep_replicates)
    # comparisons and slices also need the outcomes, which a damaged store may have lost in part
    stored = store.counts("outcomes", "protocol", evaluation=list(evaluations.values()))
    present = {protocol: found for protocol, found in renewed.items() if stored.get(protocol) == found.n_queries}
    todo = [p for p in scored.protocols if p.id not in present or present[p.id].lacks(p)]
    n_scored = n_added = 0
    parts: dict[str, Part] = {}
    with track(f"{sets.encoder} · {sets.corpus} · scoring", total=len(evaluations), unit="protocols") as advance:
        advance(len(evaluations) - len(todo))

        def ranked(n_protocols: float) -> None:
            advance(RANKING * n_protocols)

        resources = Resources(device, memory_bytes)
        scoring = outcomes_of(scored, todo, stored, resources=resources, n_parts=n_parts, advance=ranked)
        for scored_together, is_fresh in scoring:
            n_scored += len(scored_together) * is_fresh
            kept = {} if is_fresh else present
            for outcomes in scored_together:
                if outcomes.protocol in languages and outcomes.protocol.id not in kept:
                    parts[outcomes.protocol.id] = writer.language(outcomes)
            n_figures = writer.write_metrics(scored_together, keep_replicates=keep_replicates, present=kept)
            n_added += 0 if is_fresh else n_figures
            advance(len(scored_together) * (1 - RANKING if is_fresh else 1))
    if headlines and (RSUM.protocol not in renewed or any(protocol not in present for protocol in DIRECTIONS)):
        writer.write_rsum(headlines)
    if languages and (parts or not any("*" in protocol for protocol in renewed)):
        writer.write_languages(languages, parts)
    writer.drop_outdated(list(evaluations.values()))
    drop_superseded(store, encoder_fingerprint=sets.encoder_fingerprint, corpus_fingerprint=scored.corpus.fingerprint)
    return EvaluationRef(sets=sets, evaluations=dict(evaluations), n_scored=n_scored, n_added=n_added)
