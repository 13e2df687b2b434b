"""Writing a file so that a reader sees the old contents or the new ones, never a part."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from store.errors import RequestError, WorkError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside ``path``: it takes the place of ``path`` when the block succeeds, else it is removed.

    Raises:
        RequestError: The folder of ``path`` does not exist.
        WorkError: The file cannot be written.
    """
    if not path.parent.is_dir():
        raise RequestError(f"{path}: folder {path.parent} does not exist")
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as fault:
        raise WorkError(f"writing {path} failed: {fault}") from fault
    finally:
        temporary.unlink(missing_ok=True)
