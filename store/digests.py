"""Digests of the files of every table: written after each commit, compared before Lance opens a table.

Lance has no checksums: it returns a bit that was flipped on disk as a vector or a figure, takes a table whose newest
version was deleted for the version before, and panics on some damaged manifests. In a folder of the store, ``digests``,
stands a record of the newest version of every table (and of a sealed one): size and XXH3-128 of every file. Files of a
table never change, so that a commit digests only what is new. Small files that nothing else could restore are kept in
the record as well.

These records are the inventory of the store, and its root names the newest of each. A table without a
record, a record without its table, both gone or replaced by others, and a record that was changed, which the digest in
its name tells, are damage; only `capim store repair --accept` writes such a record anew. A process that is killed
between a commit and its record leaves a version that is newer than the record: whoever opens the table next writes it.
So that this holds for the first version too, an empty record, of version 0, is written before a table is made, and
before one is dropped.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pyarrow.fs
import xxhash

from capim.store.errors import WorkError
from capim.store.files import file_system, sync
from capim.store.types import SET_PREFIXES

if TYPE_CHECKING:
    import lance
    from lance.fragment import FragmentMetadata


# --- The files of the tables of a database, in a folder or in object storage: listed, read, digested, written whole.


T = TypeVar("T")
NEWEST = 2**64 - 1  # the manifest of a version has this less the version as its name, so that the newest comes first
_CHUNK = 1 << 20
_READ_AGAIN = (0.1, 0.5, 2.0)  # seconds
_LISTINGS = 20  # of one folder, while other processes make and remove folders in it


class TableFiles:
    """The files of every table by the name of the table and their path below its folder.

    A path below ``digests/`` is that of a record of the table, see ``store.digests``.

    Attributes:
        root: The folder that holds the tables' folders, or bucket and prefix.
        is_local: Whether it is a folder of this machine.
    """

    def __init__(self, uri: str, endpoint: str = "") -> None:
        """The tables below a URI; ``endpoint`` is the address of a server that speaks S3, if it is not Amazon's."""
        self.is_local = "://" not in uri
        self._system, self.root = file_system(uri, endpoint)

    def sizes(self, name: str, folder: str = "") -> dict[str, int]:
        """The bytes of the files of a table, or of one of its folders; without temporary ones, by path.

        A folder that another process makes or removes while it is listed has everything listed again.
        """
        below = self.whole(name, folder)
        selector = pyarrow.fs.FileSelector(below, recursive=True, allow_not_found=True)
        for attempt in count(1):
            try:
                found = self._system.get_file_info(selector)
                break
            except FileNotFoundError:  # only of a folder that was made or removed in this moment
                if attempt == _LISTINGS:
                    raise
        files = [each for each in found if each.is_file and not each.base_name.startswith(".tmp")]
        sizes = {f"{folder}/{each.path[len(below) + 1 :]}".lstrip("/"): each.size for each in files}
        return dict(sorted(sizes.items()))

    def names(self) -> set[str]:
        """The names of the tables that there are, and of those that there should be: with a record of a version."""
        paths = (Path(path) for path in self.sizes("", RECORDS))
        recorded = {path.parent.name for path in paths if path.suffix == ".json" and not path.name.startswith("0-")}
        recorded.discard(ROOT)
        folders = self._system.get_file_info(pyarrow.fs.FileSelector(self.root, allow_not_found=True))
        return recorded | {
            each.base_name.removesuffix(".lance") for each in folders if each.extension == "lance" and not each.is_file
        }

    def manifests(self, name: str) -> list[tuple[int, str]]:
        """The versions of a table and the paths of their manifests, newest first."""
        paths = [path for path in self.sizes(name, "_versions") if path.endswith("fest")]
        return [(NEWEST - int(Path(path).stem), path) for path in paths]

    def read(self, name: str, path: str) -> bytes | None:
        """The contents of a file; None if another process has just removed it."""

        def contents() -> bytes:
            with self._system.open_input_file(self.whole(name, path)) as file:
                return file.read()

        return self._answer(contents)

    def digest(self, name: str, path: str) -> tuple[int, str]:
        """Bytes and XXH3-128 of a file; -1 bytes if another process has just removed it."""

        def digested() -> tuple[int, str]:
            size, state, chunk = 0, xxhash.xxh3_128(), memoryview(bytearray(_CHUNK))
            with self._system.open_input_stream(self.whole(name, path)) as file:
                while n := file.readinto(chunk):
                    state.update(chunk[:n])
                    size += n
            return size, state.hexdigest()

        return self._answer(digested) or (-1, "")

    def _answer(self, read: Callable[[], T]) -> T | None:
        """What is read; None without the file. An answer of object storage that breaks off is asked for again."""
        for pause in (*_READ_AGAIN, None):
            try:
                return read()
            except OSError as fault:
                if _is_absent(fault):
                    return None
                if self.is_local or pause is None:
                    raise
                time.sleep(pause)
        return None

    def write(self, name: str, path: str, contents: bytes) -> None:
        """Writes a file so that it is there whole or not at all; in object storage every file is."""
        whole = self.whole(name, path)
        if not self.is_local:
            with self._system.open_output_stream(whole) as file:
                file.write(contents)
            return
        target = Path(whole)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".tmp-{os.getpid()}-{id(contents)}-{target.name}")
        try:
            temporary.write_bytes(contents)
            if target.is_dir():  # not a file that any writer made
                shutil.rmtree(target)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)

    def remove(self, name: str, path: str) -> None:
        """Removes one file, unless another process has just removed it."""
        try:
            self._system.delete_file(self.whole(name, path))
        except OSError as fault:
            if not _is_absent(fault):
                raise

    def remove_all(self, name: str) -> None:
        """Removes the folder of a table; it may be missing."""
        with suppress(FileNotFoundError):
            self._system.delete_dir(self.whole(name, "").rstrip("/"))

    def whole(self, name: str, path: str) -> str:
        """The path or the address of a file."""
        folder, _, rest = path.partition("/")
        parts = (RECORDS, name, rest) if folder == RECORDS else (f"{name}.lance", path)
        return "/".join((self.root, *filter(None, parts)))


