"""The version of a store, by which a cache of what was read knows that it is old."""

from __future__ import annotations

from pathlib import Path

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
    newest = [next(iter(connection.digests.manifests(name)), (0, "")) for name in _TABLES]
    # the time too: a table that was dropped and made again counts its versions from the start
    times = [Path(path).stat().st_mtime_ns if path and connection.is_local else 0 for _, path in newest]
    return digest16([newest, times])
