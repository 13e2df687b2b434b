"""Importing embeddings that were made elsewhere; everything is checked before the first row is written.

The encoder of an import is what the user says it is: a name and a revision. The contents of a file identify the
embedding set (by its digest), not the encoder. So images and captions can come at different times, one encoder can have
sets of several corpora, and the same file again changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np

from capim.store.embedding_store import EmbeddingStore
from capim.store.errors import RequestError, WorkError, noted
from capim.store.schema import Import, Result, texts
from capim.store.sets.columns_read import columns_of_match, telling
from capim.store.sets.embedding_files import EmbeddingParts, are_unit_float16, blocks_of, open_embedding_file
from capim.store.sets.matching import NOT_VERIFIED, POSITION, Items, Match, key_of, match, plain_name
from capim.store.sets.rows import ROWS_AT_ONCE, ItemIndex, digest
from capim.store.sets.sealed import SealedSet
from capim.store.sets.vector_files import TABLES
from capim.store.sets.writing import block_checksums, check_block
from capim.store.types import IMPORTED, MODALITIES, Corpus, EncoderSpec, Modality, SetKey, Storage, is_fingerprint
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
        vectors: File with vectors of images or of captions, which its ids or their number say.
        same_as: The stored encoder that the vectors are of, whatever made it.
        columns: Roles and their columns, as the user names them.
        skip_bad_rows: Leave out rows that cannot be read, or of items that the corpus does not have.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # of the parameters of a deployment

    encoder: str
    corpus: str
    images: str | None = None
    captions: str | None = None
    revision: str | None = None
    vectors: str | None = None
    same_as: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    skip_bad_rows: bool = False


# --- The encoder of an import, which no adapter ever loads: as the user describes it.


UNVERSIONED = "unversioned"


def namesakes(store: EmbeddingStore, name: str) -> list[EncoderSpec]:
    """Return the encoders that were registered under a name, oldest first."""
    rows = sorted(store.encoders(name=name), key=lambda row: row.written)
    return [EncoderSpec.from_json(row.spec) for row in rows]


def imported_encoder(
    name: str, adapter: str, *, namesakes: Sequence[EncoderSpec] = (), revision: str | None = None, **form: Any
) -> EncoderSpec:
    """Return the stored encoder of an import with this name and revision; a new one if there is none.

    Args:
        name: Its name.
        adapter: ``IMPORTED`` for vectors, ``OF_OUTCOMES`` for outcomes.
        namesakes: The stored encoders of this name, oldest first.
        revision: Any text that distinguishes its versions; None: that of the stored encoder, else ``unversioned``.
        form: Other fields of a new spec.

    Raises:
        RequestError: If the name is that of an encoder of another kind, or cannot be one; or if the revision is a
            branch.
    """
    for spec in namesakes:
        if spec.adapter != adapter:
            raise RequestError(
                f"encoder {name!r} is in the store as another kind (adapter {spec.adapter}, {spec.checkpoint}); give "
                f"the import another name with --encoder, or --same-as {name} if it is of that model"
            )
    revision = revision or (namesakes[-1].revision if namesakes else UNVERSIONED)
    known = next((spec for spec in reversed(namesakes) if spec.revision == revision), None)
    if known is not None:
        return known
    if is_fingerprint(name):
        raise RequestError(f"encoder name {name!r} looks like a fingerprint; choose another")
    try:
        spec = EncoderSpec(name=name, adapter=adapter, checkpoint=name, revision=revision, **form)
    except ValueError as fault:
        raise RequestError(str(fault)) from fault
    if not spec.resolved:
        raise RequestError(f"encoder {name!r}: revision {revision!r} can move: give a version, a date or a commit")
    return spec


class _File(NamedTuple):
    """One file of an import; ``storage`` is the coarsest type that holds its unit vectors, float16 or float32."""

    modality: Modality
    path: Path
    contents: EmbeddingParts
    storage: Storage

    @property
    def form(self) -> dict[str, Any]:
        """Return the fields of a spec that the vectors determine."""
        return {"dim": self.contents.first.values.shape[1], "vectors": self.contents.first.vectors}


def _form_text(dim: int, vectors: str) -> str:
    return f"{'one vector' if vectors == 'single' else 'several vectors'} of {dim} components per item"


def _spec_of(store: EmbeddingStore, row: ImportRow, files: Sequence[_File], storage: Storage | None) -> EncoderSpec:
    """Return the encoder of the files.

    Raises:
        RequestError: As :func:`imported_encoder`; or if the files contradict each other or the stored encoder in
            dimension, kind of vectors or storage type.
    """
    finest: Storage = "float32" if any(file.storage == "float32" for file in files) else "float16"
    if row.same_as:
        spec = store.encoder(row.same_as)
    else:
        about: dict[str, Any] = {"namesakes": namesakes(store, row.encoder), "revision": row.revision}
        spec = imported_encoder(row.encoder, IMPORTED, **about, **files[0].form, storage=storage or finest)
    label, faults = f"encoder {spec.name!r} (revision {spec.revision!r})", list[str]()
    other = "give another --encoder or --revision"
    for file in files:
        if file.form != {"dim": spec.dim, "vectors": spec.vectors}:
            has, expected = _form_text(**file.form), _form_text(spec.dim, spec.vectors)
            faults.append(f"{label} has {expected}, {file.path} has {has}; {other}")
    finer = [file.path for file in files if (spec.storage, file.storage) == ("float16", "float32")]
    if storage not in (None, spec.storage):
        faults.append(
            f"{label} is stored as {spec.storage}, and has one storage type; leave out --storage {storage}, or {other}"
        )
    elif storage is None and finer:
        faults.append(
            f"{label} is stored as float16, {finer[0]} holds finer numbers or vectors with a norm other than 1; add "
            f"--storage float16 to round them, or {other}"
        )
    if faults:
        raise RequestError(faults)
    return spec


# --- The sets of an import.


State: TypeAlias = Literal["new", "unchanged", "replaced"]


@dataclass(frozen=True, kw_only=True)
class ImportedSet:
    """One set of an import: a checked file and its state.

    Attributes:
        path: The source file.
        contents: Its contents.
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

    path: Path
    contents: EmbeddingParts
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
    row: ImportRow,
    corpus: Corpus,
    *,
    storage: Storage | None = None,
    replace: bool = False,
    by_position: bool = False,
    plan_only: bool = False,
) -> list[ImportedSet]:
    """Write and seal the sets in the files of an import.

    Rows are matched as :mod:`capim.store.sets.matching` says, and every item of the corpus must occur once. Vectors
    with a norm other than 1 are normalised, and the norm is kept.

    Args:
        store: The store.
        row: The import.
        corpus: Its corpus, which is stored if it is not yet.
        storage: Type of the stored components. None: that of the encoder if it is stored, else the type of the files,
            the finer of two; float64 becomes float32, as does float16 with a norm other than 1.
        replace: Replace stored sets that have other contents. Results computed from them are removed.
        by_position: The user says that rows follow the corpus.
        plan_only: Check everything, and write nothing.

    Returns:
        One entry per file, images first.

    Raises:
        RequestError: Files, ids, values or the encoder are wrong, or a set is stored with other contents; all faults
            are listed, and nothing was written.
    """
    faults: list[str] = []
    files = _files(row, corpus, faults)
    plans: list[ImportedSet] = []
    if files:
        with noted(faults):
            spec = _spec_of(store, row, files, storage)
            for file in files:
                with noted(faults):
                    plans.append(_plan(store, file, corpus, spec, replace=replace, by_position=by_position))
    if faults:
        raise RequestError(faults)
    return plans if plan_only else _write(store, corpus, plans)


