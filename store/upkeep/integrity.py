"""The check of all stored data, for `capim store verify`, and the removal of damaged data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capim.store.connection import load_lance, storage_faults
from capim.store.embedding_store import MARKED, EmbeddingStore, is_spec_of
from capim.store.errors import RequestError, WorkError
from capim.store.ledger import DERIVED_ROWS, KEYED_BY, REMOVED, compared
from capim.store.row_types import rows_in
from capim.store.rows import corpus_table, delete, one_of, read, read_where, whole_evaluations
from capim.store.schema import CORPUS_PARTS, TABLES, Encoder, Import, texts
from capim.store.sets.rows import ItemIndex, unpack
from capim.store.sets.sealed import SealedSet, examine, open_set
from capim.store.types import SET_PREFIXES, SetKey
from capim.store.upkeep.inventory import stored_key

if TYPE_CHECKING:
    import lance

T = TypeVar("T")
State: TypeAlias = Literal["sound", "incomplete", "damaged", "lost"]
Remove: TypeAlias = Callable[[], object]
KEPT = ("runs", "batches", "watched", "probes", "weights", "imports", "published")
"""Tables that no run recreates."""
_HASH = "^([0-9a-f]{32})?$"
_NO_VERSION = "it has no version: its creation or its removal was interrupted"


@dataclass(frozen=True, kw_only=True)
class StoreCheck:
    """The result of checking one part of a store.

    Attributes:
        what: A table or a corpus.
        state: ``damaged``: the next run recreates it. ``lost``: no run does. ``incomplete``: nothing is wrong, and the
            same command completes it.
        detail: Counts; or the error, and the next step.
        remove: Function that removes the damaged or lost data.
    """

    what: str
    state: State
    detail: str
    remove: Remove | None = None


def verify(store: EmbeddingStore) -> Iterator[StoreCheck]:
    """Read all stored data and compare it with its checksums; yield one check per part, as it goes."""
    connection = store.connection
    for row in _readable(store.corpora):
        yield _corpus(store, row.name, row.fingerprint)
    registered = {sealed.key.table: sealed for sealed in _readable(store.sealed_sets)}
    names = connection.names()
    for name in sorted({*registered, *(each for each in names if each.startswith(SET_PREFIXES))}):
        yield _set(store, name, registered.get(name))
    listed = {*_readable(lambda: texts(read(connection, "derived")["table_name"]))}
    for name in sorted((listed.union(names, [MARKED]) & TABLES.keys()) - {"outcomes"}):
        yield _table(store, name)
    if "outcomes" in listed.union(names):
        yield from _outcomes(store)
    yield from _readable(lambda: _sets_of_results(store, {sealed.tag for sealed in registered.values()}))


def _readable(read_rows: Callable[[], Iterable[T]]) -> list[T]:
    """Return the rows that a function reads; none if their table is damaged, which its own check names."""
    with suppress(WorkError):
        return [*read_rows()]
    return []


def drop_damaged(checks: Sequence[StoreCheck], *, imports: bool = False) -> list[str]:
    """Remove damaged data, with ``imports`` also data that no run recreates; return the names of the parts."""
    removed = []
    for check in checks:
        if check.remove is not None and (imports or check.state == "damaged"):
            check.remove()
            removed.append(check.what)
    return removed


def _damaged(what: str, problem: str, remove: Remove, source: str = "") -> StoreCheck:
    """Return the check of a part that is damaged, or lost if only ``source``, which is not a run, restores it."""
    if not source:
        return StoreCheck(what=what, state="damaged", detail=problem, remove=remove)
    removal = "`capim store verify --drop --imports` removes it"
    detail = f"{problem}; no run can recreate it: {source}. {removal}"
    return StoreCheck(what=what, state="lost", detail=detail, remove=remove)


# --- corpora, and tables of rows


def _corpus(store: EmbeddingStore, name: str, fingerprint: str) -> StoreCheck:
    what = f"corpus {name}"
    try:
        corpus = store.corpus(name, fingerprint)
    except WorkError as fault:
        return _damaged(what, fault.problem, partial(_drop_corpus, store, name, fingerprint))
    detail = f"{fingerprint}: {corpus.images.num_rows} images, {corpus.captions.num_rows} captions"
    return StoreCheck(what=what, state="sound", detail=detail)


def _drop_corpus(store: EmbeddingStore, name: str, fingerprint: str) -> None:
    """Drop a corpus, but not the vectors of its items: the next run reads it again."""
    delete(store.connection, "corpora", "fingerprint", [fingerprint])
    for part in CORPUS_PARTS:
        store.connection.drop(corpus_table(part, name, fingerprint))


def _table(store: EmbeddingStore, name: str) -> StoreCheck:
    connection, unlisted = store.connection, 0
    try:
        if name in KEYED_BY:
            entries = read_where(connection, "derived")  # first: rows are written before their entry
            rows = read_where(connection, name)
            damaged, hidden = compared(name, rows, entries)
            if hidden:  # of an entry that was written meanwhile
                hidden = compared(name, rows, read_where(connection, "derived")).unlisted
            unlisted = len(hidden)
            if damaged:
                problem = f"{len(damaged):,} derivations ({damaged[0]} …) differ from the written rows"
                return _damaged(name, problem, partial(_drop_keys, store, name, damaged))
        table = connection.find(name)
        if table is None and name in connection.names() and name in KEYED_BY:
            return StoreCheck(what=name, state="incomplete", detail=_NO_VERSION)
        if table is None and name in {MARKED, *connection.names()}:
            raise WorkError(f"table {name!r} cannot be opened: its folder has no version of it")
        with storage_faults(f"reading table {name!r}"):
            n_rows = 0 if table is None else sum(batch.num_rows for batch in table.to_batches())
        if name == "encoders":
            specs = rows_in(Encoder, read(connection, name))
            if wrong := [row.fingerprint for row in specs if not is_spec_of(row)]:
                problem = f"specs of {len(wrong)} encoders ({wrong[0]} …) do not match their fingerprints"
                return _damaged(name, problem, partial(delete, connection, name, "fingerprint", wrong))
    except WorkError as fault:
        source = "restore the table from a backup, or continue without it" if name in KEPT else ""
        return _damaged(name, fault.problem, partial(_drop_table, store, name), source)
    return _listed(name, n_rows, unlisted)


def _listed(name: str, n_rows: int, n_unlisted: int) -> StoreCheck:
    """Return the check of a table without damage, of so many keys that have rows but no entry of the ledger."""
    if not n_unlisted:
        return StoreCheck(what=name, state="sound", detail=f"{n_rows:,} rows")
    detail = f"{n_rows:,} rows, those of {n_unlisted:,} keys are not shown because the ledger lacks them: a run is at "
    detail += "work or was interrupted, or an older `derived.lance` was copied. The same run makes them again"
    return StoreCheck(what=name, state="incomplete", detail=detail)


def _outcomes(store: EmbeddingStore) -> Iterator[StoreCheck]:
    """Check the outcomes: those that a run recreates, and separately those that were imported."""
    commands = {
        row.imported: f"{row.what} of {row.encoder} on {row.corpus} by "
        f"`capim import {row.source} --corpus {row.corpus} --encoder {row.encoder}`"
        for row in _readable(lambda: store.all(Import))
        if not row.imported.startswith(SET_PREFIXES)
    }
    try:
        damaged, n_unlisted, n_rows = _damaged_outcomes(store, commands)
    except WorkError as fault:
        drops = partial(_drop_table, store, "outcomes")
        yield _damaged("outcomes", fault.problem, drops, "; ".join(commands.values()))
        return
    for is_imported in (True, False):
        if keys := [key for key in damaged if (key in commands) is is_imported]:
            problem = f"outcomes of {len(keys):,} evaluations ({keys[0]} …) differ from the ledger"
            drops = partial(_drop_keys, store, "outcomes", keys)
            yield _damaged("outcomes", problem, drops, "; ".join(commands[key] for key in keys if is_imported))
    if not damaged:
        yield _listed("outcomes", n_rows, n_unlisted)


def _damaged_outcomes(store: EmbeddingStore, imported: Collection[str]) -> tuple[list[str], int, int]:
    """Compare the outcomes of all evaluations with the ledger, some at a time.

    Returns the damaged evaluations, the number of others without an entry of the ledger, and that of all rows.

    Imported outcomes are also damaged without an entry: they are not read, and no run writes the entry again.
    """
    entries = TABLES["derived"].columns.empty_table()
    with suppress(WorkError):  # of a ledger that cannot be read, which its own check names
        entries = read_where(store.connection, "derived", f"table_name = 'outcomes' AND digest <> '{REMOVED}'")
    left = {*texts(entries["key"])}
    damaged, n_unlisted, n_rows = list[str](), 0, 0
    for rows in whole_evaluations(store.connection):
        keys = texts(pc.unique(rows["evaluation"]))
        found = compared("outcomes", rows, entries, keys=keys)
        damaged += [*found.damaged, *(key for key in found.unlisted if key in imported)]
        n_unlisted += sum(key not in imported for key in found.unlisted)
        left -= {*keys}
        n_rows += rows.num_rows
    return [*damaged, *sorted(left)], n_unlisted, n_rows


def _drop_keys(store: EmbeddingStore, name: str, keys: Sequence[str]) -> None:
    delete(store.connection, "derived", "key", keys)
    delete(store.connection, name, KEYED_BY[name], keys)
    if store.connection.find(name) is None:  # its folder may be there
        store.connection.drop(name)


def _drop_table(store: EmbeddingStore, name: str) -> None:
    """Drop a table that cannot be read, with its entries of the ledger; for the ledger, drop its tables too."""
    connection = store.connection
    if name == "derived":
        for each in DERIVED_ROWS:
            connection.drop(each)
    connection.drop(name)
    if name in KEYED_BY:
        with suppress(WorkError):
            delete(connection, "derived", "table_name", [name])
    if name == MARKED:
        connection.create(name, TABLES[name].keyed_columns)


def _sets_of_results(store: EmbeddingStore, tags: set[str]) -> Iterator[StoreCheck]:
    """Yield a check of embedding sets that results were computed from and that are no longer stored."""
    rows = read(store.connection, "results", columns=("image_tag", "caption_tag"))
    named = {tag for column in rows.columns for tag in pc.unique(column).to_pylist() if tag}
    if dropped := sorted(named - tags):
        sets = f"{len(dropped)} embedding sets of results are no longer stored ({', '.join(dropped[:3])})"
        detail = f"{sets}: these results cannot be reproduced"
        yield StoreCheck(what="results", state="incomplete", detail=detail)


# --- embedding sets


def _set(store: EmbeddingStore, name: str, sealed: SealedSet | None) -> StoreCheck:
    connection = store.connection
    key = sealed.key if sealed is not None else None
    items: ItemIndex | None = None
    try:
        if connection.find(name) is None:
            if sealed is None:
                return StoreCheck(what=name, state="incomplete", detail=_NO_VERSION)
            raise WorkError(f"table {name!r} is missing")
        key = key or stored_key(connection, name)
        try:
            items = store.item_index(key)
        except (RequestError, WorkError):
            advice = "Run `capim store verify --drop` and the same `capim run`, which reads it again, then verify again"
            detail = f"not checked: corpus {key.corpus!r} cannot be read. {advice}"
            return StoreCheck(what=name, state="incomplete", detail=detail)
        contents = examine(open_set(connection, key, sealed), key, items)
        if sealed is not None and contents.digest != sealed.digest:
            raise WorkError(f"its digest is {contents.digest[:16]}, it was sealed with {sealed.digest[:16]}")
    except WorkError as fault:
        drops = partial(_drop_damaged_rows, store, name, key, items)
        return _damaged(name, fault.problem, drops, _source_of(store, name))
    if sealed is not None:
        return StoreCheck(what=name, state="sound", detail=f"{sealed.n_rows} rows, {sealed.tag}")
    n_present = np.count_nonzero(contents.rows_of)
    detail = f"{n_present} of {len(items)} items, not sealed. Run `capim embed` to complete it"
    return StoreCheck(what=name, state="incomplete", detail=detail)


def _source_of(store: EmbeddingStore, name: str) -> str:
    """Return the command that restores an imported set; empty for one that was encoded here."""
    rows = _readable(lambda: store.all(Import, imported=name))
    return "".join(
        f"`capim import --corpus {row.corpus} --encoder {row.encoder} --{row.what}s {row.source}`" for row in rows
    )


def _drop_damaged_rows(store: EmbeddingStore, name: str, key: SetKey | None, items: ItemIndex | None) -> None:
    """Remove rows that do not match their checksum with the others of their batches, and unreadable files.

    The last bits of an embedding depend on its neighbours: the same batches give the same set again, and so the same
    results. If this is impossible, the whole set is removed.
    """
    connection = store.connection
    delete(connection, "sets", "set_name", [name])  # after a crash in between, the set is incomplete
    is_left = False
    with suppress(WorkError):
        table = connection.find(name)
        if table is not None and items is not None and key is not None:
            for tag in table.tags.list():
                table.tags.delete(tag)
            n_rows = table.count_rows()
            has_changed = _remove_damage(table, items, connection.options)
            if has_changed or n_rows < len(items):
                examine(table, key, items)
                is_left = True
    if not is_left:
        connection.drop(name)
    connection.committed(name, 0)


def _remove_damage(table: lance.LanceDataset, items: ItemIndex, options: Mapping[str, str]) -> bool:
    """Remove the unreadable files of a set, and the batches with changed rows; return False if there are none."""
    unreadable, batches = [], set[str]()
    for part in table.get_fragments():
        try:
            with storage_faults("reading"):
                for batch in part.to_batches(batch_size=64, batch_readahead=1):
                    batches |= _wrong_batches(batch, items)
        except WorkError:
            unreadable.append(part.fragment_id)
    if unreadable:
        lance = load_lance()
        operation = lance.LanceOperation.Delete(
            updated_fragments=[], deleted_fragment_ids=unreadable, predicate="unreadable files"
        )
        lance.LanceDataset.commit(table, operation, read_version=table.version, storage_options=dict(options) or None)
        table.checkout_latest()
    with storage_faults("removing damaged rows"):
        table.delete(one_of("batch_id", sorted(batches)))
    return bool(unreadable or batches)


def _wrong_batches(batch: pa.RecordBatch, items: ItemIndex) -> set[str]:
    """Return the batches of the changed rows of a set."""
    rows = unpack(batch)
    wrong = (rows.ords < 0) | (rows.ords >= len(items)) | rows.damaged()
    expected = items.ids.take(np.clip(rows.ords, 0, len(items) - 1))
    wrong |= pc.not_equal(expected, batch.column("item_id")).to_numpy(zero_copy_only=False)
    wrong |= ~pc.match_substring_regex(batch.column("input_sha"), _HASH).to_numpy(zero_copy_only=False)
    return {*texts(batch.column("batch_id").filter(pa.array(wrong)))}
