"""The version of a store, by which a cache of what was read knows that it is old."""

from __future__ import annotations

from store.embedding_store import EmbeddingStore
from store.types import digest16

_TABLES = ("corpora", "encoders", "sets", "outcomes", "results", "comparisons", "rankings", "slices", "metrics", "runs")


def version_of(store: EmbeddingStore) -> str:
    """A text that changes with every commit to the tables of results, corpora and sets; reads no row.

    Examples:
        >>> import tempfile
        >>> store = EmbeddingStore.open(tempfile.mkdtemp() + "/store", create=True)
        >>> version_of(store) == version_of(store)
        True
    """
    connection = store.connection
    if connection.is_local:
        newest = [next(iter(connection.manifests(name)), None) for name in _TABLES]
        # the time too: a table that was dropped and made again counts its versions from the start
        return digest16([path and (path.name, path.stat().st_mtime_ns) for path in newest])
    tables = [connection.find(name) for name in _TABLES]
    return digest16([None if table is None else table.version for table in tables])