def _files(row: ImportRow, corpus: Corpus, faults: list[str]) -> list[_File]:
    """Return every file that can be read, images first; the faults of the others are added."""
    given = {modality: name for modality, name in zip(MODALITIES, (row.images, row.captions), strict=True) if name}
    opened: dict[Modality, EmbeddingParts] = {}
    for modality, name in given.items():
        with noted(faults):
            opened[modality] = _opened(row, name, modality, corpus)
    if row.vectors:
        with noted(faults):
            opened |= _sides_of_file(row, row.vectors, corpus, given)
    elif not given:
        faults.append(f"give a file to import for {row.encoder!r}: image embeddings, caption embeddings or both")
    files, left = [], dict(row.columns)
    for modality, contents in sorted(opened.items(), key=lambda each: MODALITIES.index(each[0])):
        with noted(faults):
            finest: Storage = "float16" if are_unit_float16(contents) else "float32"
            files.append(_File(modality, Path(given.get(modality) or str(row.vectors)), contents, finest))
            left = {role: column for role, column in left.items() if column not in contents.available}
    names = ", ".join(filter(None, (*given.values(), row.vectors)))
    faults += [f"{names}: no column {column!r} for role {role!r}" for role, column in left.items()]
    return files


def _opened(row: ImportRow, name: str, modality: Modality, corpus: Corpus) -> EmbeddingParts:
    return open_embedding_file(Path(name), modality, corpus.items(modality).num_rows, row.columns)


def _plan(
    store: EmbeddingStore, file: _File, corpus: Corpus, spec: EncoderSpec, *, replace: bool, by_position: bool
) -> ImportedSet:
    """Check one file against its corpus and against the stored set; every fault begins with the path."""
    contents = file.contents
    key = SetKey.of(spec, corpus.name, corpus.fingerprint, file.modality)
    items = ItemIndex.of(corpus, file.modality)
    rounding, checksums, n_vectors = 0.0, np.zeros(len(items), np.uint32), 0
    try:
        for side in MODALITIES:
            ids = corpus.items(side)["id"]  # the length first: there may be millions
            if not 0 < len(ids) == len(contents.components):
                continue
            names = {*texts(ids)}
            if names == {*contents.components} and not min(names).isdigit():
                raise RequestError(f"its columns are the ids of the {side}s: give a matrix of scores as --scores FILE")
        matched = match_items(contents, Items.of_corpus(corpus, file.modality), corpus.name, by_position=by_position)
        if matched.by.startswith(POSITION) and contents.others and not by_position:
            partners = Items.by_partners(corpus, file.modality)
            if key_of({plain_name(name): cells for name, cells in contents.others.items()}, partners) is not None:
                matched = match_items(dataclasses.replace(contents, columns=contents.others), partners, corpus.name)
            else:
                matched = matched._replace(how=f"{matched.how}; not read: {', '.join(contents.others)}")
        for block, unit in blocks_of(contents, matched.positions, spec):
            check_block(key, spec, block, items)
            rounding = max(rounding, rounding_of(unit, spec.storage))
            checksums[block.ords] = block_checksums(spec, block)
            n_vectors += len(unit)
        if file.path.suffix in TABLES:
            keys = {contents.array, *columns_of_match(matched.by), *contents.first.columns}
            own = [name for name in contents.names if name in keys or plain_name(name) in keys]
            deque(telling(f"{file.path} (vectors of {spec.dim} numbers)", own, contents.names, ()), 0)
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
        path=file.path,
        contents=contents,
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


