"""One encode per accelerator of a host, with or without a Prefect server."""

from __future__ import annotations

import logging
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

logger = logging.getLogger(__name__)


@contextmanager
def held(identity: str) -> Iterator[None]:
    """Hold an accelerator for the block; waits while another process of this host holds it.

    The operating system gives the lock back when a process dies, however it dies. The CPU is shared and not locked.

    Args:
        identity: As of ``tasks.encoders.device.device_identity``.

    Examples:
        >>> with held("cpu"), held("cpu"):
        ...     pass
    """
    if identity == "cpu":
        yield
        return
    lock = FileLock(lock_file(identity), mode=0o666, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.warning("%s is encoding for another process; waiting until it is free (%s)", identity, lock.lock_file)
        begun = time.monotonic()
        lock.acquire()
        logger.info("%s is free after %.0f s", identity, time.monotonic() - begun)
    try:
        yield
    finally:
        lock.release()


def lock_file(identity: str) -> Path:
    """Where the lock of a device is: the same for every user and workspace of a host."""
    return Path(tempfile.gettempdir()) / f"capim-{re.sub('[^A-Za-z0-9-]', '-', identity)}.lock"
