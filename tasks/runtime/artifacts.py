"""What a Prefect server shows of a run: artifacts (its progress, tables, notes) and log lines.

Outside a Prefect run no artifact is made and no line is sent.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
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
from prefect.logging.handlers import APILogHandler

from capim.reports.rows.report_data import without_paths
from capim.store.errors import without_credentials
from capim.store.types import digest16
from capim.tasks.runtime.progress import Overall, Progress, current_listener, listening

EVERY_SECONDS = 5.0  # a run of days must not flood the server
CONSOLE_LEVEL = "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"  # which flows/__init__.py sets for a quiet terminal
_OURS = ("capim",)
_PREFECTS = ("prefect.flow_runs", "prefect.task_runs")
_LOST = (httpx.TransportError, PrefectException)


@contextmanager
def shown_progress(overall: Overall, *, every_seconds: float = EVERY_SECONDS) -> Iterator[None]:
    """Keep one progress artifact of the flow run up to date; earlier listeners are still called."""
    begun = time.monotonic()
    earlier, lock = current_listener(), Lock()
    artifact = cast("UUID", create_progress_artifact(0.0, description="progress of the run"))
    shown, lost = begun, False

    def show(share: float, description: str) -> None:
        nonlocal shown, lost
        shown = time.monotonic()
        try:
            update_progress_artifact(artifact, round(share, 1), description=description)
        except _LOST:  # a run outlives the server that shows it
            lost = True  # Prefect's client tries for a minute or two: once is enough

    def listen(progress: Progress) -> None:
        earlier(progress)
        with lock:  # tasks run in several threads
            now = time.monotonic()
            overall.listen(progress, now - begun)
            if not lost and now - shown >= every_seconds:
                show(100 * min(overall.fraction, 1.0), f"progress of the run, now: {overall.now}")

    with listening(listen):
        yield
    if not lost:
        show(100.0, "progress of the run: done")


def artifact_key(kind: str, store_uri: str) -> str:
    """The key of an artifact of one workspace, whose versions follow each other on one page of Prefect's UI.

    Examples:
        >>> artifact_key("report", "/home/ada/My work/store"), artifact_key("report", "s3://KEY:SECRET@bucket/store")
        ('report-my-work-56c3', 'report-bucket-fd54')
    """
    workspace = without_credentials(store_uri).rstrip("/").removesuffix("/store")
    name = re.sub("[^a-z0-9]+", "-", workspace.rpartition("/")[2].rpartition("@")[2].lower()).strip("-")
    return f"{kind}-{name or 'workspace'}-{digest16([workspace])[:4]}"


def show_table(key: str, rows: Sequence[dict[str, Any]], description: str) -> None:
    """Create a table artifact under this key; earlier versions are kept."""
    if in_a_run():
        create_table_artifact(table=list(rows), key=key, description=description)


def show_text(key: str, markdown: str, description: str) -> None:
    """Create a Markdown artifact under this key."""
    if in_a_run():
        create_markdown_artifact(markdown=markdown, key=key, description=description)


def in_a_run() -> bool:
    """Whether the caller is part of a run that a Prefect server knows."""
    return FlowRunContext.get() is not None or TaskRunContext.get() is not None


class _Shareable(logging.Formatter):
    """A log line and its traceback without paths of the machine and without credentials."""

    def format(self, record: logging.LogRecord) -> str:
        return without_paths(super().format(record))


def hide_prefects_lines() -> None:
    """Keep what Prefect logs off the terminal, unless ``--verbose``: an error is printed once, as a sentence."""
    if CONSOLE_LEVEL in os.environ:
        logging.raiseExceptions = False  # a handler without a server does not print that it has none
        for handler in logging.getLogger().handlers:
            handler.addFilter(lambda record: not record.name.startswith(("prefect", "EventsWorker", "APILogWorker")))


def send_logs() -> None:
    """Send what capim logs inside a run, from INFO on, to the Prefect server; called by every process that runs tasks.

    Whoever may see the server sees these lines: they are without credentials and paths of the machine.
    """
    for name in _OURS:
        logger = logging.getLogger(name)
        if not any(isinstance(handler, APILogHandler) for handler in logger.handlers):
            ours = APILogHandler()
            ours.addFilter(lambda _: in_a_run())
            logger.addHandler(ours)
            logger.setLevel(logging.INFO)
    for name in (*_OURS, *_PREFECTS):
        for handler in logging.getLogger(name).handlers:
            if isinstance(handler, APILogHandler):
                handler.setFormatter(_Shareable())