def _sides_of_file(
    row: ImportRow, name: str, corpus: Corpus, given: Collection[Modality]
) -> dict[Modality, EmbeddingParts]:
    """Return the contents of a file for the modality that its rows match; of two, for the one that no file is given.

    For both, where an array of its own fits each.
    """
    fitting: dict[Modality, EmbeddingParts] = {}
    named: list[Modality] = []  # modalities with a column that names their items
    reasons: dict[Modality, list[str]] = {modality: [] for modality in MODALITIES}
    for modality in MODALITIES:
        items = Items.of_corpus(corpus, modality)
        with noted(reasons[modality]):
            contents = _opened(row, name, modality, corpus)
            if key_of({plain_name(name): cells for name, cells in contents.columns.items()}, items) is not None:
                named.append(modality)
            match_items(contents, items, corpus.name)
            fitting[modality] = contents
    free = {modality: contents for modality, contents in fitting.items() if modality not in given}
    if len({contents.array for contents in free.values()}) == 2:
        return free
    fits = [modality for modality in fitting if modality in (named or fitting)]
    free = {modality: contents for modality, contents in free.items() if modality in fits}
    if len(free) == 1 and (len(fits) == 1 or given):
        return free
    what = "fits both images and captions" if fits else "fits neither images nor captions"
    last, file = (named or MODALITIES)[-1], Path(name).name
    which = f"say which with --images {file} or --captions {file}" if fits else reasons[last][-1]
    raise RequestError(f"{name}: it {what} of {corpus.name!r}: {which}")


def match_items(contents: EmbeddingParts, items: Items, corpus: str, *, by_position: bool = False) -> Match:
    """Return the item of every row of a file of vectors; every item has to have one.

    Raises:
        RequestError: If an item has no row, and as :func:`capim.store.sets.matching.match`.
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
    for part in contents.read(ROWS_AT_ONCE[contents.first.vectors]):
        for at, ord_ in enumerate(found.positions[start : start + len(part)].tolist()):
            if ord_ >= 0 and several[ord_]:
                row, vectors = start + at, part.take(np.array([at])).values.tobytes()
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


def _write(store: EmbeddingStore, corpus: Corpus, plans: Sequence[ImportedSet]) -> list[ImportedSet]:
    todo = [plan for plan in plans if plan.state != "unchanged"]
    for plan in todo:
        n = len(plan.items)
        check_disk_space(store, plan.spec, n, vectors_per_item=plan.n_vectors / max(1, n))
    if todo:
        store.write_corpus(corpus)
        store.write_encoder(todo[0].spec)
    fresh = EmbeddingStore.open(store.uri)  # has counted no rows of the tables that are dropped here
    done: dict[SetKey, SealedSet] = {}
    for plan in todo:
        drop_set(fresh, plan.key)  # replaced, or begun by an import that was interrupted
        blocks = (block for block, _ in blocks_of(plan.contents, plan.matched.positions, plan.spec))
        try:
            fresh.writer(plan.key).put_all(plan.spec, blocks)
            sealed = done[plan.key] = fresh.seal(plan.key)
            if sealed.digest != plan.digest:
                raise WorkError(
                    f"{plan.path} changed while it was imported; set {plan.key.table} was removed",
                    remedy="Run the same `capim import` again",
                )
        except (RequestError, WorkError):
            drop_set(fresh, plan.key)
            raise
    if any(plan.sealed is not None for plan in todo):
        of = todo[0].key
        drop_superseded(store, encoder_fingerprint=of.encoder_fingerprint, corpus_fingerprint=of.corpus_fingerprint)
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
    """Return a function of a result: how its vectors or outcomes were matched; None if they are capim's own."""
    of: dict[Any, list[str]] = {}
    for row in store.all(Import):
        is_set = row.what in MODALITIES
        key = (row.encoder_fingerprint, row.corpus_fingerprint) if is_set else row.imported
        of.setdefault(key, []).append(row.matched)

    def said(row: Result) -> str | None:
        of_sets = of.get((row.encoder_fingerprint, row.corpus_fingerprint), []) if row.image_tag else []
        return matched_text(of.get(row.evaluation, of_sets)) or None

    return said
