"""The check of everything that is stored, for `capim store verify`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
import pyarrow.compute as pc

from capim.store.embedding_store import EmbeddingStore
from capim.store.errors import RequestError, WorkError
from capim.store.keys import CORPUS_PREFIX, SET_PREFIXES, corpus_table, table_of
from capim.store.maintenance.inventory import stored_key
from capim.store.schema import CORPUS_PARTS
from capim.store.score_parts import PREFIX as PARTS_PREFIX
from capim.store.sets.decoding import refuse_damage, scan
from capim.store.sets.reading import open_set
from capim.store.sets.seal import SealedSet, drop_remedy, examine, missing_table
from capim.store.tables.compaction import temporary_files
from capim.store.tables.corpora import ItemIndex
from capim.store.tables.faults import storage_faults
from capim.store.tables.schemas import ANALYSES, METADATA_TABLES
from capim.store.types import SetKey

State: TypeAlias = Literal["sound", "incomplete", "damaged", "lost"]
HISTORY = ("runs", "batches", "watched", "canaries")
"""Tables whose rows say what happened: no run makes them again."""


@dataclass(frozen=True, kw_only=True)
class StoreCheck:
    """The result of checking one part of a store.

    Attributes:
        what: A table, a corpus, or ``temporary files``.
        state: ``damaged``: a repair and a run make it again. ``lost``: changed or gone, and nothing makes it again.
            ``incomplete``: nothing is wrong, and the same command run again completes it.
        detail: Counts; or what is wrong, with the file, and the command to run.
    """

    what: str
    state: State
    detail: str


class _CorpusError(Exception):
    """The corpus of an embedding set cannot be read: it must be repaired first."""


def verify(store: EmbeddingStore) -> Iterator[StoreCheck]:
    """Compares every file with its digest and reads every set and corpus; gives one check per part, as it goes.

    Tables without a record of their digests, and records without their table, are damage as well.
    """
    corpora: list[dict[str, str]] = []
    with suppress(WorkError):
        corpora = store.corpora().to_pylist()
    yield from _corpora(store, corpora)
    registered: dict[str, SealedSet] = {}
    with suppress(WorkError):  # the check of table 'sets', below, names the fault
        registered = {table_of(sealed.key): sealed for sealed in store.sealed_sets()}
    for name, sealed in sorted(registered.items()):
        yield _checked(store, name, partial(_sealed_set, store, sealed), repair_remedy(name))
    parts = {corpus_table(part, row["name"], row["fingerprint"]) for row in corpora for part in CORPUS_PARTS}
    for name in store.connection.names():
        if name.startswith(SET_PREFIXES) and name not in registered:
            yield _checked(store, name, partial(_unsealed_set, store, name), repair_remedy(name))
        elif name.startswith((CORPUS_PREFIX, PARTS_PREFIX)) and name not in parts:
            check = _checked(store, name, partial(_unfinished, store, name), repair_remedy(name))
            yield from () if check.state == "incomplete" else (check,)
        elif name in ANALYSES or name in METADATA_TABLES:
            yield _checked(store, name, partial(_table, store, name), repair_remedy(name))
    with suppress(WorkError):
        yield from _sets_of_results(store, {sealed.tag for sealed in registered.values()})
    files = temporary_files(store.connection, timedelta(0))
    if files:
        size = sum(path.stat().st_size for path in files if path.exists())
        detail = (
            f"{len(files)} files of {size} bytes, from running or killed processes; `capim store compact` removes "
            "those older than a day"
        )
        yield StoreCheck(what="temporary files", state="incomplete", detail=detail)


def _checked(store: EmbeddingStore, what: str, check: Callable[[], StoreCheck], remedy: str) -> StoreCheck:
    """The result of a check; if it raises, the problem with the command that repairs this part of the store."""
    try:
        return check()
    except _CorpusError as fault:
        return StoreCheck(what=what, state="incomplete", detail=str(fault))
    except (RequestError, WorkError) as fault:
        problem = fault.problem if isinstance(fault, WorkError) else str(fault)
        if isinstance(fault, WorkError) and "capim store repair" in fault.remedy:
            remedy = fault.remedy
    digests = store.connection.digests
    files = [file for file in digests.faults(what) if not file.is_of_record]
    if digests.files.sizes(what):  # else the table is missing, and the problem says so
        problem += "".join(f"; {what}.lance/{path} {words}" for path, words, _ in files[:3] if path not in problem)
    if what in HISTORY and not all(file.copied for file in files):
        remedy = f"Restore the table from a backup, or run `capim store repair {what}`, which removes what is damaged"
        return StoreCheck(what=what, state="lost", detail=f"{problem}; no run makes its rows again. {remedy}")
    return StoreCheck(what=what, state="damaged", detail=f"{problem}. {remedy}")


def repair_remedy(table: str) -> str:
    """What to do about a table that is damaged."""
    return f"Run `capim store repair {table}`, which removes what is damaged, then the same command that made it"


def _compare_files(store: EmbeddingStore, name: str) -> None:
    digests = store.connection.digests
    with storage_faults(f"reading table {name!r}"):
        digests.refuse(name, digests.faults(name))


def _corpora(store: EmbeddingStore, rows: list[dict[str, str]]) -> Iterator[StoreCheck]:
    for row in rows:
        yield _checked(
            store,
            f"corpus {row['name']}",
            partial(_corpus, store, row["name"], row["fingerprint"]),
            f"Restore its tables from a backup, or run `capim store drop --corpus {row['name']} --yes`, then the same "
            "`capim run`: the corpus is read and encoded again",
        )


def _corpus(store: EmbeddingStore, name: str, fingerprint: str) -> StoreCheck:
    for part in CORPUS_PARTS:
        _compare_files(store, corpus_table(part, name, fingerprint))
    corpus = store.corpus(name, fingerprint)
    vars(corpus).pop("fingerprint")
    if corpus.fingerprint != fingerprint:
        raise WorkError(f"rows were changed: the fingerprint is {corpus.fingerprint}, it was stored as {fingerprint}")
    detail = f"{fingerprint}: {corpus.images.num_rows} images, {corpus.captions.num_rows} captions"
    return StoreCheck(what=f"corpus {name}", state="sound", detail=detail)


def _items(store: EmbeddingStore, key: SetKey) -> ItemIndex:
    try:
        return store.item_index(key)
    except (RequestError, WorkError) as fault:
        _compare_files(store, table_of(key))
        raise _CorpusError(
            f"not checked: corpus {key.corpus!r} cannot be read. Follow the advice for that corpus, or for table "
            "'corpora', then run `capim store verify` again"
        ) from fault


def _sealed_set(store: EmbeddingStore, sealed: SealedSet) -> StoreCheck:
    name, items = table_of(sealed.key), _items(store, sealed.key)
    if store.connection.find(name) is None:
        raise missing_table(store.connection, sealed.key)
    contents = examine(open_set(store.connection, sealed.key, sealed), sealed.key, items)
    if contents.digest != sealed.digest:
        problem = f"digest {contents.digest[:16]} differs from {sealed.digest[:16]}, with which it was sealed"
        return StoreCheck(what=name, state="damaged", detail=f"{problem}. {drop_remedy(sealed.key)}")
    _compare_files(store, name)
    return StoreCheck(what=name, state="sound", detail=f"{sealed.n_rows} rows, {sealed.tag}")


def _unsealed_set(store: EmbeddingStore, name: str) -> StoreCheck:
    store.connection.find(name)  # raises what is wrong with its files
    key = stored_key(store.connection, name)
    items = _items(store, key)
    present = np.zeros(len(items), dtype=bool)
    with storage_faults(f"reading set {name!r}"):
        for rows in scan(open_set(store.connection, key, None), key):
            refuse_damage(rows, name, items.ids)
            present[rows.ords] = True
    _compare_files(store, name)
    detail = f"{int(present.sum())} of {len(items)} items, not sealed. Run `capim embed` to complete it"
    return StoreCheck(what=name, state="incomplete", detail=detail)


def _unfinished(store: EmbeddingStore, name: str) -> StoreCheck:
    """A table that no row names: of a corpus or an evaluation that is being written, or whose row cannot be read."""
    _compare_files(store, name)
    return StoreCheck(what=name, state="incomplete", detail="")


def _table(store: EmbeddingStore, name: str) -> StoreCheck:
    _compare_files(store, name)
    table = store.connection.find(name)
    if table is None:
        raise WorkError(f"the folder of table {name!r} has no manifest")
    if name == "encoders":
        store.encoders()  # compares every spec with its fingerprint
    with storage_faults(f"reading table {name!r}"):
        return StoreCheck(what=name, state="sound", detail=f"{table.count_rows()} rows")


def _sets_of_results(store: EmbeddingStore, tags: set[str]) -> Iterator[StoreCheck]:
    """Whether the sets that results were computed from are still stored."""
    table = store.connection.find("results")
    if table is None:
        return
    with storage_faults("reading table 'results'"):
        rows = table.to_table(columns=["image_tag", "caption_tag"])
    named = {tag for column in rows.columns for tag in pc.unique(column).to_pylist() if tag}
    dropped = sorted(named - tags)
    if dropped:
        detail = (
            f"{len(dropped)} embedding sets that results were computed from are no longer stored "
            f"({', '.join(dropped[:3])}): these results cannot be reproduced"
        )
        yield StoreCheck(what="results", state="incomplete", detail=detail)
