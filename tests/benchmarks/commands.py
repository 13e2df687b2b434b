"""Runs commands as separate processes and measures their time and their memory, children included."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.benchmarks.own_process import REPOSITORY

EVERY_SECONDS = 0.05


class Taken(NamedTuple):
    """Cost of a command: wall-clock seconds, CPU seconds, and peak memory, children included."""

    seconds: float
    processor: float
    peak_bytes: int

    @property
    def peak_gib(self) -> float:
        return self.peak_bytes / 2**30


def as_a_user() -> dict[str, str]:
    """The environment of this process, but that modules stay compiled from run to run, as they do for a user."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def watched(command: Sequence[str | Path]) -> Taken:
    """Runs a command to its end and returns its cost.

    Raises:
        RuntimeError: The command failed; the message holds the last lines of its standard error.
    """
    words, before = [str(word) for word in command], resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile("w+") as err:
        begun = time.perf_counter()
        process = psutil.Popen(words, stdout=subprocess.DEVNULL, stderr=err, cwd=REPOSITORY, env=as_a_user())
        highest = 0
        while process.poll() is None:
            highest = max(highest, _held(process))
            time.sleep(EVERY_SECONDS)
        seconds = time.perf_counter() - begun
        if process.returncode:
            err.seek(0)
            raise RuntimeError(f"{command} ended with {process.returncode}: {err.read()[-3000:]}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Taken(seconds, busy, highest)


def _held(process: psutil.Process) -> int:
    """Bytes of a process and its children; what they share is counted once."""
    try:
        family = [process, *process.children(recursive=True)]
        # reading PSS walks all pages: only where memory can be shared
        return sum(one.memory_full_info().pss if len(family) > 1 else one.memory_info().rss for one in family)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0


def capim(*words: str | Path) -> Taken:
    """Run a ``capim`` command, without its progress."""
    return watched([sys.executable, "-m", "capim", *words, "--quiet"])
