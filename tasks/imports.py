"""Tasks: import embeddings, and outcomes of models without embeddings, that other programs computed."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from capim.store import EmbeddingStore
from capim.store.errors import RequestError, noted
from capim.store.schema import Import, Result, texts
from capim.store.sets.embedding_files import open_embedding_file
from capim.store.sets.importing import UNVERSIONED, ImportedSet, ImportRow, import_sets, imported_encoder, namesakes
from capim.store.sets.lists import QRELS, RUN
from capim.store.tables import skipping_bad_rows, uncompressed
from capim.store.types import IMPORTED, MODALITIES, OF_OUTCOMES, Corpus, EncoderSpec, SetKey, Storage
from capim.store.upkeep.removal import drop_evaluations
from capim.store.vectors import rounding_text
from capim.tasks.corpora.files import corpus_name
from capim.tasks.corpora.opened import corpus_for_import
from capim.tasks.derive import Derived
from capim.tasks.encoders import catalog
from capim.tasks.encoders.catalog import Facts
from capim.tasks.metrics import metrics_of
from capim.tasks.prefects.task import task
from capim.tasks.protocols import Protocol
from capim.tasks.published import read_published
from capim.tasks.ranking.protocols import protocols_of
from capim.tasks.references import EvaluationRef, SetsRef
from capim.tasks.results.figures import Figures
from capim.tasks.results.imported.runs import corpus_of_qrels, outcomes_of_run, read_qrels, read_run, tag_of
from capim.tasks.results.imported.sources import Imported, Source, described_corpus, outcomes_of_source
from capim.tasks.results.imported.tables import FoundRows
from capim.tasks.results.scoring import stored_evaluations
from capim.tasks.statistics.draws import Resampling


@task("import-embeddings")
def import_embedding_files(
    row: ImportRow, *, store_uri: str, storage: Storage | None, replace: bool, by_position: bool, plan: bool, run: str
) -> list[str]:
    """Check, write and seal the embeddings of files, and store a new corpus; return a line per action.

    Everything is checked before the first row is written, and all faults are reported together. ``plan``: nothing is
    written; the lines say what would be.
    """
    store = EmbeddingStore.open(store_uri, create=True)
    faults = [] if row.same_as else catalog_faults([row.encoder])
    with noted(faults):
        corpus = corpus_for_import(store, row.corpus)
    if faults:
        raise RequestError(faults)
    with TemporaryDirectory() as folder, skipping_bad_rows(row.skip_bad_rows):
        row = _with_text(row, corpus, Path(folder))
        how: dict[str, Any] = {"storage": storage, "replace": replace, "by_position": by_position, "plan_only": plan}
        imported = import_sets(store, row, corpus, **how)
    lines = [f"{done.path}: {done.key.modality}s of {done.key.corpus}: {done.matched.how}" for done in imported]
    lines += _repeats(store, imported)
    if plan:
        return [*lines, *(f"{_label(done)}: to be stored ({done.state}); nothing was written" for done in imported)]
    sources = [
        (done.key.table, done.key.modality, done.matched.by, str(done.path), SetsRef.of(done.key)) for done in imported
    ]
    _record_imports(store, sources, run=run)
    return [*lines, *map(_done_line, imported), _next_step(store, imported[0].key)]


def _with_text(row: ImportRow, corpus: Corpus, folder: Path) -> ImportRow:
    """Return the import of images that search images with a vector for the corpus' one text, which nothing reads."""
    images = row.images or row.vectors
    if images is None or row.captions or any(protocol.direction != "i2i" for protocol in protocols_of(corpus)):
        return row
    first = open_embedding_file(Path(images), "image", corpus.images.num_rows, row.columns).first
    arrays: dict[str, Any] = {"embeddings": np.eye(1, first.values.shape[1], dtype=first.values.dtype)}
    arrays |= {"offsets": np.array([0, 1])} if first.offsets is not None else {}
    captions = folder / f"no-texts-{corpus.fingerprint}.npz"
    np.savez(captions, ids=texts(corpus.captions["id"]), **arrays)
    return dataclasses.replace(row, images=images, vectors=None, captions=str(captions))


