"""Progress on stderr: on a terminal one line for the whole run, with the time left; elsewhere a line per long piece."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from capim.tasks.runtime.progress import QUIET_SECONDS, Overall, Progress, clock, listening


@contextmanager
def bars(*, quiet: bool = False, flow: str = "", corpora: int = 1) -> Iterator[None]:
    """Show the progress of everything that the block runs: a run of ``flow``, or pieces of work that stand alone.

    ``corpora`` is how many an encoder encodes.
    """
    if quiet:
        yield
    elif sys.stderr.isatty():
        with _terminal(Overall.of(flow, corpora)):
            yield
    else:
        with _lines():
            yield


def _short(number: float) -> str:
    """A count or a rate; with one decimal where that is not 0, below 1 with one digit.

    Examples:
        >>> _short(1234), _short(3.25), _short(0.04), _short(12.3)
        ('1,234', '3.2', '0.04', '12')
    """
    return (
        f"{number:,.0f}"
        if number >= 10 or number == int(number)
        else f"{number:.1f}"
        if number >= 1
        else f"{number:.1g}"
    )


@contextmanager
def _terminal(overall: Overall) -> Iterator[None]:
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    name = TextColumn(
        "{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
    )
    left = TextColumn("{task.fields[left]}", markup=False, table_column=Column(no_wrap=True))
    console, begun = Console(stderr=True), time.monotonic()
    with Bar(
        BarColumn(bar_width=20), TaskProgressColumn(), left, name, console=console, expand=True, transient=True
    ) as bar:
        line = bar.add_task("", total=1.0, left="")

        def listen(progress: Progress) -> None:
            seconds = time.monotonic() - begun
            if ended := overall.listen(progress, seconds):
                console.print(ended, markup=False, highlight=False)
            rest = overall.left(seconds)
            about = "" if rest is None else f"about {clock(rest)} left"
            bar.update(line, completed=min(overall.fraction, 1.0), description=overall.now, left=about)

        with listening(listen):
            yield


@contextmanager
def _lines() -> Iterator[None]:
    started: dict[str, tuple[float, float]] = {}

    def listen(progress: Progress) -> None:
        if progress.step:
            return
        now = time.monotonic()
        begun, reported = started.setdefault(progress.work, (now, now))
        finished = progress.done >= progress.total
        if (finished and now - begun >= QUIET_SECONDS) or now - reported >= 10:
            rate = progress.done / max(now - begun, 1e-9)
            left = (progress.total - progress.done) / max(rate, 1e-9)
            end = f"in {now - begun:.0f} s" if finished else f"{left:.0f} s left"
            done = f"{_short(progress.done)} of {progress.total:,} {progress.unit}"
            sys.stderr.write(f"{progress.work}: {done}, {_short(rate)}/s, {end}\n")
            started[progress.work] = (begun, now)
        if finished:
            started.pop(progress.work, None)

    with listening(listen):
        yield
