"""A workspace: the folder or URI that holds ``store/`` and ``reports/``; and the names of what its store has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flows.config import run_config
from store.errors import RequestError
from store.keys import is_fingerprint

if TYPE_CHECKING:
    from store import EmbeddingStore
    from tasks.corpora.naming import Row


def open_store(workspace: str | None) -> EmbeddingStore:
    """The store of a workspace (None: the default one), for reading.

    Raises:
        RequestError: There is no store; says how to make one.
    """
    from store import EmbeddingStore

    return EmbeddingStore.open(run_config({"workspace": workspace}).store_uri)


def corpus_in(store: EmbeddingStore, what: str) -> Row:
    """The row of the stored corpus that a name, a fingerprint or a path means.

    Raises:
        RequestError: There is none, with the nearest name.
    """
    from tasks.corpora.naming import stored_corpus

    return stored_corpus(what, store.corpora().to_pylist(), uri=store.uri)


def wanted_rows(
    store: EmbeddingStore,
    table: str,
    *,
    encoder: Sequence[str] | None = None,
    corpus: Sequence[str] | None = None,
    protocol: Sequence[str] | None = None,
    metric: Sequence[str] | None = None,
) -> dict[str, list[str]]:
    """What ``EmbeddingStore.rows`` takes for the rows of these names, shell patterns, fingerprints or paths of corpora.

    Raises:
        RequestError: A name that no row has, with the nearest one that some row has.
    """
    from store.query.names import names_with_rows

    given = {"encoder": encoder, "corpus": corpus, "protocol": protocol, "metric": metric}
    wanted = {column: list(names) for column, names in given.items() if names}
    for column in ("encoder", "corpus"):
        names = wanted.get(column, [])
        fingerprints = [name for name in names if is_fingerprint(name)]
        if fingerprints and len(fingerprints) < len(names):
            raise RequestError(f"--{column}: give names or fingerprints, not both; got {', '.join(names)}")
        if fingerprints:
            wanted[f"{column}_fingerprint"] = wanted.pop(column)
    if "corpus" in wanted:
        dropped = {*store.counts(table, "corpus")} - {*store.corpora()["name"].to_pylist()}
        wanted["corpus"] = [
            name if name in dropped or "*" in name else str(corpus_in(store, name)["name"]) for name in wanted["corpus"]
        ]
    return names_with_rows(store, table, wanted)
