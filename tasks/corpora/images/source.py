"""Folders as sources of image bytes. Every source pickles, so that worker processes can read from it.

Keys come from the files of a corpus and are not trusted: no key can name anything outside its source.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from time import sleep

from capim.store.files import replacing


@dataclass(frozen=True)
class Folder:
    """Files below one folder; a key is a path relative to it, with ``/`` on every system.

    Symbolic links are followed (hub caches are made of them); ``..`` and absolute keys are refused.
    """

    root: Path

    def path(self, key: str) -> Path:
        """The file of a key; raises ``PermissionError`` for a key that leaves the folder."""
        parts = key.replace("\\", "/").split("/")
        windows = PureWindowsPath(key)  # recognises both separators, and drives
        if ".." in parts or "\0" in key or windows.drive or windows.root:
            raise PermissionError(f"{key!r} leaves the folder {self.root}")
        return self.root.joinpath(*parts)

    def read(self, key: str) -> bytes:
        """The bytes of one file; raises ``OSError`` if it cannot be read."""
        return self.path(key).read_bytes()


@dataclass(frozen=True)
class Folders:
    """Several folders that together hold the files; a key is looked up in them in order."""

    roots: tuple[Path, ...]

    def read(self, key: str) -> bytes:
        """The bytes of one file; raises ``FileNotFoundError`` naming all folders if none has it."""
        for root in self.roots:
            path = Folder(root).path(key)
            if path.is_file():
                return path.read_bytes()
        raise FileNotFoundError(f"{key!r} is in none of {', '.join(map(str, self.roots))}")


# --- Images that a corpus names by address: downloaded when first read, and kept in a folder.


CACHE = Path("~/.cache/capim/images")
_ATTEMPTS = 4
_TIMEOUT_SECONDS = 30.0
_LARGEST = 256 * 1024 * 1024


@dataclass(frozen=True)
class Downloads:
    """Files below one address; a key is the rest of the address, and the file's name in the cache.

    Attributes:
        address: ``https://…`` or ``http://…``; fixed by the reader, never taken from a corpus.
        cache: Folder in which files are kept; a file appears in it only when complete.
    """

    address: str
    cache: Path

    def read(self, key: str) -> bytes:
        """The bytes of one file; raises ``OSError`` with the address if it cannot be downloaded."""
        path = Folder(self.cache.expanduser()).path(key)
        if path.is_file():
            return path.read_bytes()
        data = self._fetch(f"{self.address}/{key}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(data)
        return data

    def _fetch(self, url: str) -> bytes:
        if not url.startswith(("https://", "http://")):
            raise PermissionError(f"{url!r} is not a web address")
        for attempt in range(_ATTEMPTS):
            try:
                with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - scheme checked above
                    data: bytes = answer.read(_LARGEST + 1)
                if len(data) > _LARGEST:
                    raise OSError(f"{url}: more than {_LARGEST:,} bytes")
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    raise OSError(f"{url}: {error.code} {error.reason}") from error
                reason = f"{error.code} {error.reason}"
            except urllib.error.URLError as error:
                reason = str(error.reason)
            else:
                return data
            if attempt + 1 < _ATTEMPTS:
                sleep(0.5 * 2**attempt)
        raise OSError(f"{url}: {reason} ({_ATTEMPTS} attempts)")