def _record_imports(store: EmbeddingStore, sources: Iterable[tuple[str, str, str, str, SetsRef]], *, run: str) -> None:
    """Keep how sets and evaluations were matched, and where they come from; read with every result of theirs."""
    of_run: dict[str, Any] = {"run": run, "created": datetime.now(UTC)}
    rows = [
        Import(**dataclasses.asdict(sets), imported=name, what=what, matched=matched, source=source, **of_run)
        for name, what, matched, source, sets in sources
    ]
    known = {(row.imported, row.matched, row.source) for row in store.all(Import)}
    new = [row for row in rows if (row.imported, row.matched, row.source) not in known]
    store.write(new, replace="imported")


def write_facts(store: EmbeddingStore, facts: Mapping[str, Facts]) -> list[str]:
    """Change the stored facts of imported models, by name or fingerprint; return a line about each.

    Raises:
        RequestError: A model is not stored, or capim loads it: its facts are those of the catalog, or of its table.
    """
    specs, faults = [], list[str]()
    for name, given in facts.items():
        with noted(faults):
            specs.append(given.of(store.encoder(name)))
            if specs[-1].adapter not in (IMPORTED, OF_OUTCOMES):
                faults.append(
                    f"facts of {name!r} come from the catalog, or from its [[encoder]] table: give them there"
                )
    if faults:
        raise RequestError(faults)
    for spec in specs:
        store.describe_encoder(spec)
    facts_of = ["".join(f", {name} {fact}" for name, fact in spec.facts.items()) for spec in specs]
    return [f"{spec.name}: licence {spec.licence}{more}" for spec, more in zip(specs, facts_of, strict=True)]


def lacking_facts(store: EmbeddingStore, name: str) -> list[str]:
    """Return a line with a command if the newest revision of a model has no facts, but an earlier one has."""
    specs = namesakes(store, name)
    known = [spec for spec in specs if spec.facts or spec.licence != "unknown"]
    if not known or specs[-1] in known:
        return []
    of, facts = f"{name} (revision {specs[-1].revision})", {"licence": known[-1].licence, **known[-1].facts}
    options = " ".join(f"--{fact} {shlex.quote(str(value))}" for fact, value in facts.items())
    command = f"capim import --encoder {name} {options}"
    return [f"{of}: no licence or other facts; if those of revision {known[-1].revision} hold: `{command}`"]


def catalog_faults(names: Iterable[str]) -> list[str]:
    """Return one line for each name that an import cannot have, because it is that of a model of the catalog."""
    return [
        f"encoder name {name!r} belongs to a model of the catalog (capim list encoders), which capim encodes with "
        f"itself; give the import another name, such as {name}-imported"
        for name in dict.fromkeys(names)
        if name in catalog()
    ]


def _repeats(store: EmbeddingStore, imported: Sequence[ImportedSet]) -> list[str]:
    """Return a line for each set whose vectors are stored for another encoder, or for another revision of its own."""
    sealed = store.sealed_sets()
    return [
        f"the {of.key.modality}s of {of.key.corpus} have the same vectors as those of "
        f"{_encoder_label(store.encoder(each.key.encoder_fingerprint))}, bit for bit"
        for of in imported
        for each in sealed
        if each.digest == of.digest
        and each.key.encoder_fingerprint != of.key.encoder_fingerprint
        and (each.key.corpus_fingerprint, each.key.modality) == (of.key.corpus_fingerprint, of.key.modality)
    ]


def _label(done: ImportedSet) -> str:
    """Return a label of a set: its encoder, corpus and modality."""
    return f"{_encoder_label(done.spec)}: {len(done.items):,} {done.key.modality}s of {done.key.corpus}"


def _encoder_label(spec: EncoderSpec) -> str:
    """Return the name of an encoder, with its revision and its options if it has some."""
    about = [f"revision {spec.revision}"] if spec.revision != UNVERSIONED else []
    about += [f"{name}: {value}" for name, value in spec.options.items()]
    return f"{spec.name} ({', '.join(about)})" if about else spec.name


def _done_line(done: ImportedSet) -> str:
    """Return a line about one set that was imported."""
    label, sealed = _label(done), done.sealed
    if sealed is None:
        return f"{label} are not stored"
    if done.state == "unchanged":
        return f"{label} are stored already with the same contents; nothing was written ({sealed.tag})"
    verb = "replaced" if done.state == "replaced" else "imported"
    rounding = rounding_text(done.rounding, sealed.storage) or f"stored as {sealed.storage}"
    removed = "; results of the replaced embeddings were removed" if done.state == "replaced" else ""
    return f"{label} {verb} ({sealed.tag}), {rounding}{removed}"


