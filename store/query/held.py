"""SELECTs whose tables stay in memory for the next statement, for pages that ask the same tables again and again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock

import pyarrow as pa

from capim.store.embedding_store import EmbeddingStore
from capim.store.query.sql import batches_of, select
from capim.store.schema import CORPUS_PARTS
from capim.store.tables.rows import one_of, read
from capim.store.types import digest16

_TABLES = ("corpora", "encoders", "sets", "outcomes", "results", "comparisons", "rankings", "slices", "metrics", "runs")
MOST_BYTES = 400 * 2**20  # of columns in memory


def version_of(store: EmbeddingStore) -> str:
    """A text that changes with every commit to the tables of results, corpora and sets; reads no row.

    Examples:
        >>> import tempfile
        >>> store = EmbeddingStore.open(tempfile.mkdtemp() + "/store", create=True)
        >>> version_of(store) == version_of(store)
        True
    """
    connection = store.connection
    newest = [next(iter(connection.digests.files.manifests(name)), (0, "")) for name in _TABLES]
    # the time too: a table that was dropped and made again counts its versions from the start
    folders = [connection.folder(name) for name in _TABLES]
    times = [
        (folder / path).stat().st_mtime_ns if path and folder else 0
        for (_, path), folder in zip(newest, folders, strict=True)
    ]
    return digest16([newest, times])


@dataclass(kw_only=True)
class _Part:
    """The columns of some rows of a table at one version of it."""

    version: int
    n_rows: int = 0
    columns: dict[str, pa.ChunkedArray] = field(default_factory=dict)


class HeldTables:
    """Reads each needed column once per version of its table; threads may share it.

    Outcomes are held by evaluation, the parts of a corpus by its fingerprint; those that were not used for the longest
    time leave first.
    """

    def __init__(self, store: EmbeddingStore) -> None:
        self._connection = store.connection
        self._parts: OrderedDict[tuple[str, str], _Part] = OrderedDict()
        self._lock = RLock()

    def select(
        self,
        statement: str,
        parameters: Sequence[object] = (),
        *,
        only: Mapping[str, Sequence[str]],
        lists: Sequence[str] = (),
    ) -> pa.Table:
        """The answer of the store to a statement that needs no other rows than those of ``only``.

        Args:
            statement: A SELECT, see ``store.query.sql``.
            parameters: The values of the ``?`` in it.
            only: Table -> the evaluations (of outcomes) or the fingerprints (of parts of a corpus) whose rows it needs;
                other tables are read whole, and not held.
            lists: The evaluations whose lists, such as ``top_scores``, it needs; those of others are null.
        """

        def held(name: str, chosen: pa.Schema) -> pa.Table | None:
            if name not in only:
                return None
            table = None if name in CORPUS_PARTS else self._connection.find(name)  # parts of a corpus never change
            version = 0 if table is None else table.version
            parts = [self._rows(name, key, chosen, version, with_lists=key in lists) for key in only[name]]
            return pa.concat_tables(parts) if parts else chosen.empty_table()

        return select(self._connection, statement, parameters, held=held)

    def _rows(self, name: str, key: str, chosen: pa.Schema, version: int, *, with_lists: bool) -> pa.Table:
        """The chosen columns of one part; reads those that are not held at this version of the table."""
        left_out = {f.name for f in chosen if name == "outcomes" and pa.types.is_list(f.type) and not with_lists}
        with self._lock:
            part = self._parts.pop((name, key), _Part(version=version))
            if part.version != version:
                part = _Part(version=version)
            missing = pa.schema([f for f in chosen if f.name not in part.columns and f.name not in left_out])
            if missing.names:
                if name in CORPUS_PARTS:
                    found = pa.Table.from_batches(batches_of(self._connection, name, missing, key), schema=missing)
                else:  # read again where another process has just compacted it
                    found = read(self._connection, name, missing, one_of("evaluation", [key]))
                part.n_rows = found.num_rows
                part.columns |= {column: found[column] for column in missing.names}
            self._parts[name, key] = part
            while missing.names and len(self._parts) > 1 and self._n_bytes() > MOST_BYTES:
                self._parts.popitem(last=False)
        return pa.table(
            [
                pa.nulls(part.n_rows, f.type) if f.name in left_out else part.columns[f.name].cast(f.type)
                for f in chosen
            ],
            schema=chosen,
        )

    def _n_bytes(self) -> int:
        return sum(column.nbytes for part in self._parts.values() for column in part.columns.values())
