"""Removing damaged rows, so that the next run makes them again."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store.embedding_store import EmbeddingStore
from store.errors import RequestError, WorkError
from store.keys import table_of
from store.sets.decoding import columns_of, unpack
from store.sets.seal import delete_rows, drop_remedy, missing_table
from store.tables.analysis_rows import changed_rows
from store.tables.connection import LANCE_FAULTS, NEWEST, load_lance, retrying
from store.tables.corpora import ItemIndex
from store.tables.rows import delete, one_of
from store.tables.schemas import ANALYSES, METADATA_TABLES
from store.types import SetKey

if TYPE_CHECKING:
    import lance

_BACKUP = "Restore it from a backup"


class Repaired(NamedTuple):
    """What a repair removed from a table.

    Attributes:
        files: Files that cannot be read.
        rows: Rows with a wrong checksum, and the other rows of their evaluations.
    """

    files: int
    rows: int


def repair(store: EmbeddingStore, key: SetKey) -> int:
    """Removes the rows of a set that cannot be read or do not match their checksum, and those of the same batches.

    Batches are removed whole because the last bits of an embedding depend on its neighbours: the same batches give the
    same set again, and with it the same results. A sealed set that lost rows is no longer sealed; `capim embed` encodes
    what is missing and seals it again.

    Returns:
        Items that have no row now; 0 if nothing was damaged.
    """
    name = table_of(key)
    items = store.item_index(key)
    try:
        table = store.connection.find(name)
    except WorkError as fault:  # a sealed set has one version, so that there is none to go back to
        raise WorkError(fault.problem, remedy=drop_remedy(key)) from fault
    if table is None:
        raise missing_table(store.connection, key)
    state = store.sealed(key)
    unreadable, row_ids = _damage(table, key, items)
    if not unreadable and not row_ids and (state is None or table.count_rows() >= state.n_rows):
        return 0
    if state is not None:
        # Before the rows are removed: after a crash in between the set is incomplete, not damaged.
        delete(store.connection, "sets", "set_name", [name])
        if state.tag in table.tags.list():
            table.tags.delete(state.tag)
    retrying(f"removing damaged rows of {name!r}", lambda: _remove(table, unreadable, row_ids))
    remaining = store.connection.find(name)
    ords = remaining.to_table(columns=["ord"]).column("ord").to_numpy() if remaining is not None else []
    return len(items) - len(np.unique(ords))


def repair_table(store: EmbeddingStore, name: str) -> Repaired:
    """Removes the unreadable files of a table, and rows that do not match their checksum.

    A version that cannot be opened is set aside, and with it what was written last: the one before is the newest then.
    With a changed row go all rows of the evaluations beside it, because the changed bit may be in the name of the
    evaluation, and evaluations are written as a whole. The next run makes again what was removed; of ``runs`` and
    ``batches`` that history is lost.

    Raises:
        RequestError: There is no table of this name.
    """
    if name not in {*ANALYSES, *METADATA_TABLES}:
        tables = ", ".join(sorted({*ANALYSES, *METADATA_TABLES}))
        raise RequestError(f"there is no table {name!r} to repair; the tables are {tables}")
    table, set_aside = _opened(store, name)
    unreadable, row_ids, evaluations = [], [], set[str]()
    n_rows = table.count_rows()
    for part in table.get_fragments():
        try:
            for batch in part.to_batches(with_row_id=True, batch_size=4096):
                rows = pa.Table.from_batches([batch])
                changed = changed_rows(rows.drop_columns(["_rowid"]))
                row_ids += batch.column("_rowid").to_numpy()[changed].tolist()
                if changed.any() and "evaluation" in batch.schema.names:
                    evaluations |= {*batch.column("evaluation").to_pylist()}
        except LANCE_FAULTS:
            unreadable.append(part.fragment_id)
            n_rows -= part.count_rows()
    if unreadable or row_ids:
        retrying(f"removing damaged rows of {name!r}", lambda: _remove(table, unreadable, row_ids))
        delete(store.connection, name, "evaluation", sorted(evaluations))
        table.checkout_latest()
    return Repaired(set_aside + len(unreadable), n_rows - table.count_rows())


def _opened(store: EmbeddingStore, name: str) -> tuple[lance.LanceDataset, int]:
    """A table, and how many of its newest versions had to be set aside because they cannot be opened."""
    find, manifests = store.connection.find, store.connection.manifests(name)
    damaged: list[Path] = []
    try:
        table = find(name)
    except WorkError as fault:
        for manifest in manifests:
            with suppress(WorkError):
                find(name, version=NEWEST - int(manifest.stem))
                break
            damaged.append(manifest)
        else:
            raise WorkError(f"{fault.problem}, and so does every older version", remedy=_BACKUP) from fault
        for manifest in damaged:
            manifest.rename(manifest.parent.parent / f"damaged-{manifest.name}")
        table = find(name)
    if table is None:
        raise WorkError(f"table {name!r} is missing from {store.uri}", remedy=_BACKUP)
    return table, len(damaged)


def _damage(table: lance.LanceDataset, key: SetKey, items: ItemIndex) -> tuple[list[int], list[int]]:
    """Fragments that cannot be read, and the ids of the rows in the others that share a batch with a changed row."""
    unreadable, batches = [], set[str]()
    for part in table.get_fragments():
        try:
            columns = [*columns_of(key), "item_id", "batch_id"]
            for batch in part.to_batches(columns=columns, batch_size=64, batch_readahead=1):
                rows = unpack(batch)
                wrong = (rows.ords < 0) | (rows.ords >= len(items)) | rows.damaged()
                expected = items.ids.take(np.clip(rows.ords, 0, len(items) - 1))
                wrong |= pc.not_equal(expected, batch.column("item_id")).to_numpy(zero_copy_only=False)
                batches |= {*batch.column("batch_id").filter(pa.array(wrong)).to_pylist()}
        except LANCE_FAULTS:
            unreadable.append(part.fragment_id)
    row_ids: list[int] = []
    for part in table.get_fragments():
        if batches and part.fragment_id not in unreadable:
            chosen = part.to_table(columns=[], filter=one_of("batch_id", sorted(batches)), with_row_id=True)
            row_ids += chosen["_rowid"].to_pylist()
    return unreadable, row_ids


def _remove(table: lance.LanceDataset, unreadable: list[int], row_ids: list[int]) -> None:
    lance = load_lance()
    if unreadable:
        operation = lance.LanceOperation.Delete(
            updated_fragments=[], deleted_fragment_ids=unreadable, predicate="unreadable files"
        )
        lance.LanceDataset.commit(table, operation, read_version=table.version)
        table.checkout_latest()
    delete_rows(table, row_ids)
