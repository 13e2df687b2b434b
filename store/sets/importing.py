"""Importing embeddings that were made elsewhere; everything is checked before the first row is written.

The encoder of an import is what the user says it is: a name, a revision, a note. The contents of a file identify the
embedding set (by its digest), not the encoder. So images and captions can come at different times, one encoder can have
sets of several corpora, and the same file again changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from capim.store.embedding_store import EmbeddingStore
from capim.store.errors import RequestError, WorkError, noted
from capim.store.schema import Import, Result
from capim.store.sets.columns_read import columns_of_match, telling
from capim.store.sets.embedding_files import EmbeddingParts, are_unit_float16, blocks_of, open_embedding_file
from capim.store.sets.matching import NOT_VERIFIED, POSITION, Items, Match, key_of, match, plain_name
from capim.store.sets.rows import ItemIndex, digest
from capim.store.sets.seal import SealedSet
from capim.store.sets.vector_files import TABLES
from capim.store.sets.writing import block_checksums, check_block
from capim.store.types import (
    IMPORTED,
    MODALITIES,
    Corpus,
    EncoderSpec,
    Modality,
    SetKey,
    Storage,
    VectorKind,
    is_fingerprint,
)
from capim.store.upkeep.inventory import check_disk_space
from capim.store.upkeep.removal import drop_set, drop_superseded
from capim.store.vectors import rounding_of


@dataclass(frozen=True, kw_only=True)
class ImportRow:
    """One encoder's embeddings of one corpus, as named by the user.

    Attributes:
        encoder: Name to register the vectors under.
        corpus: A stored corpus, a name of the table of corpora, a folder or a TOML file.
        images: File with the vectors of the images; formats as in ``store.sets.embedding_files``.
        captions: File with the vectors of the captions.
        revision: Of the encoder; None: that of the import that is stored under this name, else ``unversioned``.
        note: Of the encoder; None: that of the stored one, else none.
        vectors: File with vectors of images or of captions, which its ids or their number say.
        same_as: The stored encoder that the vectors are of, whatever made it.
        columns: Roles and their columns, as the user names them.
        skip_bad_rows: Leave out rows that cannot be read, or of items that the corpus does not have.
    """

    encoder: str
    corpus: str
    images: str | None = None
    captions: str | None = None
    revision: str | None = None
    note: str | None = None
    vectors: str | None = None
    same_as: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    skip_bad_rows: bool = False


# --- The encoder of imported files: as the user describes it, and equal for all imports under one name.


UNVERSIONED = "unversioned"


@dataclass(frozen=True, kw_only=True)
class ImportFile:
    """One file of an import: what the user says about it, and the form of its vectors.

    ``storage`` is the coarsest type that holds its unit vectors: float16 only if the file does; float64 counts as
    float32.
    """

    row: ImportRow
    revision: str
    corpus: Corpus
    modality: Modality
    path: Path
    dim: int
    vectors: VectorKind
    storage: Storage

    @property
    def form(self) -> str:
        """The form of its vectors in words."""
        return _form(self.dim, self.vectors)


def stored_revision(store: EmbeddingStore, name: str) -> str:
    """The revision of the import that was registered last under this name, else ``unversioned``."""
    imports = [spec for spec in namesakes(store, name) if spec.adapter == IMPORTED]
    return imports[-1].revision if imports else UNVERSIONED


def imported_spec(store: EmbeddingStore, files: Sequence[ImportFile], storage: Storage | None) -> EncoderSpec:
    """The encoder of files with the same name and revision: the stored one, if there is one.

    Raises:
        RequestError: An encoder that was not imported has the name; or the files contradict each other, or the
            stored encoder, in dimension, kind of vectors, note or storage type.
    """
    first, name = files[0], files[0].row.encoder
    registered = namesakes(store, name)
    if first.row.same_as:
        stored = store.encoder(first.row.same_as)
        if faults := _contradictions(f"encoder {stored.name!r}", files, stored, [], storage):
            raise RequestError(faults)
        return stored
    for spec in registered:
        if spec.adapter != IMPORTED:
            raise RequestError(
                f"encoder name {name!r} is that of a model without imported embeddings (adapter {spec.adapter}, "
                f"fingerprint {spec.fingerprint}); give the import another name with --encoder, or --same-as {name} "
                "if the vectors are of that model"
            )
    label = f"encoder {name!r} (revision {first.revision!r})"
    faults, forms = [], {file.form: file for file in files}
    if len(forms) > 1:
        listed = "; ".join(f"{file.path} has {form}" for form, file in forms.items())
        faults.append(f"{label} must have vectors of one form: {listed}")
    notes = list(dict.fromkeys(file.row.note for file in files if file.row.note))
    if len(notes) > 1:
        faults.append(f"{label} has several notes: {', '.join(map(repr, notes))}; give one, or another --revision")
    known = next((spec for spec in reversed(registered) if spec.revision == first.revision), None)
    if known is not None and not faults:
        faults = _contradictions(label, files, known, notes, storage)
    if faults:
        raise RequestError(faults)
    finest: Storage = "float32" if any(file.storage == "float32" for file in files) else "float16"
    form: dict[str, Any] = {"dim": first.dim, "vectors": first.vectors, "storage": storage or finest}
    return known or declared_encoder(name, IMPORTED, first.revision, *notes, **form)


def declared_encoder(name: str, adapter: str, revision: str, note: str | None = None, **form: Any) -> EncoderSpec:
    """An encoder that no adapter ever loads: what the user says it is.

    Raises:
        RequestError: The name cannot be one, or the revision is a branch.
    """
    if is_fingerprint(name):
        raise RequestError(f"encoder name {name!r} looks like a fingerprint; choose another")
    options = {"note": note} if note else {}
    try:
        spec = EncoderSpec(name=name, adapter=adapter, checkpoint=name, revision=revision, options=options, **form)
    except ValueError as fault:
        raise RequestError(str(fault)) from fault
    if not spec.resolved:
        raise RequestError(f"encoder {name!r}: revision {revision!r} can move: give a version, a date or a commit")
    return spec


def note_faults(known: EncoderSpec, note: str | None = None) -> list[str]:
    """Return the errors in a note that was given for a stored encoder."""
    stored = known.options.get("note")
    if note is None or note == stored:
        return []
    has = f"the note {stored!r}" if stored else "no note"
    label = f"encoder {known.name!r} (revision {known.revision!r})"
    return [f"{label} is stored with {has}, got {note!r}; leave out --note, or give another --encoder or --revision"]


def namesakes(store: EmbeddingStore, name: str) -> list[EncoderSpec]:
    """The encoders that were registered under a name, oldest first."""
    rows = [row for row in store.encoders() if row.name == name]
    return [EncoderSpec.from_json(row.spec) for row in sorted(rows, key=lambda row: row.written)]


def _form(dim: int, vectors: VectorKind) -> str:
    return f"{'one vector' if vectors == 'single' else 'several vectors'} of {dim} components per item"


def _contradictions(
    label: str, files: Sequence[ImportFile], known: EncoderSpec, notes: Sequence[str], storage: Storage | None
) -> list[str]:
    """Return what the files or options say that is not true of the stored encoder."""
    other, form = "give another --encoder or --revision", _form(known.dim, known.vectors)
    faults = []
    if files[0].form != form:
        faults.append(f"{label} is stored with {form}, {files[0].path} has {files[0].form}; {other}")
    faults += note_faults(known, *notes)
    finer = [file.path for file in files if (known.storage, file.storage) == ("float16", "float32")]
    if storage not in (None, known.storage):
        faults.append(
            f"{label} is stored as {known.storage}, and has one storage type; leave out --storage {storage}, or {other}"
        )
    elif storage is None and finer:
        faults.append(
            f"{label} is stored as float16, {finer[0]} holds finer numbers or vectors with a norm other than 1; add "
            f"--storage float16 to round them, or {other}"
        )
    return faults


State: TypeAlias = Literal["new", "unchanged", "replaced"]
Read: TypeAlias = Callable[[Path, Modality, int, tuple[tuple[str, str], ...]], EmbeddingParts]


@dataclass(frozen=True, kw_only=True)
class ImportedSet:
    """One set of an import: a checked file and its state.

    Attributes:
        file: The source file.
        spec: Its encoder.
        key: Its encoder, corpus and modality.
        items: Images or captions.
        n_vectors: Of all items.
        digest: Of its contents.
        sealed: The set as it is stored; None where it is not.
        state: The action; ``unchanged``: the same contents were stored already, and nothing is written.
        rounding: The length of the largest change of a vector by the storage type.
        matched: How rows were matched with items.
    """

    file: ImportFile
    spec: EncoderSpec
    key: SetKey
    items: ItemIndex
    n_vectors: int
    digest: str
    sealed: SealedSet | None
    state: State
    rounding: float
    matched: Match


def import_sets(
    store: EmbeddingStore,
    imports: Sequence[tuple[ImportRow, Corpus]],
    *,
    storage: Storage | None = None,
    replace: bool = False,
    by_position: bool = False,
    plan_only: bool = False,
) -> list[ImportedSet]:
    """Writes and seals the sets in the files of one or several imports.

    Rows are matched as :mod:`capim.store.sets.matching` says, and every item of the corpus must occur once. Vectors
    with a norm other than 1 are normalised, and the norm is kept.

    Args:
        store: The store.
        imports: What to import, each with its corpus, which is stored if it is not yet.
        storage: Type of the stored components. None: that of the encoder if it is stored, else the type of the files,
            the finest of several; float64 becomes float32, as does float16 with a norm other than 1.
        replace: Replace stored sets that have other contents. Results computed from them are removed.
        by_position: The user says that rows follow the corpus.
        plan_only: Check everything, and write nothing.

    Returns:
        One entry per file, in the order of ``imports``, images first.

    Raises:
        RequestError: Files, ids, values or the encoder are wrong, or a set is stored with other contents; all faults
            are listed, and nothing was written.
    """
    read = lru_cache(maxsize=2)(open_embedding_file)  # one import's images and captions are opened once
    faults: list[str] = []
    files = _files(store, imports, read, faults)
    specs: dict[tuple[str, str], EncoderSpec] = {}
    for named in dict.fromkeys((file.row.encoder, file.revision) for file in files):
        with noted(faults):
            same = [file for file in files if (file.row.encoder, file.revision) == named]
            specs[named] = imported_spec(store, same, storage)
    plans: dict[SetKey, ImportedSet] = {}
    for file in files:
        if spec := specs.get((file.row.encoder, file.revision)):
            with noted(faults):
                plan = _plan(store, file, spec, read, replace=replace, by_position=by_position)
                if (other := plans.setdefault(plan.key, plan)).file.path != file.path:
                    faults.append(
                        f"{file.path} and {other.file.path} are both the {plan.key.modality}s of {plan.key.corpus!r} "
                        f"by {plan.key.encoder!r}"
                    )
    if faults:
        raise RequestError(faults)
    return list(plans.values()) if plan_only else _write(store, list(plans.values()), read)


def _files(
    store: EmbeddingStore, imports: Sequence[tuple[ImportRow, Corpus]], read: Read, faults: list[str]
) -> list[ImportFile]:
    """Every file that can be read; the faults of the others are added."""
    files = []
    for row, corpus in imports:
        given: dict[Modality, str | None] = {"image": row.images, "caption": row.captions}
        if row.vectors:
            with noted(faults):
                given |= dict.fromkeys(_sides_of_file(row, corpus, given, read), row.vectors)
        elif not any(given.values()):
            faults.append(f"give a file to import for {row.encoder!r}: image embeddings, caption embeddings or both")
        left = dict(row.columns)
        for modality, file in given.items():
            if not file:
                continue
            with noted(faults):
                contents = read(Path(file), modality, corpus.items(modality).num_rows, row.columns)
                found = ImportFile(
                    row=row,
                    revision=row.revision or stored_revision(store, row.encoder),
                    corpus=corpus,
                    modality=modality,
                    path=Path(file),
                    dim=contents.first.values.shape[1],
                    vectors=contents.first.vectors,
                    storage="float16" if are_unit_float16(contents) else "float32",
                )
                files.append(found)
                left = {role: column for role, column in left.items() if column not in contents.available}
        names = ", ".join(str(file) for file in given.values() if file)
        faults += [f"{names}: no column {column!r} for role {role!r}" for role, column in left.items()]
    return files


def _plan(
    store: EmbeddingStore, file: ImportFile, spec: EncoderSpec, read: Read, *, replace: bool, by_position: bool
) -> ImportedSet:
    """Checks one file against its corpus and against the stored set; every fault begins with the path."""
    corpus = file.corpus
    key = SetKey.of(spec, corpus.name, corpus.fingerprint, file.modality)
    items = ItemIndex.of(corpus, file.modality)
    rounding, checksums, n_vectors = 0.0, np.zeros(len(items), np.uint32), 0
    try:
        contents = read(file.path, file.modality, len(items), file.row.columns)
        matched = match_items(contents, Items.of_corpus(corpus, file.modality), corpus.name, by_position=by_position)
        for block, unit in blocks_of(contents, matched.positions, spec):
            check_block(key, spec, block, items)
            rounding = max(rounding, rounding_of(unit, spec.storage))
            checksums[block.ords] = block_checksums(spec, block)
            n_vectors += len(unit)
        if file.path.suffix in TABLES:
            names, keys = contents.names or [contents.array, *contents.columns], columns_of_match(matched.by)
            own = [name for name in names if name == contents.array or plain_name(name) in keys]
            deque(telling(f"{file.path} (vectors of {file.dim} numbers)", own, names, ()), 0)
    except RequestError as fault:
        unnamed = (line.removeprefix(f"{file.path}: ") for line in fault.faults)
        raise RequestError([f"{file.path}: {line}" for line in unnamed]) from fault
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
    return ImportedSet(
        file=file,
        spec=spec,
        key=key,
        items=items,
        n_vectors=n_vectors,
        digest=contents_digest,
        sealed=stored,
        state="unchanged" if same and store.intact(key) else state,
        rounding=rounding,
        matched=matched,
    )


def _sides_of_file(row: ImportRow, corpus: Corpus, given: Mapping[Modality, str | None], read: Read) -> list[Modality]:
    """Return the modality of the vectors in a file by what its rows match; of two, the one that lacks a file.

    Both, where an array of its own fits each.
    """
    path, arrays = Path(str(row.vectors)), dict[Modality, str]()
    named: list[Modality] = []  # modalities with a column that names their items
    reasons: dict[Modality, list[str]] = {modality: [] for modality in MODALITIES}
    for modality in MODALITIES:
        items = Items.of_corpus(corpus, modality)
        with noted(reasons[modality]):
            contents = read(path, modality, len(items.ids), row.columns)
            if key_of({plain_name(name): cells for name, cells in contents.columns.items()}, items) is not None:
                named.append(modality)
            match_items(contents, items, corpus.name)
            arrays[modality] = contents.array
    free = [modality for modality in arrays if not given[modality]]
    if len({arrays[each] for each in free}) == 2:
        return free
    fits = [modality for modality in arrays if modality in (named or arrays)]
    free = [modality for modality in fits if not given[modality]]
    if len(free) == 1 and (len(fits) == 1 or any(given.values())):
        return free
    what = "fits both images and captions" if fits else "fits neither images nor captions"
    last = (named or MODALITIES)[-1]
    which = f"say which with --images {path.name} or --captions {path.name}" if fits else reasons[last][-1]
    raise RequestError(f"{path}: it {what} of {corpus.name!r}: {which}")


_AT_ONCE = 8192  # rows compared at once


def match_items(contents: EmbeddingParts, items: Items, corpus: str, *, by_position: bool = False) -> Match:
    """The item of every row of a file of vectors; every item has to have one.

    Raises:
        RequestError: One has none, and as :func:`capim.store.sets.matching.match`.
    """
    found = match(contents.columns, contents.n, items, by_position=by_position, repeats=True)
    found = _without_repeats(contents, found, items)
    missing = np.setdiff1d(np.arange(len(items.ids)), found.positions)
    if missing.size:
        raise RequestError(
            f"{missing.size} of {len(items.ids)} {items.kind} of corpus {corpus!r} are not in the file, first "
            f"{items.ids[int(missing[0])]!r}"
        )
    return found


def _without_repeats(contents: EmbeddingParts, found: Match, items: Items) -> Match:
    """Return the match with the first of an item's several rows, which must have equal vectors."""
    several = np.bincount(found.positions[found.positions >= 0]) > 1
    if not several.any():
        return found
    positions, first, start = found.positions.copy(), dict[int, tuple[int, bytes]](), 0
    for part in contents.read(_AT_ONCE):
        for at, ord_ in enumerate(found.positions[start : start + len(part)].tolist()):
            if ord_ >= 0 and several[ord_]:
                row, vectors = start + at, np.ascontiguousarray(part.part(at, at + 1).values).tobytes()
                before, known = first.setdefault(ord_, (row, vectors))
                positions[row] = ord_ if before == row else -1
                if known != vectors:
                    raise RequestError(
                        f"{several.sum()} {items.kind} have more than one row, first {items.ids[ord_]!r} in rows "
                        f"{before + 1} and {row + 1}, which have different vectors; keep one row of each"
                    )
        start += len(part)
    n = int((found.positions >= 0).sum() - (positions >= 0).sum())
    return found._replace(positions=positions, how=f"{found.how}; {n:,} repeat a row with the same vector")


