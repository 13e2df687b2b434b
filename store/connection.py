"""One LanceDB database: opening, creating, appending to and dropping its tables, and caching their rows.

A store is a LanceDB database, and any LanceDB client opens it. Rows are written and read through ``lance``, the library
below LanceDB (same version), because only ``lance`` offers appends with a cost that does not grow with the table, scans
with bounded memory, and clean-up that keeps tagged versions.
"""

from __future__ import annotations

import logging
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import parse_qs, quote, unquote

import pyarrow as pa
import pyarrow.fs

from capim.store.errors import RequestError, WorkError
from capim.store.files import file_system, sync

if TYPE_CHECKING:
    import lance


# --- Errors of the storage layer: reported with a next step, and retried if another process wrote first.


T = TypeVar("T")
log = logging.getLogger(__name__)

LANCE_FAULTS = (OSError, RuntimeError, ValueError)
_NO_BUCKET = "nosuchbucket|bucket does not exist"
_INCOMPLETE = "not found|no such file|invalid range|file size is too small|failed to fill whole buffer"
_CORRUPT = (
    r"corrupt|decod|invalid (user input|characters|argument)|out of (range|bounds)|outside metadata|expected|"
    r"line \d+ column|panicked|sufficient data"
)
_REMEDIES = {
    "no space left": "Nothing of this write was kept; free space and run the same command again to continue",
    "permission denied|read-only file system": "The folder is not writable: check its owner and mode, or give another "
    "workspace (--workspace)",
    "invalidaccesskeyid|signaturedoesnotmatch|accessdenied|403 forbidden|credentialsnotloaded|expiredtoken": "The "
    "storage refuses the keys, or there are none: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION",
    "operation not (permitted|supported)": "This file system has no hard links, which tables need: use a workspace "
    "on another one",
    "are non-nullable": "Another program added these columns: run `capim store upgrade`, which removes them, and the "
    "same command again",
    "too many open files": "Allow the process more (`ulimit -n 4096`), and run the same command again to continue",
    "cannot allocate memory|unable to allocate|failed to map segment|malloc of size|task was aborted|"
    "resource temporarily unavailable": "Free memory, or allow the process more (`ulimit -v unlimited`)",
    _NO_BUCKET: "There is no bucket of this name: check the URI, or create the bucket",
    "resolve region": "Set AWS_REGION, or AWS_ENDPOINT_URL where the storage is not Amazon's",
    r"status code: 5\d\d": "The storage is overloaded or down. Stored data are kept; run the same command again later",
    "invalid list response": "What answers there is no object storage: check AWS_ENDPOINT_URL. Stored data are kept",
    "error sending request|timed out|timeout|network_connection|body error": "The storage does not respond: check the "
    "network and AWS_ENDPOINT_URL. Stored data are kept; run the same command again to continue",
    f"{_INCOMPLETE}|{_CORRUPT}|damaged file": "Run `capim store verify`: it lists damaged data; --drop removes "
    "them, and the same command recreates them",
}
"""Pattern of an error of the storage layer -> the next step; the first match counts."""
_WRAPPED = re.compile(
    r"LanceError\(\w+\): |Generic \S+ error: |: CredentialsNotLoaded\(.*"
)  # details of a library that a user cannot act on
_REQUEST = re.compile(r"Error performing (?:\w+ request: Error performing )?[A-Z]+ (\S+) in .*? +- ")
_PLAIN = {
    re.compile("Server returned non-2xx status code: "): "",
    re.compile("HTTP error: error sending request"): "no answer",
    re.compile("HTTP error: request or response body error"): "the answer broke off",
    re.compile(r":? *<(?:!doctype|html)\b.*", re.IGNORECASE): "",  # the page of a proxy
}
"""Words of the library for requests -> ours."""
_XML = re.compile(r"<\?xml.*?<Code>(.*?)</Code>.*?<Message>(.*?)(?:</Message>.*|$)")
_SOURCE = re.compile(r",? ?(?:/home/|/rustc/|/root/\.cargo/|rust/)\S*\.rs")  # a position in the source code of Lance


@contextmanager
def storage_faults(what: str) -> Iterator[None]:
    """Turn an error of the storage layer into a :class:`WorkError` that names the operation, ``what``.

    This includes a panic of Lance, which damaged files cause, and which is a ``BaseException``.
    """
    thread, mine = threading.get_ident(), (time.monotonic(), what)
    outermost = _IN_WORK.setdefault(thread, mine)
    try:
        yield
    except (RequestError, WorkError):
        raise
    except LANCE_FAULTS as fault:
        raise explained(f"{what} failed", fault) from fault
    except BaseException as panic:
        if type(panic).__name__ != "PanicException":  # every extension module in Rust has a class of its own
            raise
        raise explained(f"{what} failed", RuntimeError(f"damaged file ({panic})")) from panic
    finally:
        if outermost is mine:
            _IN_WORK.pop(thread, None)


