"""Tasks: import embeddings, and outcomes of models without embeddings, that other programs computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from capim.store import EmbeddingStore
from capim.store.errors import RequestError
from capim.store.exchange.exporting import ImportRow
from capim.store.exchange.importing import import_sets, namesakes
from capim.store.schema import texts
from capim.store.types import Storage
from capim.tasks.results.imported.sources import (
    Imported,
    Source,
    described_corpus,
    encoder_of_outcomes,
    outcomes_of_source,
)
from capim.tasks.runtime.exchange import catalog_faults, done_line, named_imports, next_steps, plan_import, write_import
from capim.tasks.runtime.open_corpora import corpus_for_import
from capim.tasks.runtime.shell import shell
from capim.tasks.statistics.resampling import Resampling


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


@shell("import-outcomes", run_name="import-outcomes-{source.path}")
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
) -> list[str]:
    """Store outcomes of models without embeddings, and the figures that they determine.

    Returns:
        How rows were matched with queries and what was left out, then one line per protocol.

    Everything is checked before the corpus is registered and the first row is written.
    """
    store = EmbeddingStore.open(store_uri, create=True)
    subject = corpus_for_import(store, described_corpus(source, corpus, stored=texts(store.corpora()["name"])))
    found = outcomes_of_source(source, subject)
    if faults := catalog_faults(found):
        raise RequestError(faults)
    plans = []
    for name, each in found.items():
        encoder = encoder_of_outcomes(name, revision=revision, note=note, namesakes=namesakes(store, name))
        imported = Imported.of(each.outcomes, encoder, subject)
        plans.append(plan_import(store, imported, resampling=resampling, replace=replace))
    told = [f"{name}: {line}" for name, each in found.items() for line in (*each.how, *each.left_out)]
    return told + write_import(store, plans, run=run, resampling=resampling)
