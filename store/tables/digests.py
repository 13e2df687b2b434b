"""Digests of the files of every table: written after each commit, compared before Lance opens a table.

Lance has no checksums: it returns a bit that was flipped on disk as a vector or a figure, takes a table whose newest
version was deleted for the version before, and panics on some damaged manifests. Beside the files of a table stands a
record of its newest version (and of a sealed one): size and XXH3-128 of every file. Files of a table never change, so
that a commit digests only what is new. Small files that nothing else could restore are kept in the record as well.

A process that is killed between a commit and its record leaves a version without one: whoever opens the table next
writes it. The name of a record holds the digest of its contents, so that a damaged record is written again too.
"""

from __future__ import annotations

import json
import logging
import os
import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode, urlsplit

import pyarrow as pa
import pyarrow.fs
import xxhash

from store.errors import WorkError
from store.keys import SET_PREFIXES

if TYPE_CHECKING:
    import lance

log = logging.getLogger(__name__)

NEWEST = 2**64 - 1  # the manifest of a version has this less the version as its name, so that the newest comes first
COPIED = frozenset(("formats", "encoders", "corpora", "sets", "runs", "watched", "batches", "canaries", "metrics"))
"""Tables whose data files are kept in the record too, where they are small: registers, and history."""
_COPIED_BYTES = 64 << 10
_FOLDER = "_digests"
_CHUNK = 1 << 20
_PAUSES = (0.0, 0.2, 1.0)  # seconds, before missing files are looked for again


class FileFault(NamedTuple):
    """A file of a table that is not what was written.

    Attributes:
        path: Below the folder of the table.
        problem: In words.
        copied: Whether a record has a copy of its contents.
    """

    path: str
    problem: str
    copied: bool


@dataclass(frozen=True, kw_only=True)
class _Record:
    """The files of one version of a table: bytes and digest by path, and the compressed contents of some."""

    version: int
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)


