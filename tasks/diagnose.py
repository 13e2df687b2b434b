"""Shell: why encoders fail, what a change would cost, and whether to believe the figures; slices into the store."""

from __future__ import annotations

from collections.abc import Sequence

from store import EmbeddingStore
from store.types import EvalProtocol
from tasks.diagnosis.ablations.hardware import hardware_rows
from tasks.diagnosis.subject import Subject, slice_rows
from tasks.diagnosis.table import diagnose
from tasks.reference.gate import gate_rows, judge_results
from tasks.reference.published import published
from tasks.runtime.progress import track
from tasks.runtime.references import EvaluationRef
from tasks.runtime.shell import shell
from tasks.runtime.stored_outcomes import read_outcomes
from tasks.runtime.stored_vectors import vector_reader
from tasks.scoring.protocols.selection import select_protocols
from tasks.statistics.resampling import Resampling


@shell("diagnose", kind="analyse", run_name="diagnose-{evaluations[0].sets.corpus}")
def diagnose_corpus(
    evaluations: tuple[EvaluationRef, ...],
    *,
    store_uri: str,
    resampling: Resampling,
    run: str,
    analyses: Sequence[str] = (),
) -> int:
    """Slices of encoders that were evaluated on one corpus; returns how many rows were written.

    Args:
        evaluations: All of one corpus.
        store_uri: Where outcomes, vectors and results are read and slices written.
        resampling: How the intervals are drawn, as for the results.
        run: Id of the run.
        analyses: Keys of ``ANALYSES``; empty: all, except those that run on request only.
    """
    store = EmbeddingStore.open(store_uri)
    sets = evaluations[0].sets
    corpus = store.corpus(sets.corpus, sets.corpus_fingerprint)
    specs = {e.sets.encoder: store.encoder(e.sets.encoder_fingerprint) for e in evaluations}
    shared = sorted({p for e in evaluations for p in e.evaluations})
    protocols = [protocol for protocol in select_protocols(corpus, shared) if is_diagnosed(protocol)]
    fingerprints = {e.sets.encoder: e.sets.encoder_fingerprint for e in evaluations}
    read = vector_reader(store, fingerprints, sets.corpus_fingerprint, seed=resampling.seed)
    written = 0
    with track(f"{sets.corpus} · diagnosing", total=len(protocols) + 1, unit="protocols") as advance:
        for protocol in protocols:
            subject = Subject(
                corpus=corpus,
                protocol=protocol,
                outcomes={
                    e.sets.encoder: read_outcomes(store, e.evaluations[protocol.id], protocol)
                    for e in evaluations
                    if protocol.id in e.evaluations
                },
                specs=specs,
                resampling=resampling,
                embedded=read,
            )
            written += store.write_rows(
                "slices", slice_rows(subject, diagnose(subject, analyses), run=run), replace="slice"
            )
            advance(1)
        results = store.rows("results", evaluation=[i for e in evaluations for i in e.evaluations.values()])
        judged = judge_results(
            results,
            specs={spec.fingerprint: spec for spec in specs.values()},
            n_images={corpus.fingerprint: len(corpus.images)},
            references=published(),
        )
        written += store.write_rows("slices", gate_rows(judged, run=run), replace="slice")
        devices = hardware_rows(store.rows("batches", corpus=corpus.name), {corpus.name: corpus.fingerprint}, run=run)
        written += store.write_rows("slices", devices, replace="slice")
        advance(1)
    return written


def is_diagnosed(protocol: EvalProtocol) -> bool:
    """Whether a protocol is worth explaining: the headline of either direction, and all choices."""
    return protocol.id in ("t2i/all", "i2t/any") or protocol.direction in ("pairs", "quadruples")
