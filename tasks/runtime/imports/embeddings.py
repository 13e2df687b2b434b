"""What surrounds an import of embeddings: corpora and names looked up before it, messages after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.exchange.imported_encoder import UNVERSIONED
from capim.store.exchange.importing import ImportedSet
from capim.store.exchange.manifest import ImportRow
from capim.store.types import Corpus
from capim.tasks.encoders import catalog
from capim.tasks.runtime.open_corpora import corpus_for_import


def named_imports(store: EmbeddingStore, rows: Sequence[ImportRow]) -> list[tuple[ImportRow, Corpus]]:
    """The imports with their corpora, which are read but not stored yet.

    Raises:
        RequestError: A corpus is unknown or faulty, or an encoder has the name of a model of the catalog; all faults
            together.
    """
    corpora: dict[str, Corpus] = {}
    faults = catalog_faults(row.encoder for row in rows)
    for what in dict.fromkeys(row.corpus for row in rows):
        try:
            corpora[what] = corpus_for_import(store, what)
        except RequestError as fault:
            faults += fault.faults
    if faults:
        raise RequestError(faults)
    return [(row, corpora[row.corpus]) for row in rows]


def catalog_faults(names: Iterable[str]) -> list[str]:
    """One line for each name that an import cannot have, because it is that of a model of the catalog."""
    return [
        f"encoder name {name!r} belongs to a model of the catalog (capim list encoders), which capim encodes with "
        f"itself; give the import another name, such as {name}-imported"
        for name in dict.fromkeys(names)
        if name in catalog()
    ]


def done_line(done: ImportedSet) -> str:
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


def next_steps(store: EmbeddingStore, imported: Sequence[ImportedSet]) -> Iterator[str]:
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
