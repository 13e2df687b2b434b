"""Tasks: import embeddings, and outcomes of models without embeddings, that other programs computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.removal import drop_evaluations
from capim.store.schema import texts
from capim.store.sets.importing import UNVERSIONED, ImportedSet, ImportRow, import_sets, namesakes
from capim.store.types import Corpus, Storage
from capim.tasks.encoders import catalog
from capim.tasks.metrics import metrics_of
from capim.tasks.protocols import Protocol
from capim.tasks.results.imported.sources import (
    Imported,
    Source,
    described_corpus,
    encoder_of_outcomes,
    outcomes_of_source,
)
from capim.tasks.runtime.open_corpora import corpus_for_import
from capim.tasks.runtime.references import EvaluationRef, ImportRef, SetsRef
from capim.tasks.runtime.results import derive_figures
from capim.tasks.runtime.scoring import stored_evaluations
from capim.tasks.runtime.task import task
from capim.tasks.statistics.draws import Resampling


@task("import-embeddings")
def import_embedding_files(
    rows: Sequence[ImportRow], *, store_uri: str, storage: Storage | None, replace: bool
) -> list[str]:
    """Check, write and seal the embeddings of files, and store corpora that are new; returns what was done.

    Everything is checked before the first row is written, and all faults are reported together.
    """
    store = EmbeddingStore.open(store_uri, create=True)
    corpora: dict[str, Corpus] = {}
    faults = catalog_faults(row.encoder for row in rows)
    for what in dict.fromkeys(row.corpus for row in rows):
        try:
            corpora[what] = corpus_for_import(store, what)
        except RequestError as fault:
            faults += fault.faults
    if faults:
        raise RequestError(faults)
    imported = import_sets(store, [(row, corpora[row.corpus]) for row in rows], storage=storage, replace=replace)
    return [*map(_done_line, imported), *_next_steps(store, imported)]


def catalog_faults(names: Iterable[str]) -> list[str]:
    """One line for each name that an import cannot have, because it is that of a model of the catalog."""
    return [
        f"encoder name {name!r} belongs to a model of the catalog (capim list encoders), which capim encodes with "
        f"itself; give the import another name, such as {name}-imported"
        for name in dict.fromkeys(names)
        if name in catalog()
    ]


def _done_line(done: ImportedSet) -> str:
    """What happened to one set."""
    sealed = done.sealed
    about = [f"revision {done.spec.revision}"] if done.spec.revision != UNVERSIONED else []
    about += [f"{name}: {value}" for name, value in done.spec.options.items()]
    encoder = f"{done.spec.name} ({', '.join(about)})" if about else done.spec.name
    label = f"{encoder}: {sealed.n_rows:,} {sealed.key.modality}s of {sealed.key.corpus}"
    if done.state == "unchanged":
        return f"{label} are stored already with the same contents; nothing was written ({sealed.tag})"
    verb = "replaced" if done.state == "replaced" else "imported"
    rounding = done.rounding.text(sealed.storage) or f"stored as {sealed.storage}"
    removed = "; results of the replaced embeddings were removed" if done.state == "replaced" else ""
    return f"{label} {verb} ({sealed.tag}), {rounding}{removed}"


def _next_steps(store: EmbeddingStore, imported: Sequence[ImportedSet]) -> Iterator[str]:
    """The command to run next for every encoder."""
    stored = {(s.key.encoder_fingerprint, s.key.corpus_fingerprint, s.key.modality) for s in store.sealed_sets()}
    complete: dict[str, list[str]] = {}
    for key in {(d.sealed.key.encoder_fingerprint, d.sealed.key.corpus): d.sealed.key for d in imported}.values():
        pair = (key.encoder_fingerprint, key.corpus_fingerprint)
        missing = [f"{side}s" for side in ("image", "caption") if (*pair, side) not in stored]
        if missing:
            options = f"--corpus {key.corpus} --encoder {key.encoder} --{missing[0]} FILE"
            yield f"{missing[0]} of {key.corpus} by {key.encoder} are missing: run `capim import {options}`"
        else:
            complete.setdefault(key.encoder, []).append(key.corpus)
    for encoder, corpora in complete.items():
        yield f"run `capim evaluate --corpora {','.join(corpora)} --encoders {encoder}`"


@task("import-outcomes", run_name="import-outcomes-{source.path}")
def import_outcomes(
    corpus: str | dict[str, Any],
    source: Source,
    *,
    store_uri: str,
    revision: str | None,
    note: str | None,
    replace: bool,
    resampling: Resampling,
    run: str,
) -> ImportRef:
    """Store outcomes of models without embeddings, and the figures that they determine.

    Everything is checked before the corpus is registered and the first row is written.
    """
    store = EmbeddingStore.open(store_uri, create=True)
    subject = corpus_for_import(store, described_corpus(source, corpus, stored=texts(store.corpora()["name"])))
    found = outcomes_of_source(source, subject)
    if faults := catalog_faults(found):
        raise RequestError(faults)
    plans, faults = [], []
    for name, each in found.items():
        encoder = encoder_of_outcomes(name, revision=revision, note=note, namesakes=namesakes(store, name))
        imported = Imported.of(each.outcomes, encoder, subject)
        new, replaced, fault = _planned(store, imported)
        plans.append((imported, new, replaced))
        faults += [fault] if replaced and not replace else []
    if faults:
        raise RequestError(faults)
    uses: list[str] = []
    lines = [f"{name}: {line}" for name, each in found.items() for line in (*each.how, *each.left_out)]
    for imported, new, replaced in plans:
        encoder = imported.encoder
        store.write_corpus(subject)
        store.write_encoder(encoder)
        for key, outcomes in imported.outcomes.items():
            what = f"{encoder.name}: {outcomes.protocol.id} of {subject.name}, {len(outcomes):,} queries"
            if key not in new:
                lines.append(f"{what}: stored already, nothing to do")
                continue
            store.write_rows("outcomes", imported.rows(key), replace="evaluation")
            metrics = [metric.name for metric in metrics_of(outcomes)]
            lines.append(f"{what}: {', '.join(metrics) or 'no metric is determined'}")
        sets = SetsRef(
            encoder=encoder.name,
            encoder_fingerprint=encoder.fingerprint,
            corpus=subject.name,
            corpus_fingerprint=subject.fingerprint,
        )
        by_protocol = {each.protocol.id: key for key, each in imported.outcomes.items()}
        scored = stored_evaluations(store, EvaluationRef(sets=sets, evaluations=by_protocol, n_scored=0), ())
        uses += derive_figures(scored, resampling=resampling, run=run).uses
        if new:
            lines.append(f"run `capim compare --corpora {subject.name}` to compare it with other models")
        if replaced:
            encoders, state = [encoder.fingerprint], subject.fingerprint
            drop_evaluations(store, replaced, encoder_fingerprints=encoders, corpus_fingerprint=state)
    return ImportRef(lines=tuple(lines), uses=tuple(uses))


def _planned(store: EmbeddingStore, imported: Imported) -> tuple[list[str], list[str], str]:
    """What an import would change, which the store is only asked for.

    Returns:
        The evaluations whose outcomes are not stored; those of other outcomes of the same model, corpus and
        protocol, with sums of them; and why these may not be replaced, unless the user says so.
    """
    encoder, corpus = imported.encoder, imported.corpus
    subject = {"encoder_fingerprint": encoder.fingerprint, "corpus_fingerprint": corpus.fingerprint}
    rows = store.rows("results", **subject).to_pylist()
    counts = store.counts("outcomes", "evaluation", evaluation=list(imported.outcomes))
    new = [key for key, each in imported.outcomes.items() if counts.get(key) != len(each)]
    others = [
        (other, f"{protocol} (stored {other}, given {key})")
        for key, protocol in ((key, each.protocol.id) for key, each in imported.outcomes.items())
        for other in sorted({r["evaluation"] for r in rows if r["protocol"] == protocol} - {key})
    ]
    sums = sorted({r["evaluation"] for r in rows if Protocol.of(r["protocol"]).kind == "sum"}) if others else []
    fault = (
        f"{encoder.name!r} has other outcomes on {corpus.name!r}: {', '.join(text for _, text in others)}; give "
        "--replace to replace them, or another --revision or --encoder to keep both"
    )
    return new, [*(other for other, _ in others), *sums], fault
