"""Compaction of small files, removal of old versions and of temporary files.

LanceDB's ``optimize()`` is not used: it rewrites a whole multi-vector table in memory, removes untagged versions and
fails once a tag is old. Compaction here goes file by file and can remove the old files after each step, so that it
needs disk space for one file, not for a second copy of the table.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from capim.store.errors import WorkError
from capim.store.tables.connection import FILE_BYTES, Connection, retrying, storage_faults
from capim.store.tables.digests import RECORDS

if TYPE_CHECKING:
    import lance

log = logging.getLogger(__name__)

_BATCH_BYTES = 8 << 20
_MOST_ROWS = 1_000_000
_MOST_AHEAD = 3600.0  # seconds
TEMPORARY_AGE = timedelta(days=1)  # a younger temporary file may belong to a running process
HISTORY_AGE = timedelta(days=14)  # of embedding sets and corpora, `capim store compact` keeps younger versions


def compact(connection: Connection, name: str, *, free: bool) -> None:
    """Rewrites small files of a table as files of about :data:`FILE_BYTES`; reading and writing may go on.

    With ``free`` the small files are removed after each step; otherwise they stay until old versions are removed.

    Raises:
        WorkError: A file was changed on disk: the digests of the new files would be those of what it holds now.
    """
    with storage_faults(f"compacting {name!r}"):
        faults = connection.digests.faults(name)
        connection.digests.refuse(
            name, [fault for fault in faults if fault.path.startswith("data/") or fault.is_of_record]
        )
    size = retrying(f"measuring {name!r}", lambda: row_bytes(_latest(connection, name)))
    rows = max(1, min(_MOST_ROWS, FILE_BYTES // size))
    batch = max(1, min(8192, _BATCH_BYTES // size))

    def step() -> int:
        table = _latest(connection, name)
        done = table.optimize.compact_files(
            target_rows_per_fragment=rows, max_source_rows=rows, batch_size=batch, num_threads=1
        )
        removed: int = done.fragments_removed
        if removed:
            connection.digests.record(name, table)
            if free:
                drop_old_versions(table, timedelta(0))
        return removed

    while retrying(f"compacting {name!r}", step):
        pass


def _latest(connection: Connection, name: str) -> lance.LanceDataset:
    table = connection.find(name)
    if table is None:
        raise WorkError(f"table {name!r} was dropped while it was compacted")
    return table


def drop_old_versions(table: lance.LanceDataset, older_than: timedelta) -> int:
    """Removes old versions without a tag and the files that only they used; returns the bytes freed.

    Files that another process is writing are not touched.
    """
    if _clock_is_ahead(table):
        return 0
    with storage_faults("removing old versions"):
        stats = table.cleanup_old_versions(older_than, error_if_tagged_old_versions=False)
    freed: int = stats.bytes_removed
    return freed


def _clock_is_ahead(table: lance.LanceDataset) -> bool:
    """Whether this machine's clock is ahead of that of the storage, such as a network mount.

    Lance removes files without a version that are a week old: by such a clock, files that another host is writing.
    """
    folder = Path(unquote(urlsplit(table.uri).path))
    if not folder.is_dir():
        return False
    with TemporaryFile(dir=folder) as file:
        ahead = time.time() - os.fstat(file.fileno()).st_mtime
    if ahead < _MOST_AHEAD:
        return False
    log.warning("the clock of this machine is %.1f hours ahead of %s: nothing is removed there", ahead / 3600, folder)
    return True


def data_bytes(table: lance.LanceDataset) -> int:
    """Size of the data files of the version that is open."""
    sizes: list[int] = [file.file_size_bytes or 0 for part in table.get_fragments() for file in part.metadata.files]
    return sum(sizes)


def row_bytes(table: lance.LanceDataset) -> int:
    """Average size of a row on disk, at least 1."""
    rows: int = table.count_rows()
    return max(1, data_bytes(table) // max(1, rows))


def temporary_files(connection: Connection, older_than: timedelta) -> list[Path]:
    """Temporary files that killed processes left, which Lance never removes; none in object storage."""
    if not connection.is_local:
        return []
    limit = time.time() - older_than.total_seconds()
    paths, folder = [], Path(connection.uri)
    for path in (*folder.glob("*.lance/**/.tmp*"), *folder.glob(f"{RECORDS}/*/.tmp*")):
        with suppress(FileNotFoundError):  # the process that wrote it has just finished
            if path.is_file() and path.stat().st_mtime <= limit:
                paths.append(path)
    return sorted(paths)


def remove_temporary_files(connection: Connection, older_than: timedelta) -> int:
    """Removes :func:`temporary_files`; returns the bytes freed."""
    freed = 0
    for path in temporary_files(connection, older_than):
        with storage_faults(f"removing {path}"):
            freed += path.stat().st_size
            path.unlink(missing_ok=True)
    return freed
