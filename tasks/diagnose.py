"""Task `diagnose`: analyses of the outcomes and vectors of a corpus, and checks of its results, as slices."""

from __future__ import annotations

from collections.abc import Sequence

from capim.store import EmbeddingStore
from capim.store.schema import JUDGED
from capim.store.types import EvalProtocol
from capim.tasks.diagnosis.ablations.devices import device_rows
from capim.tasks.diagnosis.analysis_input import AnalysisInput
from capim.tasks.diagnosis.slices import slice_rows
from capim.tasks.diagnosis.table import diagnose
from capim.tasks.metrics.headline import DIRECTIONS
from capim.tasks.reference.gate import gate_rows, judge_results
from capim.tasks.reference.published import published
from capim.tasks.runtime.progress import track
from capim.tasks.runtime.references import EvaluationRef
from capim.tasks.runtime.shell import shell
from capim.tasks.runtime.stored import read_outcomes, read_truncated, vector_reader
from capim.tasks.scoring.protocols.selection import select_protocols
from capim.tasks.statistics.resampling import Resampling


@shell("diagnose", run_name="diagnose-{evaluations[0].sets.corpus}")
def diagnose_corpus(
    evaluations: tuple[EvaluationRef, ...],
    *,
    store_uri: str,
    resampling: Resampling,
    run: str,
    analyses: Sequence[str] = (),
) -> int:
    """Store the slices of encoders that were evaluated on one corpus; returns the number of rows.

    ``analyses`` are keys of ``ANALYSES``; empty: all, except those that run on request only.
    """
    store = EmbeddingStore.open(store_uri)
    sets = evaluations[0].sets
    corpus = store.corpus(sets.corpus, sets.corpus_fingerprint)
    fingerprints = {e.sets.encoder: e.sets.encoder_fingerprint for e in evaluations}
    specs = {name: store.encoder(fingerprint) for name, fingerprint in fingerprints.items()}
    evaluated = sorted({protocol for e in evaluations for protocol in e.evaluations})
    protocols = [protocol for protocol in select_protocols(corpus, evaluated) if is_diagnosed(protocol)]
    truncated = read_truncated(store, fingerprints, corpus)
    written = 0
    with track(f"{sets.corpus} · diagnosing", total=len(protocols) + 1, unit="protocols") as advance:
        for protocol in protocols:
            data = AnalysisInput(
                corpus=corpus,
                protocol=protocol,
                outcomes={
                    e.sets.encoder: read_outcomes(store, e.evaluations[protocol.id], protocol)
                    for e in evaluations
                    if protocol.id in e.evaluations
                },
                specs=specs,
                resampling=resampling,
                vectors=vector_reader(store, fingerprints, sets.corpus_fingerprint, seed=resampling.seed),
                truncated=truncated,
            )
            rows = slice_rows(
                diagnose(data, analyses), corpus=corpus, protocol=protocol.id, fingerprints=fingerprints, run=run
            )
            written += store.write_rows("slices", rows, replace="slice")
            advance(1)
        judged = judge_results(
            store.rows("results", evaluation=[i for e in evaluations for i in e.evaluations.values()]),
            specs={spec.fingerprint: spec for spec in specs.values()},
            n_images={corpus.fingerprint: len(corpus.images)},
            references=published(),
        )
        devices = device_rows(store.rows("batches", corpus=corpus.name), corpus=corpus, run=run)
        for rows in (gate_rows(judged, run=run), devices):
            written += store.write_rows("slices", rows, replace="slice")
        advance(1)
    return written


def is_diagnosed(protocol: EvalProtocol) -> bool:
    """Whether a protocol is analysed: the headline of either direction, pairs, and all quadruples or judged queries."""
    return protocol.id in (*DIRECTIONS, "winoground", f"t2i/{JUDGED}") or protocol.direction == "pairs"
