"""Tasks: import embeddings, and outcomes of models without embeddings, that other programs computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from store import EmbeddingStore
from store.exchange.importing import import_sets
from store.exchange.manifest import ImportRow
from store.types import Storage
from tasks.register import register_corpus
from tasks.results.hit_lists import encoder_of_hits, read_hit_lists, rows_of_hits
from tasks.runtime.imports.embeddings import done_line, named_imports, next_steps
from tasks.runtime.open_corpora import OpenCorpora
from tasks.runtime.shell import shell
from tasks.statistics.resampling import Resampling


@shell("import-embeddings")
def import_embedding_files(
    rows: Sequence[ImportRow], *, store_uri: str, storage: Storage | None, replace: bool
) -> list[str]:
    """Check, write and seal the embeddings of files, and store corpora that are new; returns what was done.

    Everything is checked before the first row is written, and all faults are reported together.
    """
    store = EmbeddingStore.open(store_uri, create=True)
    imported = import_sets(store, named_imports(store, rows), storage=storage, replace=replace)
    return [*map(done_line, imported), *next_steps(store, imported)]


@shell("import-outcomes")
def import_hit_lists(
    corpus: str | dict[str, Any],
    folder: str,
    *,
    store_uri: str,
    resampling: Resampling,
    run: str,
) -> list[str]:
    """Store outcomes and results of every model in a folder of hit lists; returns the names of the models.

    Only metrics that the lists determine become results (R@k for their cutoffs). All lists are checked before the first
    row is written.
    """
    found = read_hit_lists(folder)
    name = _registered(corpus, store_uri)
    store = EmbeddingStore.open(store_uri)
    stored = store.corpus(name)
    specs = {model: encoder_of_hits(model, protocols) for model, protocols in found.items()}
    imported = {
        model: rows_of_hits(
            protocols,
            corpus=stored,
            encoder=specs[model],
            run=run,
            resampling=resampling,
        )
        for model, protocols in found.items()
    }
    for model, parts in imported.items():
        store.write_encoder(specs[model])
        for rows in parts:
            store.write_rows("outcomes", rows.outcomes, replace="evaluation")
            store.write_rows("results", rows.results, replace="evaluation")
    return list(found)


def _registered(corpus: str | dict[str, Any], store_uri: str) -> str:
    """The name of a stored corpus; any other is registered first."""
    store = EmbeddingStore.open(store_uri, create=True)
    if isinstance(corpus, str) and corpus in store.corpora()["name"].to_pylist():
        return corpus
    return register_corpus.fn(corpus, OpenCorpora(), store_uri=store_uri, sample=None, seed=0).name
