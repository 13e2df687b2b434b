"""Prefect artifacts of a run: progress of an encode, tables, notes.

Outside a Prefect run every function here does nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast
from uuid import UUID

import httpx
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.context import FlowRunContext, TaskRunContext
from prefect.exceptions import PrefectException

from tasks.runtime.progress import Progress, current_listener, listening

EVERY_SECONDS = 5.0  # a run of days must not flood the server


@contextmanager
def shown_progress(*, every_seconds: float = EVERY_SECONDS) -> Iterator[None]:
    """Keep one progress artifact per piece of work of the block up to date; earlier listeners are still called."""
    if not _in_a_run():
        yield
        return
    artifacts: dict[str, tuple[UUID, float]] = {}
    earlier = current_listener()
    lost = False

    def listen(progress: Progress) -> None:
        nonlocal lost
        earlier(progress)
        if lost:
            return
        try:
            show(progress)
        except (httpx.TransportError, PrefectException):  # an encode outlives the server that shows it
            lost = True  # Prefect's client tries for a minute or two: once is enough

    def show(progress: Progress) -> None:
        share = 100.0 if progress.total == 0 else 100.0 * progress.done / progress.total
        if progress.work not in artifacts:
            made = create_progress_artifact(share, description=f"{progress.work}: {progress.total:,} {progress.unit}")
            artifacts[progress.work] = (cast("UUID", made), time.monotonic())
            return
        artifact, updated = artifacts[progress.work]
        if progress.done >= progress.total or time.monotonic() - updated >= every_seconds:
            update_progress_artifact(artifact, share)
            artifacts[progress.work] = (artifact, time.monotonic())

    with listening(listen):
        yield


def show_table(key: str, rows: Sequence[dict[str, Any]], description: str) -> None:
    """Create a table artifact under this key; earlier versions are kept."""
    if _in_a_run():
        create_table_artifact(table=list(rows), key=key, description=description)


def show_text(key: str, markdown: str) -> None:
    """Create a Markdown artifact under this key."""
    if _in_a_run():
        create_markdown_artifact(markdown=markdown, key=key)


def _in_a_run() -> bool:
    return FlowRunContext.get() is not None or TaskRunContext.get() is not None
