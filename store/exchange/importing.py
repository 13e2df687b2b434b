"""Importing embeddings that were made elsewhere; everything is checked before the first row is written.

The encoder of an import is what the user says it is: a name, a revision, a note. The contents of a file identify the
embedding set (by its digest), not the encoder. So images and captions can come at different times, one encoder can have
sets of several corpora, and the same file again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from capim.store.checksums import digest
from capim.store.embedding_store import EmbeddingStore
from capim.store.errors import RequestError, WorkError
from capim.store.exchange.embedding_files import EmbeddingParts, open_embedding_file
from capim.store.exchange.file_blocks import blocks_of, positions_of
from capim.store.exchange.imported_encoder import ImportFile, imported_spec, stored_revision
from capim.store.exchange.manifest import ImportRow
from capim.store.keys import set_key, table_of
from capim.store.maintenance.disk_space import check_disk_space
from capim.store.maintenance.removal import drop_set, drop_superseded
from capim.store.rounding import Rounding, rounding_of
from capim.store.sets.checks import check_block
from capim.store.sets.seal import SealedSet
from capim.store.sets.writing import block_checksums
from capim.store.tables.corpora import ItemIndex, index_of
from capim.store.types import Corpus, EncoderSpec, Modality, SetKey, Storage

State: TypeAlias = Literal["new", "unchanged", "replaced"]
Read: TypeAlias = Callable[[Path], EmbeddingParts]


@dataclass(frozen=True, kw_only=True)
class ImportedSet:
    """One set of an import.

    Attributes:
        spec: Its encoder.
        sealed: The set as it is stored now.
        state: What was done; ``unchanged``: the same contents were stored already, and nothing was written.
        rounding: What the storage type changed.
    """

    spec: EncoderSpec
    sealed: SealedSet
    state: State
    rounding: Rounding


def import_sets(
    store: EmbeddingStore,
    imports: Sequence[tuple[ImportRow, Corpus]],
    *,
    storage: Storage | None = None,
    replace: bool = False,
) -> list[ImportedSet]:
    """Writes and seals the sets in the files of one or several imports.

    With ids, every item of the corpus must occur once, in any order; without ids, the rows are the items of the corpus
    in order. Vectors whose norm is not 1 are normalised, and the norm is kept.

    Args:
        store: The store.
        imports: What to import, each with its corpus, which is stored if it is not yet.
        storage: Type of the stored components. None: that of the encoder if it is stored, else the type of the files,
            the finest of several; float64 becomes float32.
        replace: Replace stored sets that have other contents. What was computed from them is removed.

    Returns:
        One entry per file, in the order of ``imports``, images first.

    Raises:
        RequestError: Files, ids, values or the encoder are wrong, or a set is stored with other contents; all faults
            are listed, and nothing was written.
    """
    read = lru_cache(maxsize=2)(open_embedding_file)  # one import's images and captions are opened once
    files, faults = _files(store, imports, read)
    specs: dict[tuple[str, str], EncoderSpec] = {}
    for name, revision in dict.fromkeys((file.encoder, file.revision) for file in files):
        same = [file for file in files if (file.encoder, file.revision) == (name, revision)]
        try:
            specs[name, revision] = imported_spec(store, same, storage)
        except RequestError as fault:
            faults += fault.faults
    plans = []
    for file in files:
        if spec := specs.get((file.encoder, file.revision)):
            try:
                plans.append(_plan(store, file, spec, read, replace=replace))
            except RequestError as fault:
                faults += fault.faults
    faults += _named_twice(plans)
    if faults:
        raise RequestError(faults)
    return _write(store, plans, read)


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """A file that was checked, and what is to be done with it."""

    file: ImportFile
    spec: EncoderSpec
    key: SetKey
    items: ItemIndex
    n_vectors: int
    digest: str
    rounding: Rounding
    stored: SealedSet | None
    state: State


def _files(
    store: EmbeddingStore, imports: Sequence[tuple[ImportRow, Corpus]], read: Read
) -> tuple[list[ImportFile], list[str]]:
    """Every file that can be read, and the faults of the others."""
    files, faults = [], []
    for one, corpus in imports:
        given: dict[Modality, str | None] = {"image": one.images, "caption": one.captions}
        if not any(given.values()):
            faults.append(f"give a file to import for {one.encoder!r}: image embeddings, caption embeddings or both")
        for modality, file in given.items():
            if not file:
                continue
            path = Path(file)
            try:
                contents = read(path)
            except RequestError as fault:
                faults += fault.faults
                continue
            files.append(
                ImportFile(
                    encoder=one.encoder,
                    revision=one.revision or stored_revision(store, one.encoder),
                    note=one.note,
                    corpus=corpus,
                    modality=modality,
                    path=path,
                    dim=contents.first.values.shape[1],
                    vectors="single" if contents.first.offsets is None else "multi",
                    storage="float16" if contents.first.values.dtype.itemsize <= 2 else "float32",
                )
            )
    return files, faults


def _plan(store: EmbeddingStore, file: ImportFile, spec: EncoderSpec, read: Read, *, replace: bool) -> _Plan:
    """Checks one file against its corpus and against the stored set; every fault begins with the path."""
    corpus, contents = file.corpus, read(file.path)
    key = set_key(spec, corpus.name, corpus.fingerprint, file.modality)
    items = index_of(corpus.name, file.modality, corpus.images if file.modality == "image" else corpus.captions)
    rounding, checksums, n_vectors = Rounding(), np.zeros(len(items), np.uint32), 0
    try:
        positions = positions_of(contents, items.ids, f"corpus {corpus.name!r}")
        for block, unit in blocks_of(contents, positions, items.ids, spec):
            check_block(key, spec, block, items)
            rounding += rounding_of(unit, spec.storage)
            checksums[block.ords] = block_checksums(spec, block)
            n_vectors += len(unit)
    except RequestError as fault:
        named = f"{file.path}"
        raise RequestError([line if line.startswith(named) else f"{named}: {line}" for line in fault.faults]) from fault
    contents_digest = digest(checksums)
    stored = store.sealed(key)
    same = stored is not None and stored.digest == contents_digest
    if stored is not None and not same and not replace:
        raise RequestError(
            f"{file.path}: the {file.modality}s of {corpus.name!r} by {spec.name!r} are stored with other contents "
            f"(digest {stored.digest[:16]}, the file has {contents_digest[:16]}); add --replace to replace them, or "
            "give another --encoder or --revision"
        )
    state: State = "new" if stored is None or same else "replaced"
    return _Plan(
        file=file,
        spec=spec,
        key=key,
        items=items,
        n_vectors=n_vectors,
        digest=contents_digest,
        rounding=rounding,
        stored=stored,
        state="unchanged" if same and store.intact(key) else state,
    )


def _named_twice(plans: Sequence[_Plan]) -> list[str]:
    first: dict[SetKey, Path] = {}
    return [
        f"{plan.file.path} and {other} are both the {plan.key.modality}s of {plan.key.corpus!r} by {plan.key.encoder!r}"
        for plan in plans
        if (other := first.setdefault(plan.key, plan.file.path)) != plan.file.path
    ]


def _write(store: EmbeddingStore, plans: Sequence[_Plan], read: Read) -> list[ImportedSet]:
    todo = [plan for plan in plans if plan.state != "unchanged"]
    done = {plan.key: plan.stored for plan in plans if plan.stored is not None}
    for plan in todo:
        n = len(plan.items)
        check_disk_space(store, plan.spec, n, vectors_per_item=plan.n_vectors / max(1, n))
    for corpus in {plan.key.corpus_fingerprint: plan.file.corpus for plan in todo}.values():
        store.write_corpus(corpus)
    for spec in {plan.spec.fingerprint: plan.spec for plan in todo}.values():
        store.write_encoder(spec)
    fresh = EmbeddingStore.open(store.uri)  # has counted no rows of the tables that are dropped here
    for plan in todo:
        drop_set(fresh, plan.key)  # replaced, or begun by an import that was interrupted
    for plan in todo:
        contents = read(plan.file.path)
        positions = positions_of(contents, plan.items.ids, f"corpus {plan.key.corpus!r}")
        blocks = (block for block, _ in blocks_of(contents, positions, plan.items.ids, plan.spec))
        try:
            fresh.put_all(plan.key, plan.spec, blocks)
            sealed = done[plan.key] = fresh.seal(plan.key, n_items=len(plan.items))
        except (RequestError, WorkError):
            drop_set(fresh, plan.key)
            raise
        if sealed.digest != plan.digest:
            drop_set(fresh, plan.key)
            raise WorkError(
                f"{plan.file.path} changed while it was imported; set {table_of(plan.key)} was removed",
                remedy="Run the same `capim import` again",
            )
    for plan in todo:
        if plan.stored is not None:
            drop_superseded(
                store,
                encoder_fingerprint=plan.key.encoder_fingerprint,
                corpus_fingerprint=plan.key.corpus_fingerprint,
            )
    return [
        ImportedSet(spec=plan.spec, sealed=done[plan.key], state=plan.state, rounding=plan.rounding) for plan in plans
    ]
