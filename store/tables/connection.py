"""One LanceDB database: where its tables are, how they are opened, made, changed and dropped.

A store is a LanceDB database and any LanceDB client opens it. Rows are written and read through ``lance``, the
library under LanceDB (same version), because three things that a store needs are only there: appends whose cost does
not grow with the table, scans with bounded memory, and clean-up that respects tags. ``lancedb`` itself, whose import
takes longer than most questions to the store, is loaded only for what it alone does: the catalogue of tables, dropping
one, and search indexes.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from store.errors import RequestError, WorkError

if TYPE_CHECKING:
    import lance
    import lancedb
    from lance.fragment import FragmentMetadata

T = TypeVar("T")

STORAGE_VERSION = "2.2"  # 2.3 cannot be read across releases; 2.0 to 2.2 can
_PRIMARY_KEY = {b"lance-schema:unenforced-primary-key": b"true"}
_SOURCE = re.compile(r",? ?(?:/home/|/rustc/|/root/\.cargo/|rust/)\S*\.rs")  # where in its code Lance noticed a fault
_LANCE_FAULTS = (OSError, RuntimeError, ValueError)


def with_primary_key(schema: pa.Schema, *columns: str) -> pa.Schema:
    """The schema with these columns declared as Lance's primary key, on which concurrent merges depend.

    Two merges of the same new key are seen as a conflict (and one is repeated) only where the key is declared and
    carries no index; without it both insert.
    """
    fields = [field.with_metadata(_PRIMARY_KEY) if field.name in columns else field for field in schema]
    return pa.schema(fields, metadata=schema.metadata)


def storage_options(environment: Mapping[str, str]) -> dict[str, str]:
    """What object storage needs beyond the credentials, which Lance reads from the environment itself.

    Examples:
        >>> storage_options({"AWS_ENDPOINT_URL": "http://localhost:9000"})
        {'aws_endpoint': 'http://localhost:9000', 'allow_http': 'true'}
    """
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or ""
    if not endpoint:
        return {}
    return {"aws_endpoint": endpoint} | ({"allow_http": "true"} if endpoint.startswith("http://") else {})


@contextmanager
def storage_faults(what: str) -> Iterator[None]:
    """Turns a fault of the storage layer into a :class:`WorkError` that says what was being done.

    Args:
        what: In the form "writing table 'runs'".
    """
    try:
        yield
    except (RequestError, WorkError):
        raise
    except _LANCE_FAULTS as fault:
        raise WorkError(f"{what} failed: {_explain(str(fault))}") from fault


def _explain(message: str) -> str:
    """The fault in one line, with the next step where there is one."""
    line = " ".join(message.split())
    line = _SOURCE.split(line)[0][:400]
    lower = line.lower()
    if "no space left" in lower:
        return f"{line}. Nothing of this write was kept; free space and run the same command again, it continues"
    if "permission denied" in lower or "read-only file system" in lower:
        return f"{line}. The folder cannot be written: check its owner and mode, or name another store"
    if any(sign in lower for sign in ("not found", "no such file", "invalid range")):
        return f"{line}. A file of the table is gone or cut short: `capim store verify` says what to do"
    return line


def retrying(what: str, change: Callable[[], T]) -> T:
    """Runs a change, again after a pause whenever another writer came first.

    Args:
        what: In the form "writing table 'runs'"; part of the error.
        change: Opens the latest version itself, so that a repeat sees what the other writer did.
    """
    attempt = 0
    while True:
        try:
            with storage_faults(what):
                return change()
        except WorkError as fault:
            attempt += 1
            if attempt >= _attempts_at(fault.__cause__):
                raise
        time.sleep(min(2.0, 0.02 * 2**attempt) * (0.5 + random.random()))


def _attempts_at(fault: BaseException | None) -> int:
    """How often a change that failed so is tried in all."""
    message = str(fault).lower()
    if "conflict" in message or "concurrent" in message:
        return 12  # another writer committed first
    if "not found" in message or "no such file" in message:
        return 5  # another process compacted the version that was being read; or a file is really gone
    return 1


def load_lance() -> ModuleType:
    """The ``lance`` package, told to report on stderr only what fails: a commit that is tried again does not."""
    os.environ.setdefault("LANCE_LOG", "error")
    return import_module("lance")


class Connection:
    """Opens tables of one database; holds no table, so it may be shared by threads."""

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/") or "/"
        self.is_local = "://" not in uri
        self.options = {} if self.is_local else storage_options(os.environ)

    def table_uri(self, name: str) -> str:
        """Where LanceDB keeps a table of this name."""
        return f"{self.uri}/{name}.lance"

    def folder(self, name: str) -> Path | None:
        """The folder of a table; None in object storage."""
        return Path(self.table_uri(name)) if self.is_local else None

    def find(self, name: str, version: int | str | None = None) -> lance.LanceDataset | None:
        """The table, at a version or tag, or its latest; None if there is no such table."""
        lance = load_lance()

        try:
            return lance.dataset(self.table_uri(name), version=version, storage_options=self.options or None)
        except ValueError as fault:
            if "was not found" in str(fault):
                return None
            raise WorkError(
                f"opening table {name!r} at {version or 'its latest version'} failed: {_explain(str(fault))}"
            ) from fault
        except (OSError, RuntimeError) as fault:
            raise WorkError(f"opening table {name!r} failed: {_explain(str(fault))}") from fault

    def latest(self, name: str, table: lance.LanceDataset | None) -> lance.LanceDataset | None:
        """A table that is open already, moved to its latest version; opened if it is not; None if there is none."""
        if table is None:
            return self.find(name)
        with storage_faults(f"opening table {name!r}"):
            try:
                table.checkout_latest()
            except ValueError as fault:
                if "not found" in str(fault).lower():
                    return self.find(name)
                raise
        return table

    def create(self, name: str, schema: pa.Schema, rows: pa.Table | None = None) -> lance.LanceDataset:
        """The table, made with these rows in one step if it is not there yet; whoever comes second gets the first's."""
        lance = load_lance()

        with storage_faults(f"creating table {name!r}"):
            try:
                return lance.write_dataset(
                    schema.empty_table() if rows is None else rows,
                    self.table_uri(name),
                    schema=schema,
                    mode="create",
                    data_storage_version=STORAGE_VERSION,
                    storage_options=self.options or None,
                )
            except _LANCE_FAULTS as fault:
                existing = self.find(name) if "exist" in str(fault).lower() or _attempts_at(fault) > 1 else None
                if existing is None:
                    raise
                return existing

    def append(self, table: lance.LanceDataset, parts: Sequence[Callable[[], pa.RecordBatch]]) -> lance.LanceDataset:
        """Adds rows as one new version; appends of several writers never conflict. All of them are there, or none.

        Args:
            table: At its latest version.
            parts: Each makes some of the rows, is called in a thread of its own and becomes a file of its own.
        """
        lance = load_lance()

        def write(part: Callable[[], pa.RecordBatch]) -> list[FragmentMetadata]:
            rows = pa.Table.from_batches([part()])
            options = self.options or None
            written: list[FragmentMetadata] = lance.fragment.write_fragments(
                rows, table, mode="append", data_storage_version=STORAGE_VERSION, storage_options=options
            )
            return written

        with ThreadPoolExecutor(len(parts)) as pool:
            running = [pool.submit(write, part) for part in parts]
        try:
            fragments = [fragment for one in running for fragment in one.result()]
        except Exception:
            self._remove_files(table, [part for one in running if not one.exception() for part in one.result()])
            raise
        operation = lance.LanceOperation.Append(fragments)
        return lance.LanceDataset.commit(
            table, operation, read_version=table.version, storage_options=self.options or None
        )

    def _remove_files(self, table: lance.LanceDataset, fragments: Sequence[FragmentMetadata]) -> None:
        """Removes files of a write that failed in part; in object storage the garbage collection does it after days."""
        if self.is_local:
            for fragment in fragments:
                for file in fragment.files:
                    (Path(table.uri) / "data" / file.path).unlink(missing_ok=True)

    @cached_property
    def database(self) -> lancedb.DBConnection:
        """LanceDB's own client, for the catalogue, for dropping tables and for search indexes."""
        from datetime import timedelta

        import lancedb

        return lancedb.connect(self.uri, read_consistency_interval=timedelta(0), storage_options=self.options or None)

    def names(self) -> list[str]:
        """Names of all tables, sorted."""
        found: list[str] = []
        token = None
        with storage_faults(f"listing the tables of {self.uri}"):
            while True:
                page = self.database.list_tables(page_token=token, limit=500)
                found += page.tables
                token = page.page_token
                if not token:
                    return sorted(found)

    def drop(self, name: str) -> None:
        """Removes a table with all versions and tags."""
        with storage_faults(f"dropping table {name!r}"):
            self.database.drop_table(name)