class Digests:
    """The records of all tables of a database, in a folder or in object storage."""

    def __init__(self, uri: str, endpoint: str = "") -> None:
        """The records below a URI; ``endpoint`` is the address of a server that speaks S3, if it is not Amazon's."""
        self._system: pa.fs.FileSystem = pa.fs.LocalFileSystem()
        self._root = uri
        if "://" in uri:
            server = urlsplit(endpoint)  # without a user, whose name would be taken for the host
            where = {"scheme": server.scheme, "endpoint_override": server.netloc.rpartition("@")[2]}
            self._system, self._root = pa.fs.FileSystem.from_uri(f"{uri}?{urlencode(where)}" if endpoint else uri)
        self._known: dict[str, _Record] = {}

    def version(self, name: str) -> int | None:
        """The newest version of a table of which the record was compared, by this object; None if none was."""
        return self._known[name].version if name in self._known else None

    def compare(self, name: str) -> None:
        """Raises :class:`WorkError` if a file of the table was changed or is missing.

        Data files of embedding sets, whose rows have checksums of their own, and all in object storage, from where they
        would be downloaded, are compared by their size; `capim store verify` reads them too.
        """
        self.refuse(name, self.faults(name, quick=True))

    def refuse(self, name: str, faults: list[FileFault]) -> None:
        """Raises :class:`WorkError` if there are faults, with the first files."""
        if faults:
            listed = "; ".join(f"{self._root}/{name}.lance/{path} {problem}" for path, problem, _ in faults[:3])
            more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
            raise WorkError(
                f"table {name!r}: {listed}{more}",
                remedy=f"Run `capim store repair {name}`, then the same command that made it",
            )

    def faults(self, name: str, *, quick: bool = False) -> list[FileFault]:
        """What is wrong with the files of a table, compared with its records; nothing where there is no record.

        ``quick`` is for :meth:`compare`: it also trusts the files that this object has read or written before.
        """
        records = self._records(name)
        for pause in (*_PAUSES, None):
            sizes = self._sizes(name)
            manifests = sorted(path for path in sizes if path.endswith(".manifest"))
            faults: dict[str, str] = {}
            for record in records:
                # without its manifest and with a newer one, a version was removed by another program
                if _manifest(record.version) in sizes or not manifests or manifests[0] > _manifest(record.version):
                    faults |= self._differences(name, record, sizes, quick=quick)
            again = self._records(name) if faults else records
            # by whoever compacts a table right now, the files of an old version are removed before its manifest
            if pause is None or (again == records and "is missing" not in faults.values()):
                break
            records = again
            time.sleep(pause)
        if not faults:
            self._known[name] = max(records, key=lambda record: record.version, default=_Record(version=0))
        copied = {path for record in records for path in record.copies}
        return [FileFault(path, problem, path in copied) for path, problem in sorted(faults.items())]

    def record(self, name: str, table: lance.LanceDataset, *, anew: bool = False) -> None:
        """Writes the record of the version that is open, unless it is there; ``anew`` digests every file again.

        A failure is no failure of the commit, whose rows are stored: the next to open the table writes the record.
        """
        try:
            if anew:
                self.forget(name)
                for path in self._list(f"{name}.lance/{_FOLDER}", recursive=False):
                    self.remove(path)
            self._record(name, table, self._known.get(name, _Record(version=0)))
        except (OSError, RuntimeError, ValueError) as fault:
            log.debug("version %s of table %r has no record of its files yet: %s", table.version, name, fault)

    def restore(self, name: str, faults: list[FileFault]) -> None:
        """Puts back the files of which a record has a copy."""
        copies = {path: copy for record in self._records(name) for path, copy in record.copies.items()}
        for path, _, copied in faults:
            if copied:
                self._write(f"{name}.lance/{path}", zlib.decompress(b64decode(copies[path])))

    def manifests(self, name: str) -> list[tuple[int, str]]:
        """The versions of a table and the paths of their manifests, newest first."""
        paths = sorted(path for path in self._list(f"{name}.lance/_versions", recursive=False) if path.endswith("fest"))
        return [(NEWEST - int(Path(path).stem), path) for path in paths]

    def remove(self, path: str) -> None:
        """Removes one file."""
        self._system.delete_file(path)

    def forget(self, name: str) -> None:
        """Has the table compared again when it is opened next."""
        self._known.pop(name, None)

    def _differences(
        self, name: str, record: _Record, sizes: dict[str, int], *, quick: bool
    ) -> Iterator[tuple[str, str]]:
        trusted = self._known[name].files if quick and name in self._known else {}
        by_size = quick and (name.startswith(SET_PREFIXES) or not isinstance(self._system, pa.fs.LocalFileSystem))
        large = ("data/", "_indices/") if by_size else "\0"
        for path, written in record.files.items():
            if path not in sizes:
                if not (quick and path.startswith("_refs/")):  # a tag is made again when the set is sealed again
                    yield path, "is missing"
            elif sizes[path] != written[0]:
                yield path, f"has {sizes[path]} bytes, {written[0]} were written"
            elif not path.startswith(large) and trusted.get(path) != written and self._digest(name, path) != written:
                yield path, "was changed on disk"

    def _record(self, name: str, table: lance.LanceDataset, before: _Record) -> None:
        files, copies, known = {}, {}, {**before.files}
        known.pop(_manifest(table.version), None)
        for path in self._paths(name, table):
            files[path] = (not path.startswith("_refs/") and known.get(path)) or self._digest(name, path)
            if path in before.copies and known.get(path) == files[path]:
                copies[path] = before.copies[path]
            elif path.startswith(("_versions/", "_deletions/", "_refs/")) or (
                name in COPIED and path.startswith("data/") and files[path][0] <= _COPIED_BYTES
            ):
                with self._system.open_input_file(f"{self._root}/{name}.lance/{path}") as file:
                    copies[path] = b64encode(zlib.compress(file.read(), 1)).decode()
        record = _Record(version=table.version, files=files, copies=copies)
        text = json.dumps(vars(record), separators=(",", ":")).encode()
        # Older ones go, except those of versions with a tag, which only sets have.
        tags = table.tags.list().values() if name.startswith(SET_PREFIXES) else ()
        kept = {entry["version"] for entry in tags}
        written = f"{table.version}-{xxhash.xxh3_64_hexdigest(text)}.json"
        stored = self._list(f"{name}.lance/{_FOLDER}", recursive=False)
        if all(_version(path) <= table.version for path in stored):
            self._write(f"{name}.lance/{_FOLDER}/{written}", text)
            for path in stored:
                if Path(path).name != written and _version(path) not in kept - {table.version}:
                    self.remove(path)
        self._known[name] = record

    def _paths(self, name: str, table: lance.LanceDataset) -> list[str]:
        """The files of the version that is open, below the folder of the table."""
        paths = [_manifest(table.version)]
        for part in table.get_fragments():
            paths += [f"data/{file.path}" for file in part.metadata.files]
            if part.metadata.deletion_file is not None:
                paths.append(part.metadata.deletion_file.path(part.fragment_id))
        start = len(f"{self._root}/{name}.lance/")
        folders = [f"_indices/{index['uuid']}" for index in table.list_indices()]
        for folder in [*folders, *(["_refs"] if name.startswith(SET_PREFIXES) else [])]:
            paths += [path[start:] for path in sorted(self._list(f"{name}.lance/{folder}", recursive=True))]
        return paths

    def _records(self, name: str) -> list[_Record]:
        """The records of a table that are not damaged."""
        records = []
        for path in sorted(self._list(f"{name}.lance/{_FOLDER}", recursive=False)):
            try:
                with self._system.open_input_file(path) as file:
                    text = file.read()
            except OSError as fault:  # another process has just written a newer one
                if _is_absent(fault):
                    continue
                raise
            if path.endswith(f"-{xxhash.xxh3_64_hexdigest(text)}.json"):
                columns = json.loads(text)
                columns["files"] = {path: (size, digest) for path, (size, digest) in columns["files"].items()}
                records.append(_Record(**columns))
        return records

    def _sizes(self, name: str) -> dict[str, int]:
        start = len(f"{self._root}/{name}.lance/")
        return {path[start:]: size for path, size in self._list(f"{name}.lance", recursive=True).items()}

    def _list(self, folder: str, *, recursive: bool) -> dict[str, int]:
        """The files below a folder, without temporary ones, with their bytes; none if it does not exist."""
        selector = pa.fs.FileSelector(f"{self._root}/{folder}", recursive=recursive, allow_not_found=True)
        found = self._system.get_file_info(selector)
        return {each.path: each.size for each in found if each.is_file and not each.base_name.startswith(".tmp")}

    def _digest(self, name: str, path: str) -> tuple[int, str]:
        """Bytes and digest of a file; -1 bytes if another process has just removed it."""
        size, state, chunk = 0, xxhash.xxh3_128(), memoryview(bytearray(_CHUNK))
        try:
            with self._system.open_input_stream(f"{self._root}/{name}.lance/{path}") as file:
                while n := file.readinto(chunk):
                    state.update(chunk[:n])
                    size += n
        except OSError as fault:
            if _is_absent(fault):
                return -1, ""
            raise
        return size, state.hexdigest()

    def _write(self, path: str, contents: bytes) -> None:
        """Writes a file so that it is there whole or not at all; in object storage every file is."""
        whole = f"{self._root}/{path}"
        if not isinstance(self._system, pa.fs.LocalFileSystem):
            with self._system.open_output_stream(whole) as file:
                file.write(contents)
            return
        target = Path(whole)
        target.parent.mkdir(exist_ok=True)
        temporary = target.with_name(f".tmp-{os.getpid()}-{id(contents)}-{target.name}")
        try:
            temporary.write_bytes(contents)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)


def _is_absent(fault: OSError) -> bool:
    """Whether a file is not there; object storage says so when it is opened, or only when it is read.

    Examples:
        >>> [_is_absent(OSError(f"AWS Error {code} during GetObject")) for code in ("NO_SUCH_KEY", "ACCESS_DENIED")]
        [True, False]
    """
    said = str(fault)
    return isinstance(fault, FileNotFoundError) or any(code in said for code in ("RESOURCE_NOT_FOUND", "NO_SUCH_KEY"))


def _manifest(version: int) -> str:
    return f"_versions/{NEWEST - version}.manifest"


def _version(path: str) -> int:
    """The version in the name of a record."""
    return int(Path(path).name.split("-", 1)[0])
