"""Faults of the storage layer: told in words a user can act on, and tried again where another process was first."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from capim.store.errors import RequestError, WorkError

T = TypeVar("T")

LANCE_FAULTS = (OSError, RuntimeError, ValueError)
_SOURCE = re.compile(r",? ?(?:/home/|/rustc/|/root/\.cargo/|rust/)\S*\.rs")  # a position in the source code of Lance


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Turns a panic of Lance, to which damaged files lead, from a ``BaseException`` into a ``RuntimeError``."""
    try:
        yield
    except BaseException as panic:
        if type(panic).__name__ != "PanicException":  # every extension module in Rust has a class of its own
            raise
        raise RuntimeError(f"damaged file ({panic})") from panic


@contextmanager
def storage_faults(what: str) -> Iterator[None]:
    """Turns a fault of the storage layer into a :class:`WorkError` that names the operation, ``what``."""
    try:
        with panics_as_errors():
            yield
    except (RequestError, WorkError):
        raise
    except LANCE_FAULTS as fault:
        raise explained(f"{what} failed", fault) from fault


def explained(problem: str, fault: Exception) -> WorkError:
    """The fault of the storage layer in one line, with the next step where there is one."""
    line = " ".join(str(fault).split())
    line = _SOURCE.split(line)[0][:400]
    lower = line.lower()
    if "no space left" in lower:
        remedy = "Nothing of this write was kept; free space and run the same command again to continue"
    elif "permission denied" in lower or "read-only file system" in lower:
        remedy = "The folder is not writable: check its owner and mode, or give another workspace (--workspace)"
    elif re.search("operation not (permitted|supported)", lower):
        remedy = "This file system makes no hard links, by which tables are written: give a workspace on another one"
    elif re.search("nosuchbucket|bucket does not exist", lower):
        remedy = "There is no bucket of this name: check the address, or make the bucket"
    elif damaged := re.search("not found|no such file|invalid range|damaged file|file size is too small", lower):
        if damaged[0] != "damaged file":
            line += " (a file of the table is missing or truncated)"
        remedy = "Run `capim store verify`: it lists what is damaged, with the command that repairs it"
    else:
        remedy = ""
    return WorkError(f"{problem}: {line}", remedy=remedy)


def retrying(what: str, change: Callable[[], T]) -> T:
    """Runs a change, and repeats it after a pause when another process wrote to the table first.

    ``change`` opens the latest version itself, so that a repetition sees what the other process wrote.
    """
    attempt = 0
    while True:
        try:
            with storage_faults(what):
                return change()
        except WorkError as fault:
            attempt += 1
            if attempt >= attempts_at(fault.__cause__):
                raise
        time.sleep(min(2.0, 0.02 * 2**attempt) * (0.5 + random.random()))


def attempts_at(fault: BaseException | None) -> int:
    """How often a change is tried that fails with this fault."""
    message = str(fault).lower()
    if "conflict" in message or "concurrent" in message:
        return 12  # another process committed first
    if "not found" in message or "no such file" in message:
        return 5  # another process compacted the version that was being read, or a file is missing
    return 1
