"""The files of the tables of a database, in a folder or in object storage: listed, read, digested, written whole."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pyarrow.fs
import xxhash

RECORDS = "digests"  # a folder beside those of the tables, with a folder for each: it outlives a removed table
NEWEST = 2**64 - 1  # the manifest of a version has this less the version as its name, so that the newest comes first
_CHUNK = 1 << 20
_READ_AGAIN = (0.1, 0.5, 2.0)  # seconds
_LISTINGS = 20  # of one folder, while other processes make and remove folders in it


class TableFiles:
    """The files of every table by the name of the table and their path below its folder.

    A path below ``digests/`` is that of a record of the table, see ``store.tables.digests``.

    Attributes:
        root: The folder that holds the tables' folders, or bucket and prefix.
        is_local: Whether it is a folder of this machine.
    """

    def __init__(self, uri: str, endpoint: str = "") -> None:
        """The tables below a URI; ``endpoint`` is the address of a server that speaks S3, if it is not Amazon's."""
        self._system: pyarrow.fs.FileSystem = pyarrow.fs.LocalFileSystem()
        self.root = uri
        self.is_local = "://" not in uri
        if not self.is_local:
            server = urlsplit(endpoint)  # without a user, whose name would be taken for the host
            where = {"scheme": server.scheme, "endpoint_override": server.netloc.rpartition("@")[2]}
            self._system, self.root = pyarrow.fs.FileSystem.from_uri(f"{uri}?{urlencode(where)}" if endpoint else uri)

    def sizes(self, name: str, folder: str = "") -> dict[str, int]:
        """The bytes of the files of a table, or of one of its folders; without temporary ones, by path.

        A folder that another process makes or removes while it is listed has everything listed again.
        """
        below = self.whole(name, folder)
        files = [found for found in self._listed(below) if found.is_file and not found.base_name.startswith(".tmp")]
        sizes = {f"{folder}/{found.path[len(below) + 1 :]}".lstrip("/"): found.size for found in files}
        return dict(sorted(sizes.items()))

    def recorded(self) -> set[str]:
        """The names of the tables that there should be: those with a record of a version."""
        paths = (Path(path) for path in self.sizes("", RECORDS))
        return {path.parent.name for path in paths if path.suffix == ".json" and not path.name.startswith("0-")}

    def manifests(self, name: str) -> list[tuple[int, str]]:
        """The versions of a table and the paths of their manifests, newest first."""
        paths = [path for path in self.sizes(name, "_versions") if path.endswith("fest")]
        return [(NEWEST - int(Path(path).stem), path) for path in paths]

    def read(self, name: str, path: str) -> bytes | None:
        """The contents of a file; None if another process has just removed it."""
        for pause in (*_READ_AGAIN, None):
            try:
                with self._system.open_input_file(self.whole(name, path)) as file:
                    contents: bytes = file.read()
                break
            except OSError as fault:
                if _is_absent(fault):
                    return None
                if self.is_local or pause is None:
                    raise
                time.sleep(pause)  # an answer of object storage broke off, as it does where the file is just removed
        return contents

    def digest(self, name: str, path: str) -> tuple[int, str]:
        """Bytes and XXH3-128 of a file; -1 bytes if another process has just removed it."""
        size, state, chunk = 0, xxhash.xxh3_128(), memoryview(bytearray(_CHUNK))
        try:
            with self._system.open_input_stream(self.whole(name, path)) as file:
                while n := file.readinto(chunk):
                    state.update(chunk[:n])
                    size += n
        except OSError as fault:
            if _is_absent(fault):
                return -1, ""
            raise
        return size, state.hexdigest()

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
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)

    def remove(self, name: str, path: str) -> None:
        """Removes one file."""
        self._system.delete_file(self.whole(name, path))

    def whole(self, name: str, path: str) -> str:
        """The path or the address of a file."""
        folder, _, rest = path.partition("/")
        parts = (RECORDS, name, rest) if folder == RECORDS else (f"{name}.lance", path)
        return "/".join((self.root, *filter(None, parts)))

    def _listed(self, folder: str) -> list[pyarrow.fs.FileInfo]:
        """Everything below a folder; nothing if it does not exist."""
        selector = pyarrow.fs.FileSelector(folder, recursive=True, allow_not_found=True)
        for _ in range(_LISTINGS - 1):
            with suppress(FileNotFoundError):  # only of a folder that was made or removed in this moment
                return self._system.get_file_info(selector)
        return self._system.get_file_info(selector)


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
