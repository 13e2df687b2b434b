"""One measured figure, its bar and its peer; and the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


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


def timed(work: Callable[[], object]) -> float:
    """Seconds of one run."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def fastest(work: Callable[[], object], runs: int = 3) -> float:
    """Seconds of the fastest of a few runs, after one that is not counted."""
    work()
    return min(timed(work) for _ in range(runs))