_LOOK_SECONDS = 0.5
_WAIT_SECONDS = 30.0  # until a wait for object storage is reported; then after twice as long, and so on
_IN_WORK: dict[int, tuple[float, str]] = {}  # thread -> start and name of its current operation of the storage


@cache
def tell_of_waits() -> None:
    """From now on, report when object storage takes long: it may have stopped responding."""

    def watch() -> None:
        next_word: dict[tuple[float, str], float] = {}
        while True:
            time.sleep(_LOOK_SECONDS)
            for began, what in [*_IN_WORK.values()]:
                if (waited := time.monotonic() - began) >= next_word.get((began, what), _WAIT_SECONDS):
                    log.warning("waiting for the storage since %.0f s: %s", waited, what)
                    next_word[began, what] = 2 * waited

    threading.Thread(target=watch, name="waits for the storage", daemon=True).start()


def explained(problem: str, fault: Exception) -> WorkError:
    """Return the error of the storage layer in one line, with the next step if there is one."""
    line = _SOURCE.split(" ".join(str(fault).split()))[0]
    found = ((re.search(words, line.lower()), remedy) for words, remedy in _REMEDIES.items())
    match, remedy = next(((match, remedy) for match, remedy in found if match), (None, ""))
    line = _XML.sub(r"\1: \2", _WRAPPED.sub("", line))
    line = _REQUEST.sub(lambda request: f"{_workspace_at(request[1])}: ", line)
    for words, ours in _PLAIN.items():
        line = words.sub(ours, line)
    line = line[:400].rstrip(".")
    if match and match[0] == "permission denied" and not problem.startswith(("creating", "writing")):
        remedy = "It may not be read: check owner and mode, and the umask of who wrote it (docs/production.md)"
    elif match and re.fullmatch(_INCOMPLETE, match[0]) and problem.startswith("creating"):
        remedy = "No folder can be made there: check the address, or give another workspace (--workspace)"
    elif match and re.fullmatch(_INCOMPLETE, match[0]):
        line += " (a file of the table is missing or truncated)"
    return WorkError(f"{problem}: {line}", remedy=remedy)


def _workspace_at(url: str) -> str:
    """Return the address of a workspace from that of a request for one of its tables.

    Examples:
        >>> _workspace_at("http://h:9/b?list-type=2&prefix=my%2Fws%2Fstore%2Fruns.lance%2F_versions%2F")
        'http://h:9/b/my/ws'
    """
    address, _, query = url.partition("?")
    prefix = "".join(f"/{each}" for each in parse_qs(query).get("prefix", []))
    return re.sub(r"(/store)?/[^/]*\.lance(/.*)?$|/store/?$", "", unquote(address) + prefix).rstrip("/")


def retrying(what: str, change: Callable[[], T]) -> T:
    """Run a change, and repeat it after a pause if another process wrote to the table first.

    ``change`` opens the latest version itself, so that a repetition sees the other process's changes.
    """
    attempt = 0
    while True:
        try:
            with storage_faults(what):
                return change()
        except WorkError as fault:
            attempt += 1
            if attempt >= attempts_at(fault.__cause__):
                raise
        time.sleep(min(2.0, 0.02 * 2**attempt) * (0.5 + random.random()))


def attempts_at(fault: BaseException | None) -> int:
    """Return how often to try a change that fails with this error."""
    message = str(fault).lower()
    if "conflict" in message or "concurrent" in message:
        return 12  # another process committed first
    if ("not found" in message or "no such file" in message) and not re.search(_NO_BUCKET, message):
        return 5  # another process compacted the version that was being read, or a file is missing
    return 1


FILE_BYTES = 256 << 20  # approximate bytes of vectors per file
STORAGE_VERSION = "2.2"  # 2.3 cannot be read across releases; 2.0 to 2.2 can
_METADATA_BYTES = 64 << 20  # of manifests and the ends of data files, cached by a process


