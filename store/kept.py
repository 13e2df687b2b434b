"""Rows of tables that a connection keeps in memory, so that the tasks of a run do not read them again and again.

Of object storage, where opening a table takes ten requests and reading it one for every file, the kept rows of small
tables are also written to files of this machine, under the version of the table that the root names: the next process
asks for the root alone.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from capim.store.digests import Entry
from capim.store.errors import WorkError
from capim.store.files import replacing

if TYPE_CHECKING:
    import lance

    from capim.store.connection import Connection

COPIES = Path("~/.cache/capim/tables")
_DIGEST_BYTES = 16  # of what follows, at the beginning of a copy
_MOST_ROWS = 50_000  # of a table
_MOST_CHUNKS = 32  # in which they are kept
_MOST_BYTES = 128 << 20  # of rows that never change


@dataclass(frozen=True, kw_only=True)
class _Kept:
    """What is made ``of`` the rows of a table at a version, by a look at this time, after so many writes by us."""

    of: Callable[[pa.Table], pa.Table]
    rows: pa.Table
    version: int
    looked: float
    n_writes: int


class Change(TypedDict, total=False):
    """What a commit changed.

    Attributes:
        added: The rows by which the table differs from the version before.
        replaced: A column: the added rows took the place of those with the same values there.
        by: A column: the added rows with one value there are all that there ever will be.
    """

    added: pa.Table | None
    replaced: str | None
    by: str | None


class KeptRows:
    """The rows that one connection keeps; may be shared by threads.

    Attributes:
        look_seconds: After which it is looked for what others wrote to a table of which rows are kept.
    """

    def __init__(self, connection: Connection, *, keeps: bool) -> None:
        self._connection = connection
        self._keeps = keeps or not connection.is_local
        self._tables: dict[tuple[str, ...], _Kept] = {}
        self._values: dict[tuple[str, str], tuple[pa.Table, int]] = {}  # with bytes; what was used last comes last
        self._n_writes: Counter[str] = Counter()
        self._changing = threading.Lock()
        self.look_seconds = (1.0 if connection.is_local else 30.0) if keeps else 0.0

    def rows(
        self,
        name: str,
        read: Callable[[lance.LanceDataset | None], pa.Table],
        *,
        seconds: float,
        part: tuple[str, ...] = (),
        of: Callable[[pa.Table], pa.Table] = lambda rows: rows,
    ) -> pa.Table | None:
        """The rows of a table, read once; None if the connection keeps nothing, or they are too many.

        They are read again when this connection has changed the table other than by adding rows, or when others have
        written to it, which is looked for again after ``seconds``. ``part`` names what is made ``of`` the rows, by
        ``read`` and of those that are added, if it is not the rows themselves.
        """
        if not self._keeps:
            return None
        found, n_writes, looked = self._tables.get((name, *part)), self._n_writes[name], time.monotonic()
        if found is not None and found.n_writes != n_writes:
            found = None
        if found is None or looked - found.looked > seconds:

            def few(table: lance.LanceDataset | None) -> pa.Table | None:
                too_many = table is not None and not part and table.count_rows() > _MOST_ROWS
                return None if too_many else read(table)

            entry = self._connection.entry(name, seconds=seconds)
            table = self._connection.find(name) if entry is None else None
            version = entry.version if entry is not None else 0 if table is None else table.version
            if found is None or version != found.version:
                rows = few(table) if entry is None else self._copied((name, *part), entry, few)
                if rows is None:
                    return None
                found = _Kept(of=of, rows=rows, version=version, looked=looked, n_writes=n_writes)
            self._tables[name, *part] = found = replace(found, looked=looked)
        return found.rows

    def of_values(self, name: str, values: Sequence[str]) -> dict[str, pa.Table]:
        """The rows of a table that belong to each of these values, and never change, as far as they are kept."""
        found = {}
        with self._changing:
            for value in values:
                if (rows := self._values.pop((name, value), None)) is not None:
                    found[value], self._values[name, value] = rows[0], rows
        return found

    def add_value(self, name: str, value: str, rows: pa.Table) -> None:
        """Keeps the rows of a table that belong to one value and never change, while there is room for them."""
        if not self._keeps or not rows.num_rows:
            return
        with self._changing:
            self._values[name, value] = rows, rows.nbytes
            room = _MOST_BYTES - sum(size for _, size in self._values.values())
            while room < 0:
                room += self._values.pop(next(iter(self._values)))[1]

    def written(self, name: str, version: int, **change: Unpack[Change]) -> None:
        """To be called after each commit of this connection, with the version of the table that it made.

        Without the rows that were ``added``, what is kept of the table is read again.
        """
        added, replaced, by = change.get("added"), change.get("replaced"), change.get("by")
        with self._changing:
            n_writes = self._n_writes[name] = self._n_writes[name] + 1
            before = (name, version - 1, n_writes - 1)
            if added is None or replaced is not None:
                self._values = {key: rows for key, rows in self._values.items() if key[0] != name}
            for key, found in [*self._tables.items()]:
                if added is None or (key[0], found.version, found.n_writes) != before or (replaced and len(key) > 1):
                    continue
                rows = found.rows
                if replaced is not None:
                    rows = rows.filter(pc.invert(pc.is_in(rows[replaced], value_set=added[replaced].combine_chunks())))
                rows = pa.concat_tables([rows, found.of(added).cast(rows.schema)])
                rows = rows.combine_chunks() if rows.column(0).num_chunks > _MOST_CHUNKS else rows
                self._tables[key] = replace(found, rows=rows, version=version, n_writes=n_writes)
        if added is not None and replaced is None and by is not None:
            for value in pc.unique(added[by]):
                self.add_value(name, value.as_py(), added.filter(pc.equal(added[by], value)))

    # --- in files of this machine ---------------------------------------------------------------------------
    def _copied(
        self, key: tuple[str, ...], entry: Entry, read: Callable[[lance.LanceDataset | None], pa.Table | None]
    ) -> pa.Table | None:
        """The rows of the version of this entry: from a copy on this machine, which is made if there is none."""
        if not entry.version:
            return read(None)
        copy = self._copy(key, entry)
        with suppress(OSError, pa.ArrowException):
            contents = copy.read_bytes()
            if contents[:_DIGEST_BYTES] == xxhash.xxh3_128_digest(contents[_DIGEST_BYTES:]):
                return pa.ipc.open_file(pa.py_buffer(contents)[_DIGEST_BYTES:]).read_all()
        table = self._connection.find(key[0])
        rows = read(table)
        if rows is not None and table is not None and table.version == entry.version:
            _write_copy(copy, rows)
        return rows

    def _copy(self, key: tuple[str, ...], entry: Entry) -> Path:
        """Where the copy is of what is read of this version of a table."""
        folder = xxhash.xxh3_64_hexdigest("\0".join((self._connection.uri, *key)).encode())
        state = repr((entry, metadata.version("capim")))
        return COPIES.expanduser() / folder / f"{xxhash.xxh3_64_hexdigest(state.encode())}.arrow"

    def leave_copies(self) -> None:
        """Writes copies of the rows to which this connection has added: the next process need not read them."""
        for (name, *part), kept in [*self._tables.items()]:
            with suppress(WorkError):  # the copies are no part of what was asked for
                entry = self._connection.entry(name, seconds=math.inf)
                if entry is not None and (entry.version, self._n_writes[name]) == (kept.version, kept.n_writes):
                    copy = self._copy((name, *part), entry)
                    if entry.version and not copy.exists():
                        _write_copy(copy, kept.rows)


def _write_copy(copy: Path, rows: pa.Table) -> None:
    """Writes rows in the place of those of other versions of the same table."""
    written = pa.BufferOutputStream()
    with pa.ipc.new_file(written, rows.schema) as file:
        file.write_table(rows)
    contents = written.getvalue().to_pybytes()
    with suppress(OSError, WorkError):  # a full disk, or a home that cannot be written
        copy.parent.mkdir(parents=True, exist_ok=True)
        with replacing(copy) as temporary:
            temporary.write_bytes(xxhash.xxh3_128_digest(contents) + contents)
        for older in copy.parent.glob("*.arrow"):
            if older != copy:
                older.unlink(missing_ok=True)