def _write(store: EmbeddingStore, plans: Sequence[ImportedSet], read: Read) -> list[ImportedSet]:
    todo = [plan for plan in plans if plan.state != "unchanged"]
    done: dict[SetKey, SealedSet] = {}
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
        contents = read(plan.file.path, plan.file.modality, len(plan.items), plan.file.row.columns)
        blocks = (block for block, _ in blocks_of(contents, plan.matched.positions, plan.spec))
        try:
            fresh.writer(plan.key).put_all(plan.spec, blocks)
            sealed = done[plan.key] = fresh.seal(plan.key, n_items=len(plan.items))
        except (RequestError, WorkError):
            drop_set(fresh, plan.key)
            raise
        if sealed.digest != plan.digest:
            drop_set(fresh, plan.key)
            raise WorkError(
                f"{plan.file.path} changed while it was imported; set {plan.key.table} was removed",
                remedy="Run the same `capim import` again",
            )
    for plan in todo:
        if plan.sealed is not None:
            key = plan.key
            drop_superseded(
                store, encoder_fingerprint=key.encoder_fingerprint, corpus_fingerprint=key.corpus_fingerprint
            )
    return [dataclasses.replace(plan, sealed=done.get(plan.key, plan.sealed)) for plan in plans]


# --- Records of how stored sets were matched.


def matched_text(matched: Iterable[str]) -> str:
    """Return how sets or outcomes were matched, in words.

    Examples:
        >>> matched_text(["position", "id"]), matched_text(["id", "id"]), matched_text(["filename (file names)"])
        ('matched by position, not verified', 'matched by id', 'matched by filename (file names)')
    """
    named = [by for by in dict.fromkeys(matched) if by]
    if any(by.startswith(POSITION) for by in named):
        return NOT_VERIFIED
    return f"matched by {', '.join(named)}" if named else ""


def matched_by(store: EmbeddingStore) -> Callable[[Result], str | None]:
    """A function that says of a row of results how its vectors or outcomes were matched; None: they are capim's own."""
    of: dict[Any, list[str]] = {}
    for row in store.all(Import):
        is_set = row.what in MODALITIES
        key = (row.encoder_fingerprint, row.corpus_fingerprint) if is_set else row.imported
        of.setdefault(key, []).append(row.matched)

    def said(row: Result) -> str | None:
        of_sets = of.get((row.encoder_fingerprint, row.corpus_fingerprint), []) if row.image_tag else []
        return matched_text(of.get(row.evaluation, of_sets)) or None

    return said