def manifest(version: int) -> str:
    """The path of the manifest of a version below the folder of its table."""
    return f"_versions/{NEWEST - version}.manifest"


def _is_absent(fault: OSError) -> bool:
    """Whether a file is not there; object storage says so when it is opened, or only when it is read.

    Examples:
        >>> [_is_absent(OSError(f"AWS Error {code} during GetObject")) for code in ("NO_SUCH_KEY", "ACCESS_DENIED")]
        [True, False]
    """
    said = str(fault)
    return isinstance(fault, FileNotFoundError) or any(code in said for code in ("RESOURCE_NOT_FOUND", "NO_SUCH_KEY"))


log = logging.getLogger(__name__)

COPIED = frozenset(
    ("formats", "encoders", "corpora", "sets", "runs", "watched", "batches", "probes", "weights", "metrics")
)
"""Tables whose data files are kept in the record too, where they are small: registers, and history."""
_COPIED_BYTES = 64 << 10
_PAUSES = (0.0, 0.2, 1.0)  # seconds, before missing files are looked for again


class FileFault(NamedTuple):
    """A file of a table that is not what was written.

    Attributes:
        path: Below the folder of the table; of its record, ``digests/…``.
        problem: In words.
        copied: Whether a record has a copy of its contents.
    """

    path: str
    problem: str
    copied: bool

    @property
    def is_of_record(self) -> bool:
        """Whether it is the record that is missing or was changed, so that nothing says what was written."""
        return self.path.startswith(RECORDS)


# --- The root of a store: the newest version of every table, in one place beside the records of their files.
#
# A record says what the files of a table are; the root says which record there has to be. So a table that is gone
# together with its record, an older copy of both, and the table of another name are damage. An entry is changed before
# a table is made, after each commit, and before a table is dropped: a process that is killed in between leaves a table
# that is newer than its entry, which is no damage.
#
# Several processes change it at once, in folders and in object storage, without a lock: each writes all that it has
# read with its own change as a new file, and then removes the files that it has read. Where two did so at the same time
# both files stay, and whoever reads them takes the later entry of each table.


