"""The ledger, table ``derived``: the number and digest of each derivation's rows, compared when they are read.

Lance has no checksums: it returns a bit that was flipped on disk as a result, and silently reads the version before a
deleted one, or a restored older version. For every derivation, and for the outcomes of every evaluation, the ledger
records the written rows, so that all of these are detected.

Rows are written before their entry. Rows without an entry, which a killed process left, are not read; the same run
makes them again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from capim.store.errors import WorkError
from capim.store.row_types import rows_in
from capim.store.schema import TABLES, LedgerEntry, texts

DERIVED_ROWS = tuple(name for name, table in TABLES.items() if "derived" in table.columns.names)
KEYED_BY = {**dict.fromkeys(DERIVED_ROWS, "derived"), "outcomes": "evaluation"}
"""Table with digests of rows in the ledger -> the column that holds the key of the entry."""
OUTCOMES_KIND = "outcomes"  # of the entry of an evaluation
REMOVED = ""  # digest of an entry with rows that were removed on purpose
OF_THE_RUN = ("run", "created", "seconds_per_query")  # columns that differ if the same rows are made again
_ENTRY = ("key", "kind", "usual", "n_rows", "created", "digest")  # columns of an entry that are compared
_ODD = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xD1B54A32D192ED03)


class Made(NamedTuple):
    """The number of rows of one key, and the sum of their digests, which does not depend on their order."""

    n_rows: int
    sum: int


NOTHING = Made(0, 0)


def made_rows(table: str, rows: pa.Table) -> dict[str, Made]:
    """Return the number and digest sum of a table's rows for each key; rows without a key are left out.

    Every column of the table counts except those about the run that made a row; additional columns do not.
    """
    digests = np.zeros(rows.num_rows, np.uint64)
    with np.errstate(over="ignore"):
        for name in TABLES[table].columns.names:
            if name not in OF_THE_RUN:
                digests = (digests ^ (digests >> np.uint64(29))) * _ODD + _digests(rows[name])
        digests = (digests ^ (digests >> np.uint64(32))) * _ODD
    keys: Any = pc.dictionary_encode(rows[KEYED_BY[table]].combine_chunks(), null_encoding="mask")
    places = keys.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    found = {}
    order = np.argsort(places, kind="stable")
    bounds = np.searchsorted(places[order], np.arange(len(keys.dictionary) + 1))
    for at, key in enumerate(texts(keys.dictionary)):
        of_key = digests[order[bounds[at] : bounds[at + 1]]]
        found[key] = Made(len(of_key), int(of_key.sum(dtype=np.uint64)))
    return found


def entry_of(table: str, entry: LedgerEntry, made: Made | None) -> LedgerEntry:
    """Return an entry of the ledger for some rows of a table, with their number and digest; None: for removed rows."""
    if made is None:
        return replace(entry, table_name=table, digest=REMOVED)
    entry = replace(entry, table_name=table, n_rows=made.n_rows)
    return replace(entry, digest=entry_digest(entry, made))


def about_evaluation(evaluation: str, created: datetime) -> LedgerEntry:
    """Return the entry for the outcomes of an evaluation, which have no derivation, without their number."""
    return LedgerEntry(
        key=evaluation, kind=OUTCOMES_KIND, identity="", usual=True, seconds=0.0, run="", created=created
    )


def entry_digest(entry: LedgerEntry, made: Made) -> str:
    """Return the digest of an entry of the ledger and of its rows."""
    own = (entry.key, entry.kind, entry.usual, entry.n_rows, entry.created.timestamp(), made.sum)
    return xxhash.xxh3_64_hexdigest("\0".join(map(str, own)).encode())


def _digests(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    """Return 64 bits for every value: equal for equal values, and different after any change of one bit."""
    array = column.combine_chunks()
    found = _values(array)
    if array.null_count:
        found = np.where(array.is_null().to_numpy(zero_copy_only=False), _NULL, found)
    return found


def _values(array: Any) -> NDArray[np.uint64]:
    kind = array.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _sums(_digests(pa.chunked_array([array.flatten()])), pc.list_value_length(array).fill_null(0).to_numpy())
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        encoded = array.dictionary_encode()
        contents = [each.as_buffer() if each.is_valid else b"" for each in encoded.dictionary]
        digests = np.array([xxhash.xxh3_64_intdigest(each) for each in contents] or [0], np.uint64)
        of_rows: NDArray[np.uint64] = digests[encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)]
        return of_rows
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.int64())
    values = array.fill_null(False if pa.types.is_boolean(kind) else 0).to_numpy(zero_copy_only=False)
    wide = values.astype(np.float64 if values.dtype.kind == "f" else np.int64, copy=False)
    bits: NDArray[np.uint64] = np.ascontiguousarray(wide).view(np.uint64)
    return bits


def _sums(digests: NDArray[np.uint64], lengths: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a sum for each of several consecutive lists; every position has a weight of its own."""
    ends = np.cumsum(lengths)
    places = np.arange(len(digests)) - np.repeat(ends - lengths, lengths)
    with np.errstate(over="ignore"):
        weights = np.multiply.accumulate(np.full(int(lengths.max(initial=0)) + 1, _ODD))
        summed = np.concatenate([[np.uint64(0)], np.cumsum(digests * weights[places], dtype=np.uint64)])
        lists: NDArray[np.uint64] = summed[ends] - summed[ends - lengths] + lengths.astype(np.uint64)
    return lists


# --- comparison of stored rows with the ledger


class Compared(NamedTuple):
    """Comparison of rows with the ledger: keys of entries with different rows, and of rows without an entry."""

    damaged: tuple[str, ...]
    unlisted: tuple[str, ...]


def compared(table: str, rows: pa.Table, entries: pa.Table, *, keys: Collection[str] | None = None) -> Compared:
    """Compare all rows of a table, or of some keys, with the ledger's entries of this table."""
    made = made_rows(table, rows)
    of_table = entries.filter(pc.equal(entries["table_name"], pa.scalar(table))).select(_ENTRY)
    of_table = of_table.filter(pc.not_equal(of_table["digest"], pa.scalar(REMOVED)))
    listed = {row.key: row for row in rows_in(LedgerEntry, of_table)}
    listed = listed if keys is None else {key: listed[key] for key in keys if key in listed}
    damaged = (
        key for key, row in listed.items()
        if row.n_rows != made.get(key, NOTHING).n_rows or row.digest != entry_digest(row, made.get(key, NOTHING))
    )  # fmt: skip
    return Compared(tuple(damaged), tuple(key for key in made if key not in listed))


def damage(table: str, keys: Sequence[str]) -> WorkError:
    """Return the error for rows that differ from the ledger."""
    what = f"{len(keys):,} of its {'evaluations' if table == 'outcomes' else 'derivations'} ({keys[0]}"
    return WorkError(
        f"table {table!r} is damaged, or an older version: {what}{' …' if len(keys) > 1 else ''}) differ from the "
        "written rows",
        remedy="Run `capim store verify --drop`, then the same `capim run`, which recreates them",
    )
