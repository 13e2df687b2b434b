"""The check of everything that is stored, for `capim store verify`, and its repair."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from capim.store.connection import load_lance, retrying, storage_faults, temporary_files
from capim.store.digests import RECORDS, ROOT, FileFault, repair_remedy
from capim.store.embedding_store import EmbeddingStore, corpus_table, drop_corpus_remedy, is_spec_of
from capim.store.errors import RequestError, WorkError
from capim.store.inventory import find_set, stored_key
from capim.store.rows import PARTS_PREFIX, delete, now, one_of, read, register
from capim.store.schema import CORPUS_PARTS, FORMAT, TABLES, texts
from capim.store.sets.reading import open_set
from capim.store.sets.rows import ItemIndex, unpack
from capim.store.sets.seal import SealedSet, delete_rows, drop_remedy, examine, missing_table
from capim.store.types import CORPUS_PREFIX, SET_PREFIXES, SetKey

if TYPE_CHECKING:
    import lance


State: TypeAlias = Literal["sound", "incomplete", "damaged", "lost"]
Check: TypeAlias = Callable[[], tuple[State, str]]
"""Gives state and detail of a part of a store, or raises what is wrong with it."""
_LEFT = "nothing: its making or its removal was interrupted"
HISTORY = ("runs", "batches", "watched", "probes", "weights")
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
    corpora = _corpora(store)
    for row in corpora:
        remedy = drop_corpus_remedy(row["name"])
        yield _checked(store, f"corpus {row['name']}", partial(_corpus, store, row["name"], row["fingerprint"]), remedy)
    registered: dict[str, SealedSet] = {}
    with suppress(WorkError):  # the check of table 'sets', below, names the fault
        registered = {sealed.key.table: sealed for sealed in store.sealed_sets()}
    for name, sealed in sorted(registered.items()):
        yield _checked(store, name, partial(_set, store, name, sealed))
    parts = {part for row in corpora for part in _parts_of(row)}
    for name in store.connection.names():
        if name.startswith(SET_PREFIXES) and name not in registered:
            yield _checked(store, name, partial(_set, store, name, None))
        elif name in TABLES:
            yield _checked(store, name, partial(_table, store, name))
        elif name.startswith((CORPUS_PREFIX, PARTS_PREFIX)) and name not in parts:
            # no row names it: of a corpus or an evaluation that is being written, or whose row cannot be read
            check = _checked(store, name, partial(_compare_files, store, name))
            yield from () if check.state == "sound" else (check,)
    if problems := store.connection.digests.root.problems():
        yield StoreCheck(what=ROOT, state="damaged", detail=f"{'; '.join(problems)}. {_ROOT_REMEDY}")
    with suppress(WorkError):
        yield from _sets_of_results(store, {sealed.tag for sealed in registered.values()})
    if files := temporary_files(store.connection, timedelta(0)):
        size = sum(path.stat().st_size for path in files if path.exists())
        detail = f"{len(files)} files of {size} bytes; `capim store compact` removes those older than a day"
        yield StoreCheck(what="temporary files", state="incomplete", detail=detail)


def _corpora(store: EmbeddingStore) -> list[dict[str, Any]]:
    """The rows of the register of corpora; none if it is damaged."""
    with suppress(WorkError):
        rows: list[dict[str, Any]] = store.corpora().to_pylist()
        return rows
    return []


def _parts_of(row: dict[str, Any]) -> list[str]:
    return [corpus_table(part, row["name"], row["fingerprint"]) for part in CORPUS_PARTS]


def _checked(store: EmbeddingStore, what: str, check: Check, remedy: str = "") -> StoreCheck:
    """The result of a check; if it raises, the problem with the command that repairs this part of the store."""
    try:
        state, detail = check()
        return StoreCheck(what=what, state=state, detail=detail)
    except _CorpusError as fault:
        return StoreCheck(what=what, state="incomplete", detail=str(fault))
    except (RequestError, WorkError) as fault:
        problem, given = (fault.problem, fault.remedy) if isinstance(fault, WorkError) else (str(fault), "")
    if "capim store repair" in given:
        remedy = given
    digests = store.connection.digests
    files = [file for file in digests.faults(what) if not file.is_of_record]
    if digests.files.sizes(what):  # else the table is missing, and the problem says so
        problem += "".join(f"; {what}.lance/{path} {words}" for path, words, _ in files[:3] if path not in problem)
    if what in HISTORY and not all(file.copied for file in files):
        remedy = f"Restore the table from a backup, or run `capim store repair {what}`, which removes what is damaged"
        return StoreCheck(what=what, state="lost", detail=f"{problem}; no run makes its rows again. {remedy}")
    return StoreCheck(what=what, state="damaged", detail=f"{problem}. {remedy or repair_remedy(what)}")


def _compare_files(store: EmbeddingStore, name: str) -> tuple[State, str]:
    with storage_faults(f"reading table {name!r}"):
        store.connection.digests.compare(name, quick=False)
    return "sound", ""


def _corpus(store: EmbeddingStore, name: str, fingerprint: str) -> tuple[State, str]:
    for part in CORPUS_PARTS:
        _compare_files(store, corpus_table(part, name, fingerprint))
    corpus = store.corpus(name, fingerprint)
    vars(corpus).pop("fingerprint")
    if corpus.fingerprint != fingerprint:
        raise WorkError(f"rows were changed: the fingerprint is {corpus.fingerprint}, it was stored as {fingerprint}")
    return "sound", f"{fingerprint}: {corpus.images.num_rows} images, {corpus.captions.num_rows} captions"


def _items(store: EmbeddingStore, key: SetKey) -> ItemIndex:
    try:
        return store.item_index(key)
    except (RequestError, WorkError) as fault:
        _compare_files(store, key.table)
        told = "Follow the advice for that corpus, or for table 'corpora', then verify again"
        raise _CorpusError(f"not checked: corpus {key.corpus!r} cannot be read. {told}") from fault


def _set(store: EmbeddingStore, name: str, sealed: SealedSet | None) -> tuple[State, str]:
    connection = store.connection
    table = connection.find(name)  # raises what is wrong with its files
    if table is None:
        if sealed is not None:
            raise missing_table(connection, sealed.key)
        return "sound", _LEFT
    key = stored_key(connection, name) if sealed is None else sealed.key
    items = _items(store, key)
    contents = examine(open_set(connection, key, sealed), key, items)
    if sealed is not None and contents.digest != sealed.digest:
        problem = f"digest {contents.digest[:16]} differs from {sealed.digest[:16]}, with which it was sealed"
        return "damaged", f"{problem}. {drop_remedy(key)}"
    _compare_files(store, name)
    if sealed is not None:
        return "sound", f"{sealed.n_rows} rows, {sealed.tag}"
    n_present = np.count_nonzero(contents.rows_of)
    return "incomplete", f"{n_present} of {len(items)} items, not sealed. Run `capim embed` to complete it"


def _table(store: EmbeddingStore, name: str) -> tuple[State, str]:
    _compare_files(store, name)
    table = store.connection.find(name)
    if table is None:
        return "sound", _LEFT
    if name == "encoders":
        store.encoders()  # compares every spec with its fingerprint
    with storage_faults(f"reading table {name!r}"):
        return "sound", f"{table.count_rows()} rows"


def _sets_of_results(store: EmbeddingStore, tags: set[str]) -> Iterator[StoreCheck]:
    """Whether the sets that results were computed from are still stored."""
    rows = read(store.connection, "results", columns=("image_tag", "caption_tag"))
    named = {tag for column in rows.columns for tag in pc.unique(column).to_pylist() if tag}
    if dropped := sorted(named - tags):
        sets = f"{len(dropped)} embedding sets of results are no longer stored ({', '.join(dropped[:3])})"
        detail = f"{sets}: these results cannot be reproduced"
        yield StoreCheck(what="results", state="incomplete", detail=detail)


# --- Putting back files of which there is a copy, and removing what else is damaged: the next run makes it again.


FAILED = "cannot be repaired"
_ROOT_REMEDY = (
    "Restore it from a backup, or if you know that all tables are there and right, run "
    f"`capim store repair {ROOT} --accept`"
)
_HASH = "^([0-9a-f]{32})?$"


class Repaired(NamedTuple):
    """What a repair did to a table.

    Attributes:
        restored: Files that were put back.
        files: Files that were removed because they cannot be put back.
        rows: Rows that went with them, and encoders whose spec was changed; of an embedding set the items that have no
            row now, 0 if nothing was damaged.
    """

    restored: int
    files: int
    rows: int


def repair_all(store: EmbeddingStore, *, accept: bool = False) -> Iterator[tuple[str, str]]:
    """Repairs everything that `capim store verify` finds damaged; gives every table with what was done, as it goes.

    A table that cannot be repaired stops no other. At the end come those that are damaged still.
    """
    done: dict[str, str] = {}
    damaged = _damaged(store)
    while todo := [name for name in damaged if name not in done]:
        for name in todo:  # sets after their corpora, which they are checked against
            try:
                done[name] = repair_one(store, name, accept=accept)
            except (RequestError, WorkError) as fault:
                done[name] = f"{FAILED}: {fault}"
            yield name, done[name]
        damaged = _damaged(store)
    yield from ((name, f"{FAILED}: {done[name]}, and still damaged") for name in damaged if FAILED not in done[name])


def repair_one(store: EmbeddingStore, name: str, *, accept: bool = False) -> str:
    """Repairs one table, or the embedding set that a reference finds; returns what was done.

    ``accept``: take what a table without a record of its digests holds as right, and record it.
    """
    with storage_faults(f"repairing {name!r}"):
        connection, digests, accepted = store.connection, store.connection.digests, ""
        if name.startswith(PARTS_PREFIX):
            connection.drop(name)
            return "dropped"
        if name == ROOT:
            if not (problems := digests.root.problems()):
                return "nothing to repair"
            if not accept:
                raise WorkError(
                    f"{'; '.join(problems)}; without it nothing says which tables there are", remedy=_ROOT_REMEDY
                )
            digests.accept_root()
            return "what the tables hold is recorded as right"
        if accept:
            unrecorded = any(fault.is_of_record for fault in digests.faults(name))
            accepted = (
                "; what it holds is recorded as right" if unrecorded else "; its record was there: nothing to accept"
            )
        if name in TABLES or name.startswith(CORPUS_PREFIX):
            done = repair(store, name, accept=accept)
            if name == "formats" and connection.find(name) is None:  # a store of another format has no root
                register(connection, name, [{"format": FORMAT, "written": now()}], update=False)
            gone = "; no run makes these again" if name in HISTORY and done.rows else ""
            return f"{done.restored} files restored, {done.files} removed with {done.rows:,} rows{gone}{accepted}"
        if name.startswith(SET_PREFIXES):
            _restore(store, name, accept=accept)  # the manifest says which set it is
        missing = repair(store, find_set(store, name).table, accept=accept).rows
        return f"{missing:,} items are missing now{accepted}"


def _restore(store: EmbeddingStore, name: str, *, accept: bool) -> list[FileFault]:
    """Puts back the files of a table of which there is a copy, and gives all that were damaged."""
    digests = store.connection.digests
    faults = digests.faults(name)
    if not accept:
        digests.refuse(name, [fault for fault in faults if fault.is_of_record])
    digests.restore(name, faults)
    return faults


def _damaged(store: EmbeddingStore) -> list[str]:
    """The damaged tables; of a corpus those of its parts."""
    found = [check.what for check in verify(store) if check.state in ("damaged", "lost")]
    parts = [part for row in _corpora(store) if f"corpus {row['name']}" in found for part in _parts_of(row)]
    damaged = [part for part in parts if store.connection.digests.faults(part)]
    return [*damaged, *(what for what in found if not what.startswith("corpus "))]


def repair(store: EmbeddingStore, name: str, *, accept: bool = False) -> Repaired:
    """Puts back what a table has a copy of, and removes its other changed, missing or unreadable files.

    A version that cannot be opened is removed, and with it what was written last: the one before is the newest then.
    Of a corpus a part goes as a whole, and its row in ``corpora``: the next run reads the corpus and writes it again.
    The next run makes again what was removed; of ``runs`` and ``batches`` that history is lost.

    Of an embedding set go the rows that do not match their checksum, and those of the same batches: the last bits of an
    embedding depend on its neighbours, and the same batches give the same set again, and with it the same results. Of
    a file that was changed anywhere else all rows go. A sealed set that lost rows is no longer sealed; `capim embed`
    encodes what is missing and seals it again.

    Raises:
        RequestError: There is no table of this name.
        WorkError: The record of its digests is missing or was changed, and ``accept`` does not say that it is right.
    """
    is_set, is_corpus = name.startswith(SET_PREFIXES), name.startswith(CORPUS_PREFIX)
    if not (is_set or is_corpus or name in TABLES):
        raise RequestError(f"there is no table {name!r} to repair; the tables are {', '.join(sorted(TABLES))}")
    connection, digests = store.connection, store.connection.digests
    faults = _restore(store, name, accept=accept)
    changed = {fault.path for fault in faults if not fault.copied}
    restored = len(faults) - len(changed)
    table, n_files = _opened(store, name)
    n_rows = 0 if table is None else table.count_rows()
    items: ItemIndex | None = None
    if is_set and table is not None:
        with suppress(RequestError, WorkError):  # its corpus may be damaged too: changed files go as a whole then
            items = store.item_index(stored_key(connection, name))
    unreadable, row_ids = ([], []) if table is None else _damage(table, name, items, changed)
    n_files += len(unreadable)
    state = next((one for one in store.sealed_sets() if one.key.table == name), None) if is_set else None
    if table is None or (is_corpus and n_files):
        delete(connection, "sets", "set_name", [name] if is_set else [])
        delete(connection, "corpora", "fingerprint", [name.rsplit("-", 1)[-1]] if is_corpus else [])
        connection.drop(name)
        return Repaired(restored, n_files, n_rows if state is None else state.n_rows)
    is_damaged = bool(row_ids or n_files or any(not path.startswith(RECORDS) for path in changed))
    is_damaged |= state is not None and n_rows < state.n_rows
    if is_damaged and state is not None:
        # Before the rows are removed: after a crash in between the set is incomplete, not damaged.
        delete(connection, "sets", "set_name", [name])
        if state.tag in table.tags.list():
            table.tags.delete(state.tag)
    retrying(f"removing damaged rows of {name!r}", lambda: _remove(table, unreadable, row_ids, connection.options))
    for index in table.list_indices():
        if any(index["uuid"] in path for path in changed):
            table.drop_index(index["name"])
    if changed or is_damaged:
        digests.record(name, table, anew=True)
    if not is_set:
        return Repaired(restored, n_files, n_rows - table.count_rows())
    if is_damaged:
        n_present = len(pc.unique(table.to_table(columns=["ord"])["ord"]))
        return Repaired(restored, n_files, (n_rows if items is None else len(items)) - n_present)
    if state is not None and items is not None:
        store.seal(state.key, n_items=len(items))  # its tag may be gone
    return Repaired(restored, n_files, 0)


def _opened(store: EmbeddingStore, name: str) -> tuple[lance.LanceDataset | None, int]:
    """A table, and how many of its newest versions had to be removed because they cannot be opened."""
    files, n_removed = store.connection.digests.files, 0
    for version, path in files.manifests(name):
        with suppress(WorkError):
            store.connection.open(name, version)
            break
        files.remove(name, path)
        n_removed += 1
    return store.connection.open(name), n_removed


def _damage(
    table: lance.LanceDataset, name: str, items: ItemIndex | None, changed: set[str]
) -> tuple[list[int], list[int]]:
    """Fragments that cannot be read or were changed nobody knows where, and the ids of the other rows to remove.

    Of an embedding set, whose ``items`` are given, these share a batch with a row that was changed.
    """
    unreadable, batches = [], set[str]()
    for part in table.get_fragments():
        wrong, is_changed = set[str](), any(f"data/{file.path}" in changed for file in part.metadata.files)
        if items is not None or not is_changed:  # checksums say which rows; on other changed files Lance may panic
            try:
                with storage_faults("reading"):
                    for batch in part.to_batches(batch_size=4096 if items is None else 64, batch_readahead=1):
                        wrong |= set() if items is None else _wrong_batches(batch, items)
            except WorkError:
                unreadable.append(part.fragment_id)
                continue
        if is_changed and not wrong:
            unreadable.append(part.fragment_id)
        batches |= wrong
    readable = [part for part in table.get_fragments() if part.fragment_id not in unreadable]
    row_ids: list[int] = []
    if batches:
        chosen = one_of("batch_id", sorted(batches))
        for part in readable:
            row_ids += part.to_table(columns=[], filter=chosen, with_row_id=True)["_rowid"].to_pylist()
    if name == "encoders" and not unreadable:
        rows = table.to_table(with_row_id=True).to_pylist()
        row_ids += [row["_rowid"] for row in rows if not is_spec_of(**row)]
    return unreadable, row_ids


def _wrong_batches(batch: pa.RecordBatch, items: ItemIndex) -> set[str]:
    """The batches of the rows of a set that were changed."""
    rows = unpack(batch)
    wrong = (rows.ords < 0) | (rows.ords >= len(items)) | rows.damaged()
    expected = items.ids.take(np.clip(rows.ords, 0, len(items) - 1))
    wrong |= pc.not_equal(expected, batch.column("item_id")).to_numpy(zero_copy_only=False)
    wrong |= ~pc.match_substring_regex(batch.column("input_sha"), _HASH).to_numpy(zero_copy_only=False)
    return {*texts(batch.column("batch_id").filter(pa.array(wrong)))}


def _remove(table: lance.LanceDataset, unreadable: list[int], row_ids: list[int], options: Mapping[str, str]) -> None:
    lance = load_lance()
    if unreadable:
        operation = lance.LanceOperation.Delete(
            updated_fragments=[], deleted_fragment_ids=unreadable, predicate="unreadable files"
        )
        lance.LanceDataset.commit(table, operation, read_version=table.version, storage_options=dict(options) or None)
        table.checkout_latest()
    delete_rows(table, row_ids)