def _next_step(store: EmbeddingStore, key: SetKey) -> str:
    """Return the command to run after an import of this encoder and corpus."""
    stored = {sealed.key.table for sealed in store.sealed_sets()}
    missing = [side for side in MODALITIES if dataclasses.replace(key, modality=side).table not in stored]
    if not missing:
        return f"run `capim evaluate --corpora {key.corpus} --encoders {key.encoder}`"
    options = f"--corpus {key.corpus} --encoder {key.encoder} --{missing[0]}s FILE"
    return f"{missing[0]}s of {key.corpus} by {key.encoder} are missing: run `capim import {options}`"


@task("import-outcomes", run_name="import-outcomes-{source.path}")
def import_outcomes(
    corpus: str | dict[str, Any],
    source: Source,
    *,
    store_uri: str,
    replace: bool,
    plan: bool,
    resampling: Resampling,
    run: str,
) -> Derived:
    """Store outcomes of models without embeddings, and the results that they determine.

    Everything is checked before the corpus is registered and the first row is written.
    """
    store = EmbeddingStore.open(store_uri, create=True)
    with skipping_bad_rows(source.skip_bad_rows):
        if source.kind == "qrels":
            subject, found = _judged_runs(store, source, str(corpus))
        else:
            known = [row.name for row in store.corpora()]
            subject = corpus_for_import(store, described_corpus(source, corpus, stored=known))
            found = {name: (source.path, each) for name, each in outcomes_of_source(source, subject).items()}
    return _store(store, subject, found, source=source, replace=replace, plan=plan, resampling=resampling, run=run)


def _judged_runs(store: EmbeddingStore, source: Source, label: str) -> tuple[Corpus, dict[str, tuple[str, FoundRows]]]:
    """Return the corpus of runs on judged documents, without texts and images; and each run with its file, by name.

    The gallery is every document of the qrels and of these runs. A stored corpus of the name that holds them all, with
    the same judgements, is taken as it is.
    """
    qrels, runs = Path(source.path), source.runs
    of_run, of_qrels = ({role: name for role, name in source.columns.items() if role in f.roles} for f in (RUN, QRELS))
    lists = {path: read_run(Path(path), of_run) for path in runs}
    label = label or corpus_name(qrels)
    new = corpus_of_qrels(read_qrels(qrels, of_qrels), lists.values(), label, origin=str(qrels.absolute()))
    subject = _with_these(store, new) or new
    names = [source.encoder or tag_of(Path(path)) for path in runs]
    if len({*names}) < len(names) and not source.encoder:
        names = [re.sub(r"[^A-Za-z0-9._-]+", "-", uncompressed(Path(path)).stem) for path in runs]
    if len({*names}) < len(names):
        raise RequestError(
            f"{len(runs)} runs have {len({*names})} names ({', '.join(names)}); import them one at a time"
        )
    return subject, {n: (path, outcomes_of_run(lists[path], subject)) for n, path in zip(names, runs, strict=True)}


def _with_these(store: EmbeddingStore, new: Corpus) -> Corpus | None:
    """Return the stored corpus of this name that has all of its documents, and the same queries and judgements."""
    if new.name not in {row.name for row in store.corpora()}:
        return None
    stored = store.corpus(new.name)
    same = stored.captions["id"].equals(new.captions["id"]) and stored.relevance.equals(new.relevance)
    return stored if same and {*texts(new.images["id"])} <= {*texts(stored.images["id"])} else None


@task("import-published")
def import_published(source: Source, *, store_uri: str, plan: bool, run: str) -> Derived:
    """Keep results that others published, to be shown next to ours (``capim results --against published``)."""
    rows = read_published(Path(source.path), source.columns)
    models, known = {row.model for row in rows}, [row for row in rows if row.protocol]
    lines = [f"{len(rows)} results of {len(models)} models, {len(known)} of them under a protocol that is known here"]
    differences = Counter(row.difference for row in rows)
    lines += [f"{count} results: {difference}" for difference, count in differences.most_common()]
    if not plan:
        store = EmbeddingStore.open(store_uri, create=True)
        store.write([dataclasses.replace(row, run=run) for row in rows], replace="published")
        lines.append("run `capim results --against published` to see them next to your own results")
    return Derived(lines=tuple(lines))


