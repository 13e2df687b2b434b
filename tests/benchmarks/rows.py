"""One measured figure, its bar and its peer; the rows of a group; and the clock."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Row(NamedTuple):
    """One line of RESULTS.md.

    ``value`` is None where this machine cannot measure it. ``bar`` is the claim as a comparison, e.g. ``"<= 3"`` or
    ``">= 1.2"``, judged against ``value``; empty for a figure without a bar.
    """

    name: str
    value: float | None
    unit: str
    bar: str = ""
    peer: str = ""
    note: str = ""

    @property
    def figure(self) -> str:
        """The value with its unit, as it is printed.

        Examples:
            >>> Row("x", 0.12345, "s").figure, Row("x", None, "s").figure
            ('0.1235 s', 'not measured')
        """
        return "not measured" if self.value is None else f"{self.value:.4g} {self.unit}".rstrip()


def measured(group: str, quick: bool) -> list[Row]:
    """The rows of a group; where it has to be quick, sizes are too small for bars of time and of memory."""
    rows: list[Row] = importlib.import_module(f"tests.benchmarks.bench_{group}").run(quick)
    sized = ("times", "s", "minutes", "GiB", "MB") if quick else ()
    return [row._replace(bar="") if row.unit in sized else row for row in rows]


def clocked(work: Callable[[], T]) -> tuple[T, float]:
    """What one run gives, and its seconds."""
    start = time.perf_counter()
    found = work()
    return found, time.perf_counter() - start


def timed(work: Callable[[], object]) -> float:
    """Seconds of one run."""
    return clocked(work)[1]


def fastest(work: Callable[[], object], runs: int = 3) -> float:
    """Seconds of the fastest of a few runs, after one that is not counted."""
    work()
    return min(timed(work) for _ in range(runs))


def both_clocks(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the wall and of the processor, all threads together."""
    busy = time.process_time()
    seconds = timed(work)
    return seconds, time.process_time() - busy
