"""Writes imported outcomes and their figures, once: the same again changes nothing, others replace them on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.maintenance.removal import drop_evaluations
from capim.store.schema import texts
from capim.tasks.results.imported.rows import Imported
from capim.tasks.statistics.resampling import Resampling


@dataclass(frozen=True, kw_only=True)
class ImportPlan:
    """What one import would change for one model.

    Attributes:
        new: Evaluation ids that are not stored with these settings.
        replaced: Evaluation ids of other outcomes of the same model, corpus and protocol.
        faults: Why these may not be replaced, in one line; empty if they may.
    """

    imported: Imported
    new: tuple[str, ...]
    replaced: tuple[str, ...]
    faults: tuple[str, ...]


def plan_import(store: EmbeddingStore, imported: Imported, *, resampling: Resampling, replace: bool) -> ImportPlan:
    """Compare outcomes with those in the store, which stays as it is."""
    encoder, corpus = imported.encoder, imported.corpus
    subject = {"encoder_fingerprint": encoder.fingerprint, "corpus_fingerprint": corpus.fingerprint}
    rows = store.rows("results", **subject).to_pylist()
    settings = (resampling.replicates, resampling.seed, resampling.level)
    same = {r["evaluation"] for r in rows if (r["replicates"], r["seed"], r["level"]) == settings}
    counts = store.counts("outcomes", "evaluation", evaluation=list(imported.outcomes))
    new = [key for key, each in imported.outcomes.items() if key not in same or counts.get(key) != len(each)]
    replaced, others = [], []
    for key, outcomes in imported.outcomes.items():
        protocol = outcomes.protocol.id
        for other in sorted({r["evaluation"] for r in rows if r["protocol"] == protocol} - {key}):
            replaced.append(other)
            others.append(f"{protocol} (stored {other}, given {key})")
    fault = (
        f"{encoder.name!r} has other outcomes on {corpus.name!r}: {', '.join(others)}; give --replace to replace them, "
        "or another --revision or --encoder to keep both"
    )
    if replaced:  # sums over several protocols
        replaced += sorted({r["evaluation"] for r in rows if "+" in r["protocol"]})
    faults = (fault,) if others and not replace else ()
    return ImportPlan(imported=imported, new=tuple(new), replaced=tuple(replaced), faults=faults)


def write_import(store: EmbeddingStore, plans: Sequence[ImportPlan], *, run: str, resampling: Resampling) -> list[str]:
    """Carry out plans; returns one line per protocol.

    Raises:
        RequestError: The faults of all plans; nothing was written.
    """
    if faults := [fault for plan in plans for fault in plan.faults]:
        raise RequestError(faults)
    lines = []
    for plan in plans:
        imported = plan.imported
        store.write_corpus(imported.corpus)
        store.write_encoder(imported.encoder)
        for key, outcomes in imported.outcomes.items():
            what = (
                f"{imported.encoder.name}: {outcomes.protocol.id} of {imported.corpus.name}, {len(outcomes):,} queries"
            )
            if key not in plan.new:
                lines.append(f"{what}: stored already, nothing to do")
                continue
            rows, results = imported.rows(key, run=run, resampling=resampling)
            store.write_rows("outcomes", rows, replace="evaluation")
            store.write_rows("results", results, replace="evaluation")
            lines.append(f"{what}: {', '.join(texts(results['metric'])) or 'no metric is determined'}")
        if plan.new and (rsum := imported.rsum(run=run, resampling=resampling)) is not None:
            store.write_rows("results", rsum, replace="evaluation")
        if plan.new:
            lines.append(f"run `capim compare --corpora {imported.corpus.name}` to compare it with other models")
        if plan.replaced:
            drop_evaluations(
                store,
                plan.replaced,
                encoder_fingerprints=[imported.encoder.fingerprint],
                corpus_fingerprint=imported.corpus.fingerprint,
            )
    return lines