RECORDS = "digests"  # a folder beside those of the tables, with a folder for each: it outlives a removed table
ROOT = "root"  # among these folders
_REMEMBERED = timedelta(days=3)  # that a table was dropped: no process is that late with what it read before


class Entry(NamedTuple):
    """What the root says of a table; of two entries the greater is the later.

    Attributes:
        change: How many times the entry was changed.
        version: The newest version of the table; 0 while it is made, and after it was dropped.
        digest: Of the manifest of this version; of version 0 the day.
    """

    change: int
    version: int
    digest: str


ABSENT = Entry(0, 0, "")


class Root:
    """The root of one database, read again only when something seems to be behind it."""

    def __init__(self, files: TableFiles) -> None:
        self._files = files
        self._heads: dict[str, dict[str, Entry] | None] = {}

    def entries(self, *, fresh: bool = False) -> dict[str, Entry]:
        """Table -> its entry; ``fresh``: as of now, not as this object last read it."""
        heads = self._read() if fresh or not self._heads else self._heads
        return _merged(heads)

    def enter(
        self,
        name: str,
        version: int,
        digest: str = "",
        *,
        anew: bool = False,
        replaces: bool = False,
    ) -> None:
        """Changes the entry of a table, unless it names a later version; version 0 is of one that is about to be made.

        Without a root only the first table gets an entry, or any with ``anew``: else nobody could see that it is gone.
        ``replaces``: any entry, as a table is dropped, or repaired, which may make other files of the same version.
        """
        heads = self._read()
        if not heads and not anew and self._files.sizes("", RECORDS):
            return
        entries, today = _merged(heads), datetime.now(UTC).date()
        entry = entries.get(name, ABSENT)
        is_known = entry.version > version or (entry.version > 0 and entry[1:] == (version, digest))
        if is_known and not (anew or replaces):
            return
        entries[name] = Entry(entry.change + 1, version, digest if version else str(today))
        kept = {name: each for name, each in sorted(entries.items()) if each.version or _is_recent(each, today)}
        text = json.dumps(kept, separators=(",", ":")).encode()
        path = f"{RECORDS}/{xxhash.xxh3_64_hexdigest(text)}.json"
        self._files.write(ROOT, path, text)
        for other, head in heads.items():
            if other != path and head is not None:
                with suppress(OSError):  # one that stays is read beside the new one
                    self._files.remove(ROOT, other)
        self._heads = {path: kept}

    def problems(self) -> list[str]:
        """What is wrong with the root itself, in words."""
        heads = self._read()
        damaged = [
            f"{self._files.whole(ROOT, path)} was changed on disk" for path, head in heads.items() if head is None
        ]
        missing = not heads and self._files.names()
        return [f"{self._files.whole(ROOT, RECORDS)} is missing"] if missing else damaged

    def remove_damaged(self) -> None:
        """Removes the files that were changed on disk."""
        for path, head in self._read().items():
            if head is None:
                self._files.remove(ROOT, path)

    def _read(self) -> dict[str, dict[str, Entry] | None]:
        """Path -> the entries in this file; None if it was changed on disk."""
        heads: dict[str, dict[str, Entry] | None] = {}
        for path in self._files.sizes(ROOT, RECORDS):
            if self._heads.get(path) is not None:
                heads[path] = self._heads[path]
                continue
            text = self._files.read(ROOT, path)
            if text is None:  # another process has just written a newer one
                return self._read()
            whole = path.endswith(f"/{xxhash.xxh3_64_hexdigest(text)}.json")
            heads[path] = {name: Entry(*entry) for name, entry in json.loads(text).items()} if whole else None
        self._heads = heads
        return heads


def _merged(heads: Mapping[str, Mapping[str, Entry] | None]) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for head in heads.values():
        for name, entry in (head or {}).items():
            entries[name] = max(entries.get(name, entry), entry)
    return entries


def _is_recent(dropped: Entry, today: date) -> bool:
    return today - date.fromisoformat(dropped.digest) < _REMEMBERED


# --- The record of every table, and what is damage.


@dataclass(frozen=True, kw_only=True)
class _Record:
    """The files of one version of a table: bytes and digest by path, and the compressed contents of some."""

    version: int
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)


