"""Taking damaged rows out, so that the next run makes these again and only these."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from store.errors import WorkError
from store.keys import table_of
from store.sets.decoding import columns_of, unpack
from store.sets.seal import sealed
from store.tables.analysis_rows import changed_rows
from store.tables.connection import Connection, load_lance, retrying
from store.tables.corpora import ItemIndex
from store.tables.metadata import forget
from store.types import SetKey

if TYPE_CHECKING:
    import lance

_LANCE_FAULTS = (OSError, RuntimeError, ValueError)


def repair(connection: Connection, key: SetKey, items: ItemIndex) -> int:
    """Removes every row that cannot be read or whose checksum is wrong; a sealed set is not sealed any more then.

    Returns:
        Items that have no row now and had one before or should have had one; 0 if nothing was wrong.
    """
    name = table_of(key)
    table = connection.find(name)
    if table is None:
        raise WorkError(f"the table of set {name!r} is gone from {connection.uri}: drop the set and encode it again")
    state = sealed(connection, key)
    lost, row_ids = _damage(table, key, items)
    if not lost and not row_ids and (state is None or table.count_rows() >= state.n_rows):
        return 0
    if state is not None:
        # Before the rows go: a crash in between leaves a set that is only unfinished.
        forget(connection, "sets", "set_name", [name])
        if state.tag in table.tags.list():
            table.tags.delete(state.tag)
    retrying(f"removing damaged rows of {name!r}", lambda: _remove(table, lost, row_ids))
    remaining = connection.find(name)
    ords = remaining.to_table(columns=["ord"]).column("ord").to_numpy() if remaining is not None else []
    return len(items) - len(np.unique(ords))


class Removed(NamedTuple):
    """What a repair took out of a table."""

    files: int
    rows: int


def repair_table(connection: Connection, name: str) -> Removed:
    """Removes the files of an analysis or register that cannot be read, and rows whose checksum is wrong.

    Rows of evaluations are written and found as wholes: with a changed row go all rows of the evaluations around it,
    because the changed bit may be in an evaluation's very name. What a run derives from the embeddings, and what it
    registers, it makes again where it is missing. Of ``runs`` and ``batches`` the history of earlier runs is lost.
    """
    table = connection.find(name)
    if table is None:
        raise WorkError(f"table {name!r} is gone from {connection.uri}: restore it from a backup")
    lost, row_ids, torn = [], [], set[str]()
    n_rows = table.count_rows()
    for part in table.get_fragments():
        try:
            for batch in part.to_batches(with_row_id=True, batch_size=4096):
                changed = changed_rows(name, pa.Table.from_batches([batch]))
                row_ids += batch.column("_rowid").to_numpy()[changed].tolist()
                if changed.any() and "evaluation" in batch.schema.names:
                    torn |= {*batch.column("evaluation").to_pylist()}
        except _LANCE_FAULTS:
            lost.append(part.fragment_id)
            n_rows -= part.count_rows()
    if lost or row_ids:
        retrying(f"removing what is damaged of {name!r}", lambda: _remove(table, lost, row_ids))
        forget(connection, name, "evaluation", sorted(torn))
        table.checkout_latest()
        return Removed(len(lost), n_rows - table.count_rows())
    return Removed(0, 0)


def _damage(table: lance.LanceDataset, key: SetKey, items: ItemIndex) -> tuple[list[int], list[int]]:
    """Fragments that cannot be read, and rows of the others that are not what was written."""
    lost, row_ids = [], []
    for part in table.get_fragments():
        try:
            batches = part.to_batches(columns=columns_of(key), with_row_id=True, batch_size=64, batch_readahead=1)
            for batch in batches:
                rows = unpack(batch)
                outside = (rows.ords < 0) | (rows.ords >= len(items))
                wrong = outside | np.isin(rows.ords, rows.damaged())
                row_ids += batch.column("_rowid").to_numpy()[wrong].tolist()
        except _LANCE_FAULTS:
            lost.append(part.fragment_id)
    return lost, row_ids


def _remove(table: lance.LanceDataset, lost: list[int], row_ids: list[int]) -> None:
    lance = load_lance()
    if lost:
        operation = lance.LanceOperation.Delete(
            updated_fragments=[], deleted_fragment_ids=lost, predicate="unreadable files"
        )
        lance.LanceDataset.commit(table, operation, read_version=table.version)
        table.checkout_latest()
    if row_ids:
        table.delete(f"_rowid IN ({', '.join(map(str, row_ids))})", conflict_retries=0)