def storage_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the options for object storage except credentials, which Lance reads from the environment itself.

    Examples:
        >>> storage_options({"AWS_ENDPOINT_URL": "http://localhost:9000"})
        {'client_retry_timeout': '30', 'aws_endpoint': 'http://localhost:9000', 'allow_http': 'true'}
    """
    # A request may take 30 s; without a response it is not repeated. Lance reads the variable
    # OBJECT_STORE_CLIENT_RETRY_TIMEOUT, which allows repetition.
    options = {"client_retry_timeout": "30"}
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or ""
    if not endpoint:
        return options
    return options | {"aws_endpoint": endpoint} | ({"allow_http": "true"} if endpoint.startswith("http://") else {})


def load_lance() -> ModuleType:
    """Return the ``lance`` package, with its log limited to errors: a repeated commit is not one."""
    os.environ.setdefault("LANCE_LOG", "error")
    return import_module("lance")


@cache
def _session() -> lance.Session:
    """Return Lance's cache of manifests and of the ends of data files, which never change and are read once."""
    session: lance.Session = load_lance().Session(metadata_cache_size_bytes=_METADATA_BYTES)
    return session


_OF_RUN: ContextVar[dict[str, Connection] | None] = ContextVar("connections", default=None)


@contextmanager
def one_connection() -> Iterator[None]:
    """In this block, all stores with one URI share a connection, which caches the rows of small tables (``rows.read``).

    The many tasks of a run then do not read the same tables, and compare them with the ledger, repeatedly.
    """
    shared = _OF_RUN.get()
    before = _OF_RUN.set({} if shared is None else shared)
    try:
        yield
    finally:
        _OF_RUN.reset(before)


# --- Rows of tables that a connection caches, so that the tasks of a run do not read them repeatedly.


_KEPT_ROWS = 50_000  # largest number of cached rows of a table
_KEPT_CHUNKS = 32  # largest number of chunks that they are cached in
_KEPT_BYTES = 128 << 20  # of cached corpora


def table_version(table: lance.LanceDataset | None) -> int:
    """Return the version of a table, 0 for none."""
    return 0 if table is None else int(table.version)


class KeptRows:
    """The rows that one connection caches; may be shared by threads.

    Attributes:
        look_seconds: Time after which a table is checked for writes of other processes.
        corpora: Cached corpora, by fingerprint and facts.
    """

    def __init__(self, connection: Connection, *, keeps: bool) -> None:
        self._connection = connection
        self._keeps = keeps
        self._versions: dict[str, tuple[int, float]] = {}  # newest ones, with the time when they were looked up
        self._rows: dict[str, tuple[int, pa.Table]] = {}  # with their version
        self.corpora: dict[str, Any] = {}
        self._room = _KEPT_BYTES
        self._changing = threading.Lock()
        self.look_seconds = (1.0 if connection.is_local else 30.0) if keeps else 0.0

    def version(self, name: str) -> int:
        """Return the newest version of a table, 0 without one; those of other processes after ``look_seconds``."""
        known = self._versions.get(name)
        if known is None or time.monotonic() - known[1] >= self.look_seconds:
            return table_version(self._newest(name))
        return known[0]

    def rows(self, name: str, read: Callable[[lance.LanceDataset | None], pa.Table]) -> pa.Table | None:
        """Return the rows of a table at :meth:`version`; None if the connection caches nothing, or too many rows."""
        if not self._keeps:
            return None
        kept = self._rows.get(name)
        if kept is None or kept[0] != self.version(name):
            table = self._newest(name)
            if table is not None and table.count_rows() > _KEPT_ROWS:
                return None
            kept = self._rows[name] = table_version(table), read(table)
        return kept[1]

    def _newest(self, name: str) -> lance.LanceDataset | None:
        before, looked = self._versions.get(name), time.monotonic()
        table = self._connection.find(name)
        with self._changing:
            if self._versions.get(name) is before:  # else another thread has changed or expired it meanwhile
                self._versions[name] = table_version(table), looked
        return table

    def expire(self, *names: str) -> None:
        """Have these tables checked for writes of other processes when they are next read."""
        for name in names:
            self._versions.pop(name, None)

    def add_corpus(self, key: str, corpus: Any, n_bytes: int) -> None:
        """Cache a corpus, which never changes; without room for it, the others are no longer cached."""
        with self._changing:
            if self._keeps and n_bytes <= _KEPT_BYTES:
                if n_bytes > self._room:
                    self.corpora, self._room = {}, _KEPT_BYTES
                self.corpora[key] = corpus
                self._room -= n_bytes

    def written(self, name: str, version: int, added: pa.Table | None = None) -> None:
        """Record a commit of this connection, with the version of the table that it made (0: unknown), after each.

        With the rows that were ``added``, if the commit did nothing else, cached rows need not be read again.
        """
        with self._changing:
            known, kept = self._versions.pop(name, (0, 0.0)), self._rows.pop(name, None)
            if not version:
                return
            self._versions[name] = max(known[0], version), time.monotonic()
            if added is not None and kept is not None and kept[0] == version - 1:
                rows = pa.concat_tables([kept[1], added.cast(kept[1].schema)])
                rows = rows.combine_chunks() if rows.column(0).num_chunks > _KEPT_CHUNKS else rows
                self._rows[name] = version, rows


