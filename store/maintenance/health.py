"""``store verify``: reads everything that is stored and says what is sound, what is unfinished and what is damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store.errors import RequestError, WorkError
from store.keys import SET_PREFIXES, key_from_json, table_of
from store.maintenance.compaction import leftovers
from store.sets.decoding import refuse_damage, scan
from store.sets.reading import open_set
from store.sets.seal import SealedSet, examine, sealed_sets
from store.tables.analysis_rows import refuse_changed_rows
from store.tables.connection import Connection, storage_faults
from store.tables.corpora import ItemIndex, item_index, read_corpus
from store.tables.metadata import read
from store.tables.schemas import ANALYSES, REGISTERS
from store.types import SetKey

State: TypeAlias = Literal["sound", "unfinished", "damaged"]
CORPUS_PREFIX = "corpus-"
_ELSEWHERE = "what is said of that corpus, or of table 'corpora', helps here too; then run again"
_REMEDIES = ("store repair", "drop the corpus", "drop the set and encode it again", _ELSEWHERE)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What verification says of one thing.

    Attributes:
        what: A table, a corpus, or ``temporary files``.
        state: ``unfinished`` loses nothing: the same command run again finishes it.
        detail: Counts, or what is wrong and what to do.
    """

    what: str
    state: State
    detail: str


def verify(connection: Connection) -> Iterator[Finding]:
    """Checks every corpus, set and table, one finding for each, damaged ones included; writes nothing."""
    yield from _corpora(connection)
    registered: dict[str, SealedSet] = {}
    with suppress(WorkError):  # a register that cannot be read is a finding of its own, below
        registered = {table_of(sealed.key): sealed for sealed in sealed_sets(connection)}
    for name, sealed in sorted(registered.items()):
        yield _judged(name, partial(_sealed_set, connection, sealed), _repair(name))
    for name in connection.names():
        if name.startswith(SET_PREFIXES) and name not in registered:
            yield _judged(name, partial(_unsealed_set, connection, name), _repair(name))
        elif name in ANALYSES or name in REGISTERS:
            yield _judged(name, partial(_readable, connection, name), _repair(name))
    with suppress(WorkError):
        yield from _tags_of_results(connection, set(registered.values()))
    left = leftovers(connection, timedelta(0))
    if left:
        size = sum(path.stat().st_size for path in left if path.exists())
        yield Finding(
            what="temporary files",
            state="unfinished",
            detail=f"{len(left)} left by writers that were killed or are at work, {size} bytes; `capim store compact` "
            "removes those older than a day",
        )


def set_key(connection: Connection, name: str) -> SetKey:
    """Whose vectors a table holds, from its own metadata."""
    table = connection.find(name)
    metadata = (table.schema.metadata if table is not None else None) or {}
    if b"capim.set" not in metadata:
        raise WorkError(f"table {name!r} does not say which embedding set it is")
    return key_from_json(metadata[b"capim.set"].decode())


def _judged(what: str, check: Callable[[], Finding], remedy: str) -> Finding:
    """The finding of a check, or the error that it raised as a finding, with the way to make it good."""
    try:
        return check()
    except (RequestError, WorkError) as fault:
        said = any(way in str(fault) for way in _REMEDIES)
        return Finding(what=what, state="damaged", detail=str(fault) if said else f"{fault}. {remedy}")


def _items(connection: Connection, key: SetKey) -> ItemIndex:
    """The items of a set's corpus."""
    try:
        return item_index(connection, key.corpus, key.corpus_fingerprint, key.modality)
    except (RequestError, WorkError) as fault:
        raise WorkError(
            f"its vectors cannot be compared with corpus {key.corpus!r}, which cannot be read: {_ELSEWHERE}"
        ) from fault


def _repair(table: str) -> str:
    return f"`capim store repair {table}` removes what cannot be read; the same run again makes it anew"


def _corpora(connection: Connection) -> Iterator[Finding]:
    rows: list[dict[str, str]] = []
    with suppress(WorkError):
        rows = read(connection, "corpora").to_pylist()
    for row in rows:
        yield _judged(
            f"corpus {row['name']}",
            partial(_corpus, connection, row["name"], row["fingerprint"]),
            f"Restore its tables from a backup, or drop the corpus (`capim store drop --corpus {row['name']}`) and run "
            "again: it is read in and encoded anew",
        )


def _corpus(connection: Connection, name: str, fingerprint: str) -> Finding:
    corpus = read_corpus(connection, name, fingerprint)
    vars(corpus).pop("fingerprint")
    if corpus.fingerprint != fingerprint:
        raise WorkError(
            f"its contents have fingerprint {corpus.fingerprint}, it was stored as {fingerprint}: rows were changed on "
            "disk. Restore its tables from a backup, or drop the corpus and read it in again"
        )
    detail = f"{fingerprint}: {corpus.images.num_rows} images, {corpus.captions.num_rows} captions"
    return Finding(what=f"corpus {name}", state="sound", detail=detail)


def _sealed_set(connection: Connection, sealed: SealedSet) -> Finding:
    key = sealed.key
    items = _items(connection, key)
    contents = examine(open_set(connection, key, sealed), key, items)
    if contents.digest != sealed.digest:
        raise WorkError(
            f"digest {contents.digest[:16]}, sealed with {sealed.digest[:16]}: it is another set's contents"
        )
    return Finding(what=table_of(key), state="sound", detail=f"{sealed.n_rows} rows, {sealed.tag}")


def _unsealed_set(connection: Connection, name: str) -> Finding:
    key = set_key(connection, name)
    items = _items(connection, key)
    table = connection.find(name)
    seen = np.zeros(len(items), dtype=bool)
    with storage_faults(f"reading set {name!r}"):
        for rows in scan(table, key):
            refuse_damage(rows, name, items.ids)
            seen[rows.ords] = True
    detail = f"{int(seen.sum())} of {len(items)} items, not sealed: run `capim embed` to the end"
    return Finding(what=name, state="unfinished", detail=detail)


def _readable(connection: Connection, name: str) -> Finding:
    """Every column of every row can be decoded and is what was written."""
    table = connection.find(name)
    if table is None:
        raise WorkError(f"the folder of table {name!r} is there, its manifests are not: restore it from a backup")
    n_rows = 0
    with storage_faults(f"reading table {name!r}"):
        for batch in table.scanner(batch_size=4096).to_batches():
            refuse_changed_rows(name, pa.Table.from_batches([batch]))
            n_rows += batch.num_rows
    return Finding(what=name, state="sound", detail=f"{n_rows} rows")


def _tags_of_results(connection: Connection, known: set[SealedSet]) -> Iterator[Finding]:
    """Whether the sets that results were computed from are still there."""
    table = connection.find("results")
    if table is None:
        return
    tags = {sealed.tag for sealed in known}
    with storage_faults("reading table 'results'"):
        rows = table.to_table(columns=["image_tag", "caption_tag"])
    named = {tag for column in rows.columns for tag in pc.unique(column).to_pylist() if tag}
    gone = sorted(named - tags)
    if gone:
        yield Finding(
            what="results",
            state="unfinished",
            detail=f"{len(gone)} embedding sets that results were computed from are not in the store any more "
            f"({', '.join(gone[:3])}): these results cannot be made again",
        )
