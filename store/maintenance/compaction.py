"""Small files into large ones, old versions and leftovers out: what keeps a store as small as its contents.

Never LanceDB's ``optimize()``: it rewrites a whole multi-vector table in memory, forgets untagged history and fails
once a tag is old. Compaction here goes file by file and can free each slice before the next, so that it needs room for
one file, not for a second copy.
"""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from store.errors import WorkError
from store.tables.connection import Connection, retrying, storage_faults

if TYPE_CHECKING:
    import lance

FILE_BYTES = 256 << 20  # of vectors per file, about
_BATCH_BYTES = 8 << 20
_MOST_ROWS = 1_000_000
LEFTOVER_AGE = timedelta(days=1)  # a temporary file younger than this may belong to a writer at work
HISTORY_AGE = timedelta(days=14)  # versions without a tag are kept this long by `store gc`


def compact(connection: Connection, name: str, *, row_bytes: int, free: bool) -> None:
    """Brings the rows of a table into files of about :data:`FILE_BYTES`; reads and writes may go on meanwhile.

    Args:
        connection: Where the table is.
        name: Of the table.
        row_bytes: Size of a row, about.
        free: Remove the small files after each step; otherwise they stay until the garbage collection.
    """
    rows = max(1, min(_MOST_ROWS, FILE_BYTES // max(1, row_bytes)))
    batch = max(1, min(8192, _BATCH_BYTES // max(1, row_bytes)))

    def step() -> int:
        table = connection.find(name)
        if table is None:
            raise WorkError(f"table {name!r} was dropped while it was compacted")
        done = table.optimize.compact_files(
            target_rows_per_fragment=rows, max_source_rows=rows, batch_size=batch, num_threads=1
        )
        removed: int = done.fragments_removed
        if removed and free:
            drop_old_versions(table, timedelta(0))
        return removed

    while retrying(f"compacting {name!r}", step):
        pass


def drop_old_versions(table: lance.LanceDataset, older_than: timedelta) -> int:
    """Removes versions that no tag names and files that only they used; returns the bytes freed.

    Files of a commit that another writer has under way are not touched.
    """
    with storage_faults("removing old versions"):
        stats = table.cleanup_old_versions(older_than, error_if_tagged_old_versions=False)
    freed: int = stats.bytes_removed
    return freed


def data_bytes(table: lance.LanceDataset) -> int:
    """Size of the data files of the version at hand."""
    sizes: list[int] = [file.file_size_bytes or 0 for part in table.get_fragments() for file in part.metadata.files]
    return sum(sizes)


def row_bytes(table: lance.LanceDataset) -> int:
    """Average size of a row on disk."""
    rows: int = table.count_rows()
    return data_bytes(table) // max(1, rows)


def leftovers(connection: Connection, older_than: timedelta) -> list[Path]:
    """Temporary files that killed writers left behind, which Lance itself never removes; none in object storage."""
    if not connection.is_local:
        return []
    limit = time.time() - older_than.total_seconds()
    found = []
    for path in Path(connection.uri).glob("*.lance/**/.tmp*"):
        try:
            if path.is_file() and path.stat().st_mtime <= limit:
                found.append(path)
        except FileNotFoundError:  # its writer has just finished
            continue
    return sorted(found)


def sweep(connection: Connection, older_than: timedelta = LEFTOVER_AGE) -> int:
    """Removes :func:`leftovers`; returns the bytes freed."""
    freed = 0
    for path in leftovers(connection, older_than):
        with storage_faults(f"removing {path}"):
            freed += path.stat().st_size
            path.unlink(missing_ok=True)
    return freed
