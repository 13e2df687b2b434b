"""Imports of embeddings in one call, for tests whose subject is what the store has afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from capim.store import Corpus, EmbeddingStore
from capim.store.sets.importing import ImportedSet, ImportRow, import_sets
from capim.store.sets.sealed import SealedSet
from capim.store.types import Storage


def imported(
    store: EmbeddingStore,
    *,
    encoder: str,
    corpus: str | Corpus,
    storage: Storage | None = None,
    replace: bool = False,
    **fields: Path | str | None,
) -> list[ImportedSet]:
    """One import of a corpus, stored or given."""
    subject = store.corpus(corpus) if isinstance(corpus, str) else corpus
    given: dict[str, Any] = {name: None if value is None else str(value) for name, value in fields.items()}
    row = ImportRow(encoder=encoder, corpus=subject.name, **given)
    return import_sets(store, row, subject, storage=storage, replace=replace)


def import_embeddings(store: EmbeddingStore, **given: Any) -> list[SealedSet]:
    """The sealed sets of :func:`imported`, images first."""
    return [each.sealed for each in imported(store, **given) if each.sealed is not None]
