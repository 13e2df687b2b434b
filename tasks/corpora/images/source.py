"""Folders as sources of image bytes. Every source pickles, so that worker processes can read from it.

Keys come from the files of a corpus and are not trusted: no key can name anything outside its source.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PureWindowsPath


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
