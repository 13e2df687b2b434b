"""Where image bytes come from. Every source pickles, so that workers can read on their own.

A key comes from a corpus' own files, which nobody vouches for: it can never name anything outside the source.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from store.types import ImageSource


@dataclass(frozen=True)
class Folder:
    """Files below one folder; a key is a path relative to it, with ``/`` on every system.

    Symbolic links are followed (hub caches are made of them); ``..`` and absolute keys are refused.
    """

    root: Path

    def path(self, key: str) -> Path:
        """The file of a key; raises ``PermissionError`` for a key that leaves the folder."""
        parts = key.replace("\\", "/").split("/")
        windows = PureWindowsPath(key)  # knows both separators, and drives
        if ".." in parts or "\0" in key or windows.drive or windows.root:
            raise PermissionError(f"{key!r} leaves the folder {self.root}")
        return self.root.joinpath(*parts)

    def read(self, key: str) -> bytes:
        """The bytes of one file; raises ``OSError`` where it cannot be read."""
        return self.path(key).read_bytes()


@dataclass(frozen=True)
class Folders:
    """Several folders that together hold the files; the first that has a key gives it."""

    roots: tuple[Path, ...]

    def read(self, key: str) -> bytes:
        """The bytes of one file; raises ``FileNotFoundError`` naming all folders where none has it."""
        for root in self.roots:
            path = Folder(root).path(key)
            if path.is_file():
                return path.read_bytes()
        raise FileNotFoundError(f"{key!r} is in none of {', '.join(map(str, self.roots))}")


@dataclass(frozen=True)
class Parts:
    """Several sources side by side; a key is ``part/key``."""

    sources: tuple[tuple[str, ImageSource], ...]

    def read(self, key: str) -> bytes:
        """The bytes of one image; raises ``OSError`` where the part is unknown or cannot read it."""
        part, _, rest = key.partition("/")
        for name, source in self.sources:
            if name == part:
                return source.read(rest)
        raise FileNotFoundError(f"{part!r} is none of the parts {', '.join(name for name, _ in self.sources)}")
