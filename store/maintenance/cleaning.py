"""Compacting a store: small files together, old versions and leftovers removed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

from capim.store.embedding_store import EmbeddingStore
from capim.store.keys import CORPUS_PREFIX, SET_PREFIXES
from capim.store.maintenance.inventory import disk_bytes
from capim.store.schema import texts
from capim.store.sets.seal import drop_repeats
from capim.store.tables.compaction import (
    HISTORY_AGE,
    TEMPORARY_AGE,
    compact,
    data_bytes,
    drop_old_versions,
    remove_temporary_files,
)
from capim.store.tables.connection import Connection
from capim.store.tables.faults import retrying
from capim.store.tables.metadata import read
from capim.store.tables.schemas import ANALYSES, METADATA_TABLES


def compact_store(
    store: EmbeddingStore, *, history: timedelta = HISTORY_AGE, temporary_age: timedelta = TEMPORARY_AGE
) -> dict[str, int]:
    """Compacts the tables and removes what is no longer needed; sealed versions stay for ever.

    Args:
        store: The store.
        history: Younger versions without a tag are kept.
        temporary_age: Younger temporary files and unfinished corpora are kept: a process may be writing them.

    Returns:
        Bytes freed by table, and under ``temporary files`` and ``unfinished corpora``. Analyses and registers keep no
        history: their old versions are removed first, so that this also helps on a full disk.
    """
    connection, freed = store.connection, {}
    sealed = set(read(connection, "sets").column("set_name").to_pylist())
    for name in connection.names():
        table = connection.find(name)
        if table is None:
            continue
        folder = connection.folder(name)
        before = disk_bytes(folder) if folder else 0
        if name in ANALYSES or name in METADATA_TABLES:
            removed = drop_old_versions(table, timedelta(0))
            compact(connection, name, free=True)
        else:
            if name in sealed:
                # A process that did not know of the seal may have appended rows again, beside the sealed version.
                retrying(f"removing repeated rows of {name!r}", partial(drop_repeats, table))
            elif name.startswith(SET_PREFIXES):
                compact(connection, name, free=False)
                table.checkout_latest()
            removed = drop_old_versions(table, history)
        freed[name] = before - disk_bytes(folder) if folder else removed
    freed["temporary files"] = remove_temporary_files(connection, temporary_age)
    freed["unfinished corpora"] = _drop_unfinished_corpora(connection, temporary_age)
    return {name: size for name, size in freed.items() if size > 0}


def _drop_unfinished_corpora(connection: Connection, age: timedelta) -> int:
    """Drops tables of corpora that have no row in ``corpora``: their write was interrupted and not repeated."""
    finished = tuple(texts(read(connection, "corpora").column("fingerprint")))
    freed = 0
    for name in connection.names():
        if name.startswith(CORPUS_PREFIX) and not name.endswith(finished):
            table = connection.find(name)
            if table is not None:
                written = max(version["timestamp"] for version in table.versions()).astimezone(UTC)
                if datetime.now(UTC) - written < age:
                    continue
                freed += data_bytes(table)
            connection.drop(name)
    return freed
