"""Where the time of the tests goes: ``python -m tests.timing [what pytest takes]``.

Prints seconds of processor time, of the process that runs the tests and of those that it started and waited for, with
seconds by the clock: by file, and of the slowest tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

FOLDER = "CAPIM_TIMING"  # where every process of a session writes what it measured, as lines of JSON
SHOWN = 40


class Timing:
    """A plugin of pytest that writes what every test took, its fixtures included, and the import of its file."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", encoding="utf-8")

    def _measured(self, item: pytest.Item | pytest.Collector) -> Generator[None, Any, Any]:
        began, wall = sum(os.times()[:4]), time.perf_counter()
        try:
            return (yield)
        finally:
            seconds, wall = sum(os.times()[:4]) - began, time.perf_counter() - wall
            self._file.write(json.dumps({"test": item.nodeid, "seconds": seconds, "wall": wall}) + "\n")
            self._file.flush()

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        if not isinstance(collector, pytest.Module):
            return (yield)
        return (yield from self._measured(collector))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._measured(item))


def pytest_configure(config: pytest.Config) -> None:
    if FOLDER in os.environ:
        config.pluginmanager.register(Timing(Path(os.environ[FOLDER]) / f"{os.getpid()}.jsonl"))


def shown(rows: Iterable[dict[str, Any]], title: str, key: Callable[[str], str]) -> str:
    """The largest sums of seconds, by file or test."""
    seconds, wall = Counter[str](), Counter[str]()
    for row in rows:
        seconds[key(row["test"])] += row["seconds"]
        wall[key(row["test"])] += row["wall"]
    lines = [f"{of:9.1f} {wall[name]:9.1f}  {name}" for name, of in seconds.most_common(SHOWN)]
    return "\n".join([f"\nprocessor     clock  {title}", *lines])


def main() -> None:
    """Run pytest with the plugin and print both tables."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.timing", *sys.argv[1:]]
        done = subprocess.run(command, env={**os.environ, FOLDER: folder}, check=False)
        files = Path(folder).glob("*.jsonl")
        rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    print(shown(rows, "file", lambda test: test.partition("::")[0]))
    print(shown((row for row in rows if "::" in row["test"]), "test", str))
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