class Digests:
    """The records of all tables of a database.

    Attributes:
        files: The files of its tables.
        root: Which version of each table is the newest.
    """

    def __init__(self, uri: str, endpoint: str = "") -> None:
        """The records below a URI; ``endpoint`` is the address of a server that speaks S3, if it is not Amazon's."""
        self.files = TableFiles(uri, endpoint)
        self.root = Root(self.files)
        self._known: dict[str, _Record] = {}
        self._lasting: dict[str, set[str]] = {}  # files that were missing after all pauses: no use to wait again

    def version(self, name: str) -> int | None:
        """The newest version of a table of which the record was compared, by this object; None if none was."""
        return self._known[name].version if name in self._known else None

    def names(self) -> set[str]:
        """The names of all tables that there are, or that there should be by a record or by the root."""
        entries = self.root.entries(fresh=True)
        return self.files.names() | {name for name, entry in entries.items() if entry.version}

    def compare(self, name: str, *, quick: bool = True) -> None:
        """Raises :class:`WorkError` if a file of the table was changed or is missing.

        ``quick``: data files of embedding sets, whose rows have checksums of their own, and all in object storage, from
        where they would be downloaded, are compared by their size; `capim store verify` reads them too.
        """
        self.refuse(name, self.faults(name, quick=quick))

    def refuse(self, name: str, faults: list[FileFault]) -> None:
        """Raises :class:`WorkError` if there are faults, with the first files."""
        listed = "; ".join(f"{self.files.whole(name, path)} {problem}" for path, problem, _ in faults[:3])
        if any(fault.is_of_record for fault in faults):
            raise WorkError(
                f"table {name!r}: {listed}; without this record, nothing says whether the table holds what was written",
                remedy="Restore it from a backup, or if you know that the table is right, run "
                f"`capim store repair {name} --accept`",
            )
        if faults:
            more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
            if not self.files.sizes(name):
                listed, more = f"{self.files.whole(name, '')} is missing", ""
            raise WorkError(f"table {name!r}: {listed}{more}", remedy=repair_remedy(name))

    def faults(self, name: str, *, quick: bool = False) -> list[FileFault]:
        """What is wrong with the files of a table, compared with its records, and with the records themselves.

        ``quick`` is for :meth:`compare`: it also trusts the files that this object has read or written before.
        """
        for pause in (*_PAUSES, None):
            for fresh in (False, True) if quick else (True,):
                # before the records: a record is written first, so that none is behind what the root said then
                entry = self.root.entries(fresh=fresh).get(name, ABSENT)
                records, damaged = self._records(name)
                faults = self._faults_of(name, records, damaged, quick=quick) or _behind(entry, records)
                if not faults:
                    break
            missing = {path for path, problem in faults.items() if problem == "is missing"}
            same = not faults or self._records(name) == (records, damaged)
            # by whoever compacts a table right now, the files of an old version are removed before its manifest
            if pause is None or (same and missing <= self._lasting.get(name, set())):
                break
            time.sleep(pause)
        self._lasting[name] = missing
        if not faults:
            self._known[name] = max(records, key=lambda record: record.version, default=_Record(version=0))
        copied = {path for record in records for path in record.copies}
        return [FileFault(path, problem, path in copied) for path, problem in sorted(faults.items())]

    def _faults_of(
        self, name: str, records: Sequence[_Record], damaged: Sequence[str], *, quick: bool
    ) -> dict[str, str]:
        """What is wrong with the files of a table by its records: path -> problem."""
        sizes = self.files.sizes(name)
        manifests = sorted(path for path in sizes if path.endswith(".manifest"))
        faults = dict.fromkeys(damaged, "was changed on disk")
        if manifests and not records and not damaged:
            faults[RECORDS] = "is missing"
        for record in records:
            # without its manifest and with a newer one, a version was removed by another program
            if manifest(record.version) in sizes or not manifests or manifests[0] > manifest(record.version):
                faults |= self._differences(name, record, sizes, quick=quick)
        return faults

    def record(
        self, name: str, table: lance.LanceDataset, *, added: Sequence[FragmentMetadata] = (), anew: bool = False
    ) -> None:
        """Writes the record of the version that is open, in the place of the one before.

        ``anew`` digests every file again, in the place of any record or of none; without it, a table whose record is
        missing stays without one.

        ``added`` is what the commit of this version appended: if the version before is known, the other fragments need
        not be listed, which takes longer with every append. A failure is no failure of the commit, whose rows are
        stored: the next to open the table writes the record.
        """
        try:
            self._record(name, table, added, anew=anew)
        except (OSError, RuntimeError, ValueError) as fault:
            log.debug("version %s of table %r has no record of its files yet: %s", table.version, name, fault)

    def begin(self, name: str) -> None:
        """Writes the empty record of a table that is not there yet; to be called before it is made."""
        if not self.files.manifests(name):
            self.root.enter(name, 0)
            self._write(name, _Record(version=0))

    def end(self, name: str) -> None:
        """Leaves an empty record; to be called before the table is dropped."""
        self.forget(name)
        self.root.enter(name, 0, replaces=True)
        stored = self.files.sizes(name, RECORDS)
        written = self._write(name, _Record(version=0))
        for path in stored.keys() - {written}:
            self.files.remove(name, path)

    def sync(self, name: str) -> None:
        """Writes a table and its record from memory to the disk (fsync); object storage does it itself."""
        if self.files.is_local:
            for whose, folder in ((name, ""), (name, RECORDS), (ROOT, RECORDS)):
                sync(Path(self.files.whole(whose, folder)))

    def restore(self, name: str, faults: list[FileFault]) -> None:
        """Puts back the files of which a record has a copy."""
        copies = {path: copy for record in self._records(name)[0] for path, copy in record.copies.items()}
        for path, _, copied in faults:
            if copied:
                self.files.write(name, path, zlib.decompress(b64decode(copies[path])))

    def accept_root(self) -> None:
        """Writes the root anew from the records of all tables."""
        self.root.remove_damaged()
        for name in self.files.names():
            newest = max(self._records(name)[0], key=lambda record: record.version, default=_Record(version=0))
            if newest.version:
                self.root.enter(name, newest.version, newest.files[manifest(newest.version)][1], anew=True)

    def forget(self, name: str) -> None:
        """Has the table compared again when it is opened next."""
        self._known.pop(name, None)
        self._lasting.pop(name, None)

    def _differences(
        self, name: str, record: _Record, sizes: dict[str, int], *, quick: bool
    ) -> Iterator[tuple[str, str]]:
        trusted = self._known[name].files if quick and name in self._known else {}
        by_size = quick and (name.startswith(SET_PREFIXES) or not self.files.is_local)
        large = ("data/", "_indices/") if by_size else "\0"
        for path, written in record.files.items():
            if path not in sizes:
                if not (quick and path.startswith("_refs/")):  # a tag is made again when the set is sealed again
                    yield path, "is missing"
            elif sizes[path] != written[0]:
                yield path, f"has {sizes[path]} bytes, {written[0]} were written"
            elif path.startswith(large) or trusted.get(path) == written:
                continue
            elif (found := self.files.digest(name, path)) != written:  # removed meanwhile: -1 bytes
                yield path, "is missing" if found[0] < 0 else "was changed on disk"

    def _record(self, name: str, table: lance.LanceDataset, added: Sequence[FragmentMetadata], *, anew: bool) -> None:
        stored = self.files.sizes(name, RECORDS)
        before = _Record(version=0) if anew else self._known.get(name, _Record(version=0))
        if not anew and before.version != max(map(_version, stored), default=None):
            records, damaged = self._records(name)
            if damaged or not records:
                return  # whoever opens the table next names this
            before = max(records, key=lambda record: record.version)  # what other processes wrote, as they wrote it
        files, copies, known = {}, {}, {**before.files}
        known.pop(manifest(table.version), None)
        last = manifest(table.version - 1)
        if added and before.files.get(last) == self.files.digest(name, last):
            paths = [path for path in known if not path.startswith(("_versions/", "_refs/"))] + _data_files(added)
        else:
            paths = self._paths(name, table)
        tags = self.files.sizes(name, "_refs") if name.startswith(SET_PREFIXES) else ()  # which only sets have
        for path in [manifest(table.version), *paths, *tags]:
            if path in known and not path.startswith("_refs/"):
                files[path], copy = known[path], before.copies.get(path)
            else:
                files[path], copy = self._digested(name, path)
            if copy is not None:
                copies[path] = copy
        record = _Record(version=table.version, files=files, copies=copies)
        # Older ones go, except those of versions with a tag.
        kept = {entry["version"] for entry in table.tags.list().values()} if tags else set[int]()
        if anew or all(_version(path) <= table.version for path in stored):
            written = self._write(name, record)
            # before the older ones are removed: whatever fails, who reads by the root sees this version
            self.root.enter(name, table.version, files[manifest(table.version)][1], replaces=anew)
            for path in stored:
                if path != written and (anew or _version(path) not in kept - {table.version}):
                    self.files.remove(name, path)
        self._known[name] = record

    def _digested(self, name: str, path: str) -> tuple[tuple[int, str], str | None]:
        """Bytes and digest of a file, and its compressed contents if the record keeps them."""
        of_rows = path.startswith("data/")
        if not path.startswith(("_versions/", "_deletions/", "_refs/")) and not (of_rows and name in COPIED):
            return self.files.digest(name, path), None
        contents = self.files.read(name, path)
        if contents is None:
            raise FileNotFoundError(path)  # and the next to open the table writes the record
        is_copied = not of_rows or len(contents) <= _COPIED_BYTES
        copy = b64encode(zlib.compress(contents, 1)).decode() if is_copied else None
        return (len(contents), xxhash.xxh3_128_hexdigest(contents)), copy

    def _write(self, name: str, record: _Record) -> str:
        """Writes a record; gives its path."""
        text = json.dumps(vars(record), separators=(",", ":")).encode()
        path = f"{RECORDS}/{record.version}-{_digest(name, text)}.json"
        self.files.write(name, path, text)
        return path

    def _paths(self, name: str, table: lance.LanceDataset) -> list[str]:
        """The files of rows and indexes of the version that is open, below the folder of the table."""
        fragments = [part.metadata for part in table.get_fragments()]
        paths = _data_files(fragments)
        paths += [part.deletion_file.path(part.id) for part in fragments if part.deletion_file is not None]
        for index in table.list_indices():
            paths += self.files.sizes(name, f"_indices/{index['uuid']}")
        return paths

    def _records(self, name: str) -> tuple[list[_Record], list[str]]:
        """The records of a table, and the paths of those that are damaged."""
        records, damaged = [], []
        paths = list(self.files.sizes(name, RECORDS))
        for path in paths:
            text = self.files.read(name, path)
            if text is None:  # another process has just written a newer one
                return self._records(name)
            if path.endswith(f"-{_digest(name, text)}.json"):
                columns = json.loads(text)
                columns["files"] = {path: (size, digest) for path, (size, digest) in columns["files"].items()}
                records.append(_Record(**columns))
            else:
                damaged.append(path)
        return records, damaged


