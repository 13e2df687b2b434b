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
import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import xxhash

from store.errors import WorkError
from store.keys import SET_PREFIXES
from store.tables.table_files import TableFiles, manifest

if TYPE_CHECKING:
    import lance
    from lance.fragment import FragmentMetadata

log = logging.getLogger(__name__)

COPIED = frozenset(("formats", "encoders", "corpora", "sets", "runs", "watched", "batches", "canaries", "metrics"))
"""Tables whose data files are kept in the record too, where they are small: registers, and history."""
_COPIED_BYTES = 64 << 10
_FOLDER = "_digests"
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
    """The records of all tables of a database.

    Attributes:
        files: The files of its tables.
    """

    def __init__(self, uri: str, endpoint: str = "") -> None:
        """The records below a URI; ``endpoint`` is the address of a server that speaks S3, if it is not Amazon's."""
        self.files = TableFiles(uri, endpoint)
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
            listed = "; ".join(f"{self.files.root}/{name}.lance/{path} {problem}" for path, problem, _ in faults[:3])
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
            sizes = self.files.sizes(name)
            manifests = sorted(path for path in sizes if path.endswith(".manifest"))
            faults: dict[str, str] = {}
            for record in records:
                # without its manifest and with a newer one, a version was removed by another program
                if manifest(record.version) in sizes or not manifests or manifests[0] > manifest(record.version):
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

    def record(
        self, name: str, table: lance.LanceDataset, *, added: Sequence[FragmentMetadata] = (), anew: bool = False
    ) -> None:
        """Writes the record of the version that is open, unless it is there; ``anew`` digests every file again.

        ``added`` is what the commit of this version appended: if the version before is known, the other fragments need
        not be listed, which takes longer with every append. A failure is no failure of the commit, whose rows are
        stored: the next to open the table writes the record.
        """
        try:
            if anew:
                self.forget(name)
                for path in self.files.sizes(name, _FOLDER):
                    self.files.remove(name, path)
            self._record(name, table, self._known.get(name, _Record(version=0)), added)
        except (OSError, RuntimeError, ValueError) as fault:
            log.debug("version %s of table %r has no record of its files yet: %s", table.version, name, fault)

    def restore(self, name: str, faults: list[FileFault]) -> None:
        """Puts back the files of which a record has a copy."""
        copies = {path: copy for record in self._records(name) for path, copy in record.copies.items()}
        for path, _, copied in faults:
            if copied:
                self.files.write(name, path, zlib.decompress(b64decode(copies[path])))

    def forget(self, name: str) -> None:
        """Has the table compared again when it is opened next."""
        self._known.pop(name, None)

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
            elif self.files.digest(name, path) != written:
                yield path, "was changed on disk"

    def _record(self, name: str, table: lance.LanceDataset, before: _Record, added: Sequence[FragmentMetadata]) -> None:
        files, copies, known = {}, {}, {**before.files}
        known.pop(manifest(table.version), None)
        last = manifest(table.version - 1)
        if added and before.files.get(last) == self.files.digest(name, last):
            paths = [path for path in known if not path.startswith(("_versions/", "_refs/"))] + _data_files(added)
        else:
            paths = self._paths(name, table)
        for path in [manifest(table.version), *paths, *self._tags(name)]:
            files[path] = (not path.startswith("_refs/") and known.get(path)) or self.files.digest(name, path)
            if path in before.copies and known.get(path) == files[path]:
                copies[path] = before.copies[path]
            elif path.startswith(("_versions/", "_deletions/", "_refs/")) or (
                name in COPIED and path.startswith("data/") and files[path][0] <= _COPIED_BYTES
            ):
                contents = self.files.read(name, path)
                if contents is None:
                    raise FileNotFoundError(path)  # and the next to open the table writes the record
                copies[path] = b64encode(zlib.compress(contents, 1)).decode()
        record = _Record(version=table.version, files=files, copies=copies)
        text = json.dumps(vars(record), separators=(",", ":")).encode()
        # Older ones go, except those of versions with a tag, which only sets have.
        tags = table.tags.list().values() if name.startswith(SET_PREFIXES) else ()
        kept = {entry["version"] for entry in tags}
        written = f"{_FOLDER}/{table.version}-{xxhash.xxh3_64_hexdigest(text)}.json"
        stored = self.files.sizes(name, _FOLDER)
        if all(_version(path) <= table.version for path in stored):
            self.files.write(name, written, text)
            for path in stored:
                if path != written and _version(path) not in kept - {table.version}:
                    self.files.remove(name, path)
        self._known[name] = record

    def _paths(self, name: str, table: lance.LanceDataset) -> list[str]:
        """The files of rows and indexes of the version that is open, below the folder of the table."""
        fragments = [part.metadata for part in table.get_fragments()]
        paths = _data_files(fragments)
        paths += [part.deletion_file.path(part.id) for part in fragments if part.deletion_file is not None]
        for index in table.list_indices():
            paths += self.files.sizes(name, f"_indices/{index['uuid']}")
        return paths

    def _tags(self, name: str) -> list[str]:
        """The files of a table's tags, which only sets have."""
        return [*self.files.sizes(name, "_refs")] if name.startswith(SET_PREFIXES) else []

    def _records(self, name: str) -> list[_Record]:
        """The records of a table that are not damaged."""
        records = []
        for path in self.files.sizes(name, _FOLDER):
            text = self.files.read(name, path)  # None if another process has just written a newer one
            if text is not None and path.endswith(f"-{xxhash.xxh3_64_hexdigest(text)}.json"):
                columns = json.loads(text)
                columns["files"] = {path: (size, digest) for path, (size, digest) in columns["files"].items()}
                records.append(_Record(**columns))
        return records


def _data_files(fragments: Iterable[FragmentMetadata]) -> list[str]:
    return [f"data/{file.path}" for part in fragments for file in part.files]


def _version(path: str) -> int:
    """The version in the name of a record."""
    return int(Path(path).name.split("-", 1)[0])
