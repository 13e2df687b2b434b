"""``capim`` as processes that can be killed, forked from one that has imported the libraries.

A kill then hits the work and not the seconds of importing, and sixty faults take minutes. A process has its own
environment and writes its words into files.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NamedTuple

# What commands import on their way. Lance warns of forks; here none of its work has begun when a process is forked.
PRELOADED = [
    *("capim.flows.cli", "capim.flows.benchmark", "lance", "lancedb", "pandas", "duckdb", "vl_convert"),
    *("colpali_engine", "transformers.image_processing_utils"),
    *("capim.tasks.encoders.adapters.hf_dual", "capim.tasks.encoders.adapters.colvision"),
]
LONGEST_SECONDS = 400.0 * float(os.environ.get("CAPIM_TEST_PATIENCE") or 1)  # above 1 where the machine has other work
FIXED = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_WAIT_POLICY": "PASSIVE",
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "TRANSFORMERS_VERBOSITY": "error",
    "LANCE_LOG": "error",
    "PYTHONWARNINGS": "ignore",
}

_CONTEXT = multiprocessing.get_context("forkserver")


class Failed(AssertionError):
    """What was promised did not hold; the message says what was seen."""


class Watch:
    """Counts files as they come into being; moments told by it do not depend on how fast a machine is."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = str(folder)
        self.before = files(self.folder)
        self.seen: set[str] = set()

    def reached(self, n: int) -> bool:
        """Whether so many files have come since the beginning, those that went again among them."""
        self.seen |= files(self.folder) - self.before
        return len(self.seen) >= n


def files(folder: str | Path) -> set[str]:
    """Paths of all files below a folder, while others write there."""
    return {f"{where}/{name}" for where, _, names in os.walk(folder) for name in names}


class Done(NamedTuple):
    """How a command ended."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """The last line of its complaint."""
        return (self.err.strip().splitlines() or ["silent"])[-1][:110]

    def must(self, *codes: int) -> Done:
        """Itself; raises :class:`Failed` unless it ended with one of these codes, and in words a user can read."""
        if self.code not in codes or "Traceback" in self.err or "unexpected " in self.err:
            raise Failed(f"`capim {' '.join(self.words)}` ended with {self.code}, expected {codes}: {self.err[-900:]}")
        return self


@dataclass
class Running:
    """One command at work."""

    words: tuple[str, ...]
    process: ForkServerProcess
    folder: Path

    def wait(self, seconds: float = LONGEST_SECONDS) -> Done:
        """Its end; one that does not end is killed and is a failure."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            raise Failed(f"`capim {' '.join(self.words)}` did not end within {seconds} s: {self._said('err')[-900:]}")
        return Done(self.words, self.process.exitcode, self._said("out"), self._said("err"))

    def works_until(self, look: Callable[[], bool]) -> bool:
        """Wait until something is so; whether it was at work until then."""
        ends = time.monotonic() + LONGEST_SECONDS
        while self.process.exitcode is None and time.monotonic() < ends:
            if look():
                return True
            time.sleep(0.001)
        return False

    def kill_when(self, look: Callable[[], bool]) -> bool:
        """``kill -9`` as soon as something is so; whether it was at work until then."""
        self.works_until(look)
        self.process.kill()
        self.process.join()
        return self.process.exitcode == -9

    def _said(self, stream: str) -> str:
        return (self.folder / stream).read_text("utf-8", "replace")


@dataclass
class Capim:
    """Starts commands.

    Attributes:
        folder: For what they say.
        environment: Of every command, beside :data:`FIXED`.
    """

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def start(self, *words: str) -> Running:
        """A command in a process of its own."""
        place = self.folder / f"{time.monotonic_ns()}-{words[0]}"
        place.mkdir(parents=True)
        for name in ("out", "err"):
            (place / name).touch()
        process = _CONTEXT.Process(target=_command, args=(words, str(place), dict(self.environment)))
        process.start()
        return Running(words, process, place)

    def __call__(self, *words: str) -> Done:
        """A command to its end."""
        return self.start(*words).wait()


def import_libraries() -> None:
    """Start the process that all others are forked from."""
    os.environ.update(FIXED)
    for name in ("PREFECT_API_URL", "CAPIM_WORKSPACE"):
        os.environ.pop(name, None)
    _CONTEXT.set_forkserver_preload(PRELOADED)


def _command(words: Sequence[str], folder: str, environment: Mapping[str, str]) -> None:
    """What ``capim`` does, in a fork."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
    for name, descriptor in (("out", 1), ("err", 2)):
        os.dup2(os.open(Path(folder) / name, os.O_WRONLY | os.O_CREAT), descriptor)
    faulthandler.dump_traceback_later(LONGEST_SECONDS - 10)
    os.environ.update(environment)
    from capim.flows.cli import main

    code = 1
    with suppress(BrokenPipeError):
        sys.argv[1:] = words
        code = main()  # which installs its handler of signals
    sys.stdout.flush()
    sys.exit(code)