def _behind(entry: Entry, records: Sequence[_Record]) -> dict[str, str]:
    """What the root said of a table and its records, which were read later, do not: path -> problem."""
    newest = max(records, key=lambda record: record.version, default=_Record(version=0))
    _, version, digest = entry
    _, found = newest.files.get(manifest(version), (0, ""))
    if not version or newest.version > version or (newest.version == version and found == digest):
        return {}
    if not records:
        return {"_versions": "is missing"}
    which = f"version {newest.version}" if newest.version < version else f"another version {version}"
    return {RECORDS: f"is of {which}, the newest is version {version}: it is an older copy, or of another table"}


def repair_remedy(name: str) -> str:
    """What to do about a table with damaged files."""
    return f"Run `capim store repair {name}`, then the same command that made it"


def _data_files(fragments: Iterable[FragmentMetadata]) -> list[str]:
    return [f"data/{file.path}" for part in fragments for file in part.files]


def _digest(name: str, text: bytes) -> str:
    """The digest in the name of a record: that of another table is none of this one."""
    return xxhash.xxh3_64_hexdigest(name.encode() + text)


def _version(path: str) -> int:
    """The version in the name of a record; 0 of another file."""
    version = Path(path).name.partition("-")[0]
    return int(version) if version.isdecimal() else 0