def _store(
    store: EmbeddingStore,
    subject: Corpus,
    found: Mapping[str, tuple[str, FoundRows]],
    *,
    source: Source,
    replace: bool,
    plan: bool,
    resampling: Resampling,
    run: str,
) -> Derived:
    """Check the outcomes of models on one corpus and store them; return how they were matched."""
    plans, faults = [], []
    for (path, each), encoder in zip(found.values(), _encoders(store, [*found], source), strict=True):
        imported = Imported.of(each.outcomes, encoder, subject)
        new, replaced, fault = _planned(store, imported)
        plans.append((path, each, imported, new, replaced))
        faults += [fault] if replaced and not replace else []
    if faults:
        raise RequestError(faults)
    uses: list[str] = []
    lines = [f"{name}: {line}" for name, (_, each) in found.items() for line in (*each.how, *each.left_out)]
    for path, each, imported, new, replaced in plans:
        encoder = imported.encoder
        for key, outcomes in imported.outcomes.items():
            what = f"{encoder.name}: {outcomes.protocol.id} of {subject.name}, {len(outcomes):,} queries"
            does = ", ".join(metric.name for metric in metrics_of(outcomes)) or "no metric is determined"
            lines.append(f"{what}: {does if key in new else 'stored already, nothing to do'}")
        if plan:
            continue
        store.write_corpus(subject)
        store.write_encoder(encoder)
        for key in new:
            store.write_rows("outcomes", imported.rows(key), replace="evaluation")
        sets, by_protocol = imported.sets, {each.protocol.id: key for key, each in imported.outcomes.items()}
        sources = [(key, protocol, each.matched.get(protocol, ""), path, sets) for protocol, key in by_protocol.items()]
        _record_imports(store, sources, run=run)
        scored = stored_evaluations(store, EvaluationRef(sets=sets, evaluations=by_protocol, n_scored=0), ())
        uses += Figures(scored=scored, resampling=resampling, run=run).derive()
        if replaced:
            encoders, state = [encoder.fingerprint], subject.fingerprint
            drop_evaluations(store, replaced, encoder_fingerprints=encoders, corpus_fingerprint=state)
    if plan:
        lines.append("nothing was written; the same command without --dry-run stores it")
    elif any(new for *_, new, _ in plans):
        lines.append(f"run `capim compare --corpora {subject.name}` to compare it with other models")
    return Derived(lines=tuple(lines), uses=tuple(uses))


def _encoders(store: EmbeddingStore, names: Sequence[str], source: Source) -> list[EncoderSpec]:
    """Return the models of these names, as the user describes them; or the stored one that they are the same as."""
    if not source.same_as:
        if faults := catalog_faults(names):
            raise RequestError(faults)
        revision = source.revision
        return [
            imported_encoder(n, OF_OUTCOMES, namesakes=namesakes(store, n), revision=revision, dim=1) for n in names
        ]
    if len(names) > 1:
        raise RequestError(f"--same-as names one model, the files have {len(names)}: {', '.join(names)}")
    return [store.encoder(source.same_as)]


def _planned(store: EmbeddingStore, imported: Imported) -> tuple[list[str], list[str], str]:
    """Return the changes that an import would make; nothing is written.

    Returns:
        The evaluations without stored outcomes; those of other outcomes of the same model, corpus and protocol,
        with sums of them; and the reasons why these may not be replaced, unless the user says so.
    """
    encoder, corpus = imported.encoder, imported.corpus
    subject = {"encoder_fingerprint": encoder.fingerprint, "corpus_fingerprint": corpus.fingerprint}
    rows = store.all(Result, **subject)
    counts = store.counts("outcomes", "evaluation", evaluation=list(imported.outcomes))
    new = [key for key, each in imported.outcomes.items() if counts.get(key) != len(each)]
    others = [
        (other, f"{protocol} (stored {other}, given {key})")
        for key, protocol in ((key, each.protocol.id) for key, each in imported.outcomes.items())
        for other in sorted({r.evaluation for r in rows if r.protocol == protocol} - {key})
    ]
    sums = sorted({r.evaluation for r in rows if Protocol.of(r.protocol).kind == "sum"}) if others else []
    fault = (
        f"{encoder.name!r} has other outcomes on {corpus.name!r}: {', '.join(text for _, text in others)}; give "
        "--replace to replace them, or another --revision or --encoder to keep both"
    )
    return new, [*(other for other, _ in others), *sums], fault
