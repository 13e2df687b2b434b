"""The encoder that imported files belong to: what the user says it is, and equal for all imports under one name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capim.store.embedding_store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.keys import is_fingerprint, spec_from_json
from capim.store.types import Corpus, EncoderSpec, Modality, Storage, VectorKind

ADAPTER = "imported"
UNVERSIONED = "unversioned"


@dataclass(frozen=True, kw_only=True)
class ImportFile:
    """One file of an import: what the user says about it, and the form of its vectors.

    ``storage`` is the coarsest type that holds its numbers; float64 counts as float32.
    """

    encoder: str
    revision: str
    note: str | None
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
    imports = [spec for spec in namesakes(store, name) if spec.adapter == ADAPTER]
    return imports[-1].revision if imports else UNVERSIONED


def imported_spec(store: EmbeddingStore, files: Sequence[ImportFile], storage: Storage | None) -> EncoderSpec:
    """The encoder of files with the same name and revision: the stored one, if there is one.

    Raises:
        RequestError: The name belongs to an encoder that was not imported; or the files contradict each other, or the
            stored encoder, in dimension, kind of vectors, note or storage type.
    """
    name, revision = files[0].encoder, files[0].revision
    label = f"encoder {name!r} (revision {revision!r})"
    known_specs = namesakes(store, name)
    for spec in known_specs:
        if spec.adapter != ADAPTER:
            raise RequestError(
                f"encoder name {name!r} belongs to a model without imported embeddings (adapter {spec.adapter}, "
                f"fingerprint {spec.fingerprint}); give the import another name with --encoder"
            )
    known = next((spec for spec in reversed(known_specs) if spec.revision == revision), None)
    faults = _disagreements(label, files)
    notes = list(dict.fromkeys(file.note for file in files if file.note))
    if len(notes) > 1:
        faults.append(f"{label} has several notes: {', '.join(map(repr, notes))}; give one, or another --revision")
    finest: Storage = "float32" if any(file.storage == "float32" for file in files) else "float16"
    if known is not None and not faults:
        faults = _contradictions(label, files, known, notes, finest, storage)
    if faults:
        raise RequestError(faults)
    return known or declared_encoder(
        name,
        ADAPTER,
        revision,
        *notes,
        dim=files[0].dim,
        vectors=files[0].vectors,
        storage=storage or finest,
    )


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
    """What is wrong with a note that was given for a stored encoder."""
    stored = known.options.get("note")
    if note is None or note == stored:
        return []
    has = f"the note {stored!r}" if stored else "no note"
    label = f"encoder {known.name!r} (revision {known.revision!r})"
    return [f"{label} is stored with {has}, got {note!r}; leave out --note, or give another --encoder or --revision"]


def namesakes(store: EmbeddingStore, name: str) -> list[EncoderSpec]:
    """The encoders that were registered under a name, oldest first."""
    rows = [row for row in store.encoders().to_pylist() if row["name"] == name]
    return [spec_from_json(row["spec"]) for row in sorted(rows, key=lambda row: row["written"])]


def _form(dim: int, vectors: VectorKind) -> str:
    return f"{'one vector' if vectors == 'single' else 'several vectors'} of {dim} components per item"


def _disagreements(label: str, files: Sequence[ImportFile]) -> list[str]:
    forms = {file.form: file for file in files}
    if len(forms) < 2:
        return []
    listed = "; ".join(f"{file.path} has {form}" for form, file in forms.items())
    return [f"{label} must have vectors of one form: {listed}"]


def _contradictions(
    label: str,
    files: Sequence[ImportFile],
    known: EncoderSpec,
    notes: Sequence[str],
    finest: Storage,
    storage: Storage | None,
) -> list[str]:
    """What the files or options say that is not true of the stored encoder."""
    faults = []
    other = "give another --encoder or --revision"
    form = _form(known.dim, known.vectors)
    if files[0].form != form:
        faults.append(f"{label} is stored with {form}, {files[0].path} has {files[0].form}; {other}")
    faults += note_faults(known, *notes)
    if storage not in (None, known.storage):
        faults.append(
            f"{label} is stored as {known.storage}, and has one storage type; leave out --storage {storage}, or {other}"
        )
    elif storage is None and (known.storage, finest) == ("float16", "float32"):
        path = next(file.path for file in files if file.storage == "float32")
        faults.append(
            f"{label} is stored as float16, {path} holds finer numbers; add --storage float16 to round them, or {other}"
        )
    return faults
