"""Progress bars on stderr: rate and time left for long work, one line per finished piece where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tasks.runtime.progress import Progress, listening

_QUIET_SECONDS = 2.0  # without a terminal, work shorter than this is not worth a line


@contextmanager
def bars(*, quiet: bool = False) -> Iterator[None]:
    """Show the progress of everything that the block runs."""
    if quiet:
        yield
    elif sys.stderr.isatty():
        with _terminal():
            yield
    else:
        with _lines():
            yield


@contextmanager
def _terminal() -> Iterator[None]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}", style="cyan"),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
    )
    with Bars(*columns, console=Console(stderr=True)) as shown:
        tasks: dict[str, tuple[TaskID, float]] = {}

        def listen(progress: Progress) -> None:
            # the text comes from a corpus: no markup
            label = progress.work.replace("[", "\\[")
            if progress.work not in tasks:
                tasks[progress.work] = (shown.add_task(label, total=progress.total, rate=""), time.monotonic())
            task, started = tasks[progress.work]
            rate = progress.done / max(time.monotonic() - started, 1e-9)
            shown.update(task, completed=progress.done, rate=f"{rate:,.0f} {progress.unit}/s" if progress.done else "")
            if progress.done >= progress.total:
                del tasks[progress.work]

        with listening(listen):
            yield


@contextmanager
def _lines() -> Iterator[None]:
    started: dict[str, tuple[float, float]] = {}

    def listen(progress: Progress) -> None:
        now = time.monotonic()
        begun, reported = started.setdefault(progress.work, (now, now))
        finished = progress.done >= progress.total
        if (finished and now - begun >= _QUIET_SECONDS) or now - reported >= 10:
            rate = progress.done / max(now - begun, 1e-9)
            left = (progress.total - progress.done) / max(rate, 1e-9)
            end = f"in {now - begun:.0f} s" if finished else f"{left:.0f} s left"
            sys.stderr.write(
                f"{progress.work}: {progress.done:,} of {progress.total:,} {progress.unit}, {rate:,.0f}/s, {end}\n"
            )
            started[progress.work] = (begun, now)
        if finished:
            started.pop(progress.work, None)

    with listening(listen):
        yield
