"""A function in a process of its own, so that peak memory, threads and kills are its own."""

from __future__ import annotations

import importlib
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.rows import Row

REPOSITORY = Path(__file__).resolve().parents[2]


def alone(work: Callable[..., Any], *given: object, **named: object) -> Any:
    """What a module's function returns in a new process: arguments and result are paths and what JSON knows."""
    command = command_of(work, *given, **named)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=REPOSITORY)
    return json.loads(done.stdout.splitlines()[-1])


def rows_alone(work: Callable[..., list[Row]], *given: object, **named: object) -> list[Row]:
    """The rows that a module's function measures in a new process."""
    return [Row(*row) for row in alone(work, *given, **named)]


def command_of(work: Callable[..., Any], *given: object, **named: object) -> list[str]:
    """The command that calls a module's function; its result is the last line of the output."""
    arguments = json.dumps([given, named], default=lambda path: {"path": str(path)})
    return [sys.executable, "-m", "tests.benchmarks.own_process", f"{work.__module__}:{work.__name__}", arguments]


def peak_mb() -> float:
    """Peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def peak_gib() -> float:
    """Peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    module, _, function = sys.argv[1].partition(":")
    given, named = json.loads(sys.argv[2], object_hook=lambda of: Path(of["path"]) if [*of] == ["path"] else of)
    print(json.dumps(getattr(importlib.import_module(module), function)(*given, **named)))
