"""Writing a file so that a reader sees the old contents or the new ones, never a part."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from capim.store.errors import RequestError, WorkError

NOT_ITS_FORMAT = (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError)
"""What libraries and our own code raise for a file that holds something else than its suffix says."""


def existing_file(path: Path, what: str = "") -> Path:
    """The path of a file; raises :class:`RequestError` for a folder, a pipe or a device, and where there is nothing."""
    if path.is_file():
        return path
    if path.exists():
        reason = f"is {'a folder' if path.is_dir() else 'a pipe or device'}, not a file"
    else:
        reason = "does not exist" if what else "no such file"
    raise RequestError(f"{what} {path} {reason}; check the path" if what else f"{path}: {reason}")


def sync(folder: Path | None) -> None:
    """Writes every file below a folder from memory to the disk (fsync), so that a power cut leaves it whole."""
    if folder is None:
        return
    for path in (*folder.rglob("*"), folder, folder.parent):
        with suppress(FileNotFoundError):  # another process has just replaced it
            opened = os.open(path, os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside ``path``: it takes the place of ``path`` when the block succeeds, else it is removed.

    Raises:
        RequestError: The folder of ``path`` does not exist.
        WorkError: The file cannot be written.
    """
    if not path.parent.is_dir():
        raise RequestError(f"{path}: folder {path.parent} does not exist")
    if path.is_dir():
        raise RequestError(f"{path}: a folder, not a file; give the name of a file in it")
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as fault:
        raise WorkError(f"writing {path} failed: {fault}") from fault
    finally:
        temporary.unlink(missing_ok=True)
