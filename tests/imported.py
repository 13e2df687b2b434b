"""Imports of embeddings in one call, for tests whose subject is what the store has afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from capim.store import Corpus, EmbeddingStore
from capim.store.sets.importing import ImportedSet, ImportRow, import_sets
from capim.store.sets.seal import SealedSet
from capim.store.types import Storage


def import_of(corpus: Corpus, encoder: str, **fields: Path | str | None) -> tuple[ImportRow, Corpus]:
    """One import, as ``import_sets`` takes it."""
    given: dict[str, Any] = {name: None if value is None else str(value) for name, value in fields.items()}
    return ImportRow(encoder=encoder, corpus=corpus.name, **given), corpus


def imported(
    store: EmbeddingStore,
    *,
    encoder: str,
    corpus: str,
    storage: Storage | None = None,
    replace: bool = False,
    **fields: Path | str | None,
) -> list[ImportedSet]:
    """One import of a stored corpus."""
    row = import_of(store.corpus(corpus), encoder, **fields)
    return import_sets(store, [row], storage=storage, replace=replace)


def import_embeddings(store: EmbeddingStore, **given: Any) -> list[SealedSet]:
    """The sealed sets of :func:`imported`, images first."""
    return [each.sealed for each in imported(store, **given) if each.sealed is not None]
