"""Shells: what was made elsewhere, into the store: embeddings, and outcomes of models whose embeddings nobody has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from store import EmbeddingStore
from store.exchange.importing import import_embeddings
from store.sets.seal import SealedSet
from tasks.embed import register_corpus
from tasks.results.hit_lists import encoder_of_hits, read_hit_lists, rows_of_hits
from tasks.runtime.shell import shell
from tasks.statistics.resampling import Resampling


@shell("import-embeddings", kind="read", run_name="import-embeddings-{encoder}")
def import_made_elsewhere(
    corpus: str | dict[str, Any], *, store_uri: str, encoder: str, images: str | None, captions: str | None
) -> list[SealedSet]:
    """Register the corpus if the store does not have it, then check, write and seal the embeddings of the files."""
    name = _registered(corpus, store_uri)
    return import_embeddings(
        EmbeddingStore.open(store_uri),
        encoder=encoder,
        corpus=name,
        images=Path(images) if images else None,
        captions=Path(captions) if captions else None,
    )


@shell("import-outcomes", kind="read")
def import_hit_lists(
    corpus: str | dict[str, Any],
    folder: str,
    *,
    store_uri: str,
    resampling: Resampling,
    run: str,
) -> list[str]:
    """Outcomes and results of every model that a folder of hit lists tells of; returns the models' names.

    Only the metrics that the lists determine become results (R@k for the cutoffs that are there). All lists are
    checked before the first row is written.
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
    """The name of a corpus that the store has, or that is read and registered now."""
    store = EmbeddingStore.open(store_uri, create=True)
    if isinstance(corpus, str) and corpus in store.corpora()["name"].to_pylist():
        return corpus
    return register_corpus.fn(corpus, store_uri=store_uri, sample=None, seed=0).name