# --- The database.


class Checked(NamedTuple):
    """A table of derived rows that agreed with the ledger when it was checked.

    Attributes:
        versions: Versions of the table and of the ledger, by name.
        unlisted: Keys of rows that the ledger does not list.
    """

    versions: Mapping[str, int]
    unlisted: frozenset[str]


class Connection:
    """Access to the tables of one database; may be shared by threads.

    Attributes:
        is_checked: True if the URI and the format of the store were checked.
        kept: The cached rows.
        checked: Table of derived rows -> result of its last check; the connection's own commits keep it valid.
        listed: Keys of derivations with an entry of the ledger that this connection wrote.
    """

    def __init__(self, uri: str, *, keeps: bool = False) -> None:
        self.uri = uri.rstrip("/") or "/"
        self.is_local = "://" not in uri
        self.options = {} if self.is_local else storage_options(os.environ)
        if not self.is_local:
            tell_of_waits()
        self.is_checked = False
        self.kept = KeptRows(self, keeps=keeps)
        self.checked: dict[str, Checked] = {}
        self.listed: set[str] = set()

    @classmethod
    def to(cls, uri: str) -> Connection:
        """Return a new connection, or in :func:`one_connection` the one of this URI."""
        shared = _OF_RUN.get()
        if shared is None:
            return cls(uri)
        if uri not in shared:
            shared.setdefault(uri, cls(uri, keeps=True))  # another thread may have opened it meanwhile
        return shared[uri]

    def table_uri(self, name: str) -> str:
        """Return the URI of a table of this name for Lance.

        If the path has characters that a URI encodes, Lance writes the tags to the encoded path, a folder next to the
        store; with the scheme ``file-object-store`` it decodes them.
        """
        path = f"{self.uri}/{name}.lance"
        encoded = quote(path).replace("~", "%7E")
        return f"file-object-store://{encoded}" if self.is_local and encoded != path else path

    def folder(self, name: str) -> Path | None:
        """Return the folder of a table; None in object storage."""
        return Path(f"{self.uri}/{name}.lance") if self.is_local else None

    def find(self, name: str, version: int | str | None = None) -> lance.LanceDataset | None:
        """Return the table at a version or tag, or its latest version; None if there is no such table.

        Retried if another process has just removed the newest version.

        Raises:
            WorkError: If the table cannot be opened.
        """
        open_dataset, which = load_lance().dataset, f"at {version}" if version else "at its newest version"

        def opened() -> lance.LanceDataset | None:
            try:
                found: lance.LanceDataset = open_dataset(
                    self.table_uri(name), version=version, storage_options=self.options or None, session=_session()
                )
                return found
            except ValueError as fault:
                if "was not found" in str(fault):
                    return None
                raise

        what = f"opening table {name!r} {which}"
        if version is None:
            return retrying(what, opened)
        with storage_faults(what):
            return opened()

    def committed(self, name: str, version: int, added: pa.Table | None = None) -> None:
        """Record a commit of this connection, with the version that it made (0 for a dropped table), after each commit.

        With the rows that the commit ``added``, if it did nothing else, cached rows need not be read again.
        """
        self.kept.written(name, version, added)
        for table, known in [*self.checked.items()]:
            if known.versions.get(name) == version - 1:
                self.checked[table] = known._replace(versions={**known.versions, name: version})

    def sync(self, name: str) -> None:
        """Write a table from memory to the disk (fsync); object storage does so itself."""
        if (folder := self.folder(name)) is not None:
            sync(folder)

    def create(self, name: str, schema: pa.Schema, rows: pa.Table | None = None) -> lance.LanceDataset:
        """Return the table, created with these rows in one commit; if it exists, the table unchanged.

        Lance's ``mode="create"`` empties a table that another process created a moment before
        (github.com/lance-format/lance/issues/4451). A commit without retries is refused instead.
        """
        module = load_lance()
        rows = schema.empty_table() if rows is None else rows
        uri, options = self.table_uri(name), self.options or None
        with storage_faults(f"creating table {name!r}"):
            try:
                first_version = module.fragment.write_fragments(
                    rows,
                    uri,
                    schema=schema,
                    mode="create",
                    data_storage_version=STORAGE_VERSION,
                    storage_options=options,
                    return_transaction=True,
                )
                table: lance.LanceDataset = module.LanceDataset.commit(
                    uri, first_version, storage_options=options, max_retries=0
                )
            except LANCE_FAULTS:
                if (existing := self.find(name)) is None:
                    raise
                return existing
        self.committed(name, table.version, rows)
        return table

    def overwrite(self, name: str, rows: pa.Table) -> None:
        """Replace the rows and columns of a table, which may be missing, in one commit."""
        with storage_faults(f"writing table {name!r}"):
            table = load_lance().write_dataset(
                rows,
                self.table_uri(name),
                mode="overwrite",
                data_storage_version=STORAGE_VERSION,
                storage_options=self.options or None,
            )
        self.committed(name, table.version)

    def append(self, table: lance.LanceDataset, rows: pa.RecordBatch | pa.RecordBatchReader) -> lance.LanceDataset:
        """Add rows in one commit: all of them or none. Appends of several processes never conflict."""
        written: lance.LanceDataset = load_lance().write_dataset(
            rows,
            table,
            mode="append",
            max_bytes_per_file=FILE_BYTES,
            data_storage_version=STORAGE_VERSION,
            storage_options=self.options or None,
        )
        return written

    @cached_property
    def _files(self) -> tuple[pyarrow.fs.FileSystem, str]:
        """Return the file system of the store, and the path of its folder there."""
        return file_system(self.uri, self.options.get("aws_endpoint", ""))

    def names(self) -> list[str]:
        """Return the names of all tables, sorted."""
        with storage_faults(f"listing the tables of {self.uri}"):
            system, root = self._files
            found = system.get_file_info(pyarrow.fs.FileSelector(root, allow_not_found=True))
        return sorted(each.base_name.removesuffix(".lance") for each in found if each.extension == "lance")

    def drop(self, name: str) -> None:
        """Remove a table with all versions and tags; it may be missing."""
        with storage_faults(f"dropping table {name!r}"):
            self.remove(f"{name}.lance")
        self.committed(name, 0)

    def remove(self, folder: str) -> None:
        """Remove a folder of the store; it may be missing."""
        system, root = self._files
        with suppress(FileNotFoundError):
            system.delete_dir(f"{root}/{folder}")


