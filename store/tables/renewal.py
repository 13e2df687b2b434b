"""Whether rows that a run computed again are stored already, so that a run that changes nothing writes nothing."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from capim.store.schema import texts
from capim.store.tables.connection import Connection
from capim.store.tables.rows import one_of, read
from capim.store.tables.schemas import ANALYSES, primary_key

_SHOWN_FOR: dict[str, tuple[str, ...]] = {
    "results": ("corpus", "protocol", "metric", "encoder"),
    "comparisons": ("corpus_fingerprint", "protocol", "metric"),
    "slices": ("slice",),
    "rankings": (),
}
"""Table -> the columns of what a row is shown for; of several rows for the same, the newest is shown."""

_NAMES = {"results": {"corpus": "corpus_fingerprint", "encoder": "encoder_fingerprint"}}
"""Table -> names of which the newest row decides what fingerprint they mean."""


def is_stored(connection: Connection, table: str, rows: pa.Table, replace: str) -> bool:
    """Whether the stored rows with these values of ``replace`` equal ``rows``, apart from run, time and order.

    False where a newer row is shown instead of one of them, so that a request that is repeated is shown again.
    """
    if table not in _SHOWN_FOR:
        return False
    schema, keys = ANALYSES[table], primary_key(ANALYSES[table])
    values = sorted({*texts(rows.column(replace))})
    stored = read(connection, table, schema, one_of(replace, values))
    if len(stored) != len(rows):
        return False
    order: list[tuple[str, Literal["ascending", "descending"]]] = [(name, "ascending") for name in keys]
    old, new = stored.sort_by(order), rows.sort_by(order)
    equal = bool(_lasting(old).equals(_lasting(new)))
    return equal and not _is_superseded(connection, table, old, replace)


def _lasting(rows: pa.Table) -> pa.Table:
    """What does not change from run to run: all but run, time, and how long an analysis took."""
    kept = rows.drop_columns(["run", "created"])
    if "detail" in kept.column_names:
        untimed = pc.replace_substring_regex(kept.column("detail"), pattern='"seconds":[^,}]*', replacement="")
        kept = kept.set_column(kept.column_names.index("detail"), "detail", untimed)
    return kept


def _is_superseded(connection: Connection, table: str, old: pa.Table, replace: str) -> bool:
    """Whether a newer row of the table is shown instead of one of these."""
    names, shown_for = _NAMES.get(table, {}), _SHOWN_FOR[table]
    columns = list(dict.fromkeys([replace, "created", *shown_for, *names, *names.values()]))
    every = read(connection, table, pa.schema([ANALYSES[table].field(name) for name in columns]))
    mine = old.select(columns).to_pylist()
    values = {row[replace] for row in mine}
    later = every.filter(pc.greater(every["created"], pc.min(old["created"]))).to_pylist()
    newer = [row for row in later if row[replace] not in values]
    shown = {tuple(row[name] for name in shown_for) for row in mine}
    meanings = [(name, {row[name]: row[fingerprint] for row in mine}) for name, fingerprint in names.items()]
    return any(tuple(row[name] for name in shown_for) in shown for row in newer) or any(
        meaning.get(row[name], row[names[name]]) != row[names[name]] for row in newer for name, meaning in meanings
    )
