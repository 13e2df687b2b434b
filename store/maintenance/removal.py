"""Taking things out of a store: first as a plan that changes nothing, then for good."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from store.errors import RequestError
from store.keys import SET_PREFIXES, corpus_table, table_of
from store.maintenance.compaction import (
    HISTORY_AGE,
    LEFTOVER_AGE,
    compact,
    data_bytes,
    drop_old_versions,
    row_bytes,
    sweep,
)
from store.maintenance.health import CORPUS_PREFIX, set_key
from store.sets.seal import drop_repeats, sealed_sets
from store.tables.connection import Connection, retrying
from store.tables.metadata import forget, read
from store.tables.schemas import ANALYSES, CORPUS_PARTS, REGISTERS
from store.types import Modality


@dataclass(frozen=True, kw_only=True)
class Removal:
    """What is to be dropped, or was.

    Attributes:
        tables: Names, in the order in which they go.
        rows: In these tables together.
        bytes: Of their current versions.
        done: False for a plan.
    """

    tables: tuple[str, ...]
    rows: int
    bytes: int
    done: bool


def drop(
    connection: Connection,
    *,
    encoder_fingerprint: str | None,
    corpus: tuple[str, str] | None,
    modality: Modality | None,
    dry_run: bool,
) -> Removal:
    """Drops every embedding set that matches; with nothing but a corpus or an encoder given, these themselves too.

    Args:
        connection: Where.
        encoder_fingerprint: Only sets of this encoder.
        corpus: Only sets of this corpus: name and fingerprint.
        modality: Only images or only captions.
        dry_run: Change nothing, only say what would go.
    """
    if encoder_fingerprint is None and corpus is None:
        raise RequestError("say what to drop: an encoder, a corpus or both")
    names = connection.names()
    keys = {table_of(sealed.key): sealed.key for sealed in sealed_sets(connection)}
    keys |= {name: set_key(connection, name) for name in names if name.startswith(SET_PREFIXES) and name not in keys}
    sets = [
        name
        for name, key in sorted(keys.items())
        if encoder_fingerprint in (None, key.encoder_fingerprint)
        and (corpus is None or corpus[1] == key.corpus_fingerprint)
        and modality in (None, key.modality)
    ]
    whole_corpus = corpus is not None and encoder_fingerprint is None and modality is None
    parts = [corpus_table(part, *corpus) for part in CORPUS_PARTS] if whole_corpus and corpus else []
    tables = sets + [name for name in parts if name in names]
    sizes = [(table.count_rows(), data_bytes(table)) for name in tables if (table := connection.find(name)) is not None]
    if not dry_run:
        # The register goes first: a crash then leaves a table that `store verify` lists, never a name without a table.
        forget(connection, "sets", "set_name", sets)
        if whole_corpus and corpus:
            forget(connection, "corpora", "fingerprint", [corpus[1]])
        if encoder_fingerprint is not None and corpus is None and modality is None:
            forget(connection, "encoders", "fingerprint", [encoder_fingerprint])
        for name in tables:
            if name in names:
                connection.drop(name)
    return Removal(
        tables=tuple(tables),
        rows=sum(rows for rows, _ in sizes),
        bytes=sum(size for _, size in sizes),
        done=not dry_run,
    )


def tidy(
    connection: Connection, *, history: timedelta = HISTORY_AGE, leftover_age: timedelta = LEFTOVER_AGE
) -> dict[str, int]:
    """Compacts what grows by small writes and collects garbage; tagged versions stay for ever.

    Args:
        connection: Where.
        history: Versions without a tag that are younger than this stay.
        leftover_age: Temporary files that are younger than this stay: a writer may be at work on them.

    Returns:
        Bytes freed by table name; ``temporary files`` and ``abandoned corpora`` for what belongs to none.
    """
    freed = {}
    sealed = set(read(connection, "sets").column("set_name").to_pylist())
    for name in connection.names():
        table = connection.find(name)
        if table is None:
            continue
        if name in sealed:
            # A writer that did not know of the seal may have added rows again, beside the sealed state.
            retrying(f"removing repeated rows of {name!r}", partial(_drop_repeats_of, connection, name))
        elif name in ANALYSES or name in REGISTERS or name.startswith(SET_PREFIXES):
            compact(connection, name, row_bytes=row_bytes(table), free=False)
        table.checkout_latest()
        freed[name] = drop_old_versions(table, history)
    freed["temporary files"] = sweep(connection, leftover_age)
    freed["abandoned corpora"] = _drop_abandoned_corpora(connection, leftover_age)
    return {name: size for name, size in freed.items() if size}


def _drop_repeats_of(connection: Connection, name: str) -> None:
    table = connection.find(name)
    if table is not None:
        drop_repeats(table)


def _drop_abandoned_corpora(connection: Connection, age: timedelta) -> int:
    """Tables of corpora whose write was broken off and never repeated."""
    known = tuple(read(connection, "corpora").column("fingerprint").to_pylist())
    freed = 0
    for name in connection.names():
        if name.startswith(CORPUS_PREFIX) and not name.endswith(known):
            table = connection.find(name)
            if table is not None:
                written = max(version["timestamp"] for version in table.versions()).astimezone(UTC)
                if datetime.now(UTC) - written < age:
                    continue
                freed += data_bytes(table)
            connection.drop(name)
    return freed