_BATCH_BYTES = 8 << 20
_MOST_ROWS = 1_000_000
TEMPORARY_AGE = timedelta(days=1)  # a younger temporary file may be in use by a running process


def compact(connection: Connection, name: str, *, free: bool) -> None:
    """Rewrite small files of a table as files of about :data:`FILE_BYTES`; reading and writing may continue.

    With ``free`` the small files are removed after each step; otherwise they stay until old versions are removed.
    """
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
            connection.committed(name, table.version)
            if free:
                drop_old_versions(table)
        return removed

    while retrying(f"compacting {name!r}", step):
        pass


def _latest(connection: Connection, name: str) -> lance.LanceDataset:
    table = connection.find(name)
    if table is None:
        raise WorkError(f"table {name!r} was dropped while it was being compacted")
    return table


def drop_old_versions(table: lance.LanceDataset) -> None:
    """Remove old versions without a tag and the files that only they used.

    Files that another process is writing are not touched.
    """
    retrying(  # another process may be removing the same ones
        "removing old versions", lambda: table.cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    )


def data_bytes(table: lance.LanceDataset) -> int:
    """Return the size of the data files of the open version."""
    return sum(int(file.file_size_bytes or 0) for part in table.get_fragments() for file in part.metadata.files)


def row_bytes(table: lance.LanceDataset) -> int:
    """Return the average size of a row on disk, at least 1."""
    return max(1, data_bytes(table) // max(1, int(table.count_rows())))


def temporary_files(connection: Connection) -> list[Path]:
    """Return temporary files of killed processes, which Lance never removes; none in object storage."""
    if not connection.is_local:
        return []
    limit = time.time() - TEMPORARY_AGE.total_seconds()
    paths, folder = [], Path(connection.uri)
    for path in folder.glob("*.lance/**/.tmp*"):
        with suppress(FileNotFoundError):  # the process that wrote it has just finished
            if path.is_file() and path.stat().st_mtime <= limit:
                paths.append(path)
    return sorted(paths)
