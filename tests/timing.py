"""Where the time of the tests goes: ``python -m tests.timing [what pytest takes]``.

Prints seconds of processor time, of the process that runs the tests and of those that it started and waited for: by
phase, by file, by program that tests started, by marker, and the slowest tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

FOLDER = "CAPIM_TIMING"  # where every process of a session writes what it measured, as lines of JSON
SHOWN = 40


class Timing:
    """A plugin of pytest that writes what every phase of every test took."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", encoding="utf-8")
        self._started: list[str] = []
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            words = arguments[1].split() if isinstance(arguments[1], str) else [*map(os.fsdecode, arguments[1])]
            name = Path(words[0]).name
            self._started.append(f"python -m {words[2]}" if words[1:2] == ["-m"] else name)

    def _measured(self, phase: str, item: pytest.Item | pytest.Collector) -> Generator[None, Any, Any]:
        began, wall, self._started = sum(os.times()[:4]), time.perf_counter(), []
        try:
            return (yield)
        finally:
            markers = sorted({marker.name for marker in item.iter_markers()} & {"slow", "prefect", "browser", "peers"})
            measured = {
                "phase": phase,
                "file": item.nodeid.partition("::")[0],
                "test": item.nodeid,
                "seconds": sum(os.times()[:4]) - began,
                "wall": time.perf_counter() - wall,
                "started": self._started,
                "markers": markers,
            }
            self._file.write(json.dumps(measured) + "\n")
            self._file.flush()

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        if not isinstance(collector, pytest.Module):
            return (yield)
        return (yield from self._measured("import", collector))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._measured("setup", item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._measured("call", item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._measured("teardown", item))


def pytest_configure(config: pytest.Config) -> None:
    if FOLDER in os.environ:
        config.pluginmanager.register(Timing(Path(os.environ[FOLDER]) / f"{os.getpid()}.jsonl"))


def shown(rows: Iterable[dict[str, Any]], title: str, key: Callable[[dict[str, Any]], Iterable[str]]) -> str:
    """The largest sums of seconds under each of the keys of a row, with the number of tests or of starts."""
    seconds, wall, tests = Counter[str](), Counter[str](), defaultdict(set)
    for row in rows:
        for name in key(row):
            seconds[name] += row["seconds"]
            wall[name] += row["wall"]
            tests[name].add(row["test"])
    lines = [f"{s:9.1f} {wall[name]:9.1f} {len(tests[name]):6d}  {name}" for name, s in seconds.most_common(SHOWN)]
    return "\n".join([f"\n processor      wall  tests  {title}", *lines])


def main() -> None:
    """Run pytest with the plugin and print the tables."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.timing", *sys.argv[1:]]
        done = subprocess.run(command, env={**os.environ, FOLDER: folder}, check=False)
        files = Path(folder).glob("*.jsonl")
        rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    print(shown(rows, "phase", lambda row: [row["phase"]]))
    print(shown(rows, "marker", lambda row: row["markers"] or ["none"]))
    print(shown(rows, "program started", lambda row: {*row["started"]} or ["none"]))
    print(shown(rows, "file", lambda row: [row["file"]]))
    print(shown((row for row in rows if row["phase"] != "import"), "test", lambda row: [row["test"]]))
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
