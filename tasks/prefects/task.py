"""The decorator of all tasks, and their output on a Prefect server: artifacts and log lines.

Outside a Prefect run no artifact is made and no line is sent.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial, wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar, cast
from uuid import UUID

import httpx

from capim.reports.rows.report_data import without_paths
from capim.store.errors import without_credentials
from capim.store.types import digest16
from capim.tasks.hub.progress import Overall, Progress, current_listener, listening
from capim.tasks.prefects.names import (
    NO_CACHE,
    APILogHandler,
    FlowRunContext,
    MaterializingTask,
    PrefectException,
    Task,
    TaskRunContext,
    add_asset_metadata,
    concurrency,
    create_progress_artifact,
    create_table_artifact,
    get_client,
    update_progress_artifact,
)

log = logging.getLogger(__name__)
P = ParamSpec("P")
R = TypeVar("R")

DELAYS_SECONDS = [2.0, 10.0, 60.0]
JITTER = 0.3  # so that many workers that lost the same service do not return to it at the same time

_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_ERRNO = frozenset(
    {errno.EIO, errno.ESTALE, errno.EAGAIN, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH}
)
_CLASSES = frozenset({"ConnectionError", "TransportError"})  # of requests, and of httpx under any name
_OBJECT_STORE = ("error sending request", "timed out", "service unavailable", "slow down", "internal server error")

EVERY_SECONDS = 5.0  # a run of days must not flood the server
CONSOLE_LEVEL = "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"  # set by flows/__init__.py for a quiet terminal
_PREFECTS = ("prefect.flow_runs", "prefect.task_runs")
ENCODE_LIMIT = "capim-encode"  # a global concurrency limit, if the server has one of this name
LEASE_SECONDS = 60  # after which the slot of a lost process is free
_LOST = (httpx.TransportError, PrefectException)


def task(
    name: str,
    *,
    encodes: bool = False,
    makes: Makes | None = None,
    run_name: str | None = None,
    timeout_hours: float | None = None,
) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Make a function a Prefect task that can be repeated: it keeps its results in the store and returns a reference.

    In a retried flow run it runs again, and finds its earlier results in the store.

    Args:
        name: Name of the task.
        makes: Function from its arguments to the keys of the assets that it materializes (:func:`asset`).
        encodes: True if it encodes: ``prefect gcl create capim-encode --limit 1`` limits all such tasks together.
        run_name: Name of its runs, a template over the parameters.
        timeout_hours: A run that takes longer fails. Only for tasks that flows call in their own thread: Prefect
            cannot interrupt others in the middle of a system call.
    """

    def declare(function: Callable[P, R]) -> Task[P, R]:
        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            if not in_a_run():
                return function(*args, **kwargs)
            send_logs()  # perhaps in a separate process
            with place(ENCODE_LIMIT) if encodes else nullcontext():
                begun = time.monotonic()
                made = function(*args, **kwargs)
            keys = makes(**signature(function).bind(*args, **kwargs).arguments) if makes is not None else ()
            _tell(made, [*keys], time.monotonic() - begun)
            return made

        if makes is not None:
            _MAKES[name] = makes
        return (Task if makes is None else partial(MaterializingTask, assets=[]))(
            fn=run,
            name=name,
            task_run_name=run_name,
            cache_policy=NO_CACHE,
            persist_result=False,
            retries=len(DELAYS_SECONDS),
            retry_delay_seconds=DELAYS_SECONDS,
            retry_jitter_factor=JITTER,
            retry_condition_fn=may_help,
            timeout_seconds=None if timeout_hours is None else 3600 * timeout_hours,
        )

    return declare


@contextmanager
def place(limit: str) -> Iterator[None]:
    """Hold a slot of a global concurrency limit, if the server has one of this name.

    Prefect's own ``concurrency`` is silent while it waits, and warns in every task if there is no such limit.
    """
    found = None
    with suppress(httpx.HTTPError, PrefectException), get_client(sync_client=True) as client:
        found = client.read_global_concurrency_limit_by_name(limit)
    if found is None:
        yield
        return
    if found.active_slots >= found.limit:
        log.info("waiting for a slot of the concurrency limit %s (%d in total)", limit, found.limit)
    with concurrency(limit, lease_duration=LEASE_SECONDS, raise_on_lease_renewal_failure=False):
        yield


def _tell(made: object, assets: Sequence[str], seconds: float) -> None:
    """Log how much a task made or found, and write it into the metadata of its assets."""
    references = made if isinstance(made, tuple) else (made,)
    found = [each.facts for each in references if hasattr(each, "facts")]
    for key, facts in zip(assets, found * len(assets) if len(found) == 1 else found, strict=False):
        add_asset_metadata(key, {**facts, "seconds": round(seconds, 1)})
    if found and not isinstance(made, tuple):
        counts = ", ".join(f"{n:,} {name}" for name, n in found[0].items() if isinstance(n, int))
        log.info("%s, %.1f s", counts, seconds)


Makes = Callable[..., Iterable[str]]
_MAKES: dict[str, Makes] = {}  # name of a task -> the keys of the assets that it makes, from its arguments


def asset(store_uri: str, *path: str) -> str:
    """Return the key of an asset of one workspace.

    Examples:
        >>> asset("/home/ada/My work/store", "sets", "tiny-clip", "my photos")
        'capim://my-work-56c3/sets/tiny-clip/my-photos'
    """
    return "/".join(["capim:/", _workspace(store_uri), *(re.sub(r"[^\w.@-]+", "-", part) for part in path)])


def with_assets(task: Task[P, R], arguments: Mapping[str, Any]) -> Task[P, R]:
    """Return the task with the assets that it makes from these arguments."""
    if not isinstance(task, MaterializingTask):
        return task
    return cast("Task[P, R]", task.with_options(assets=[*_MAKES[task.name](**arguments)]))


def may_help(_task: object, _run: object, state: Any) -> bool:
    """True if a failed task should be tried again (Prefect's ``retry_condition_fn``).

    A task that reached its time limit is not retried.
    """
    from prefect.task_engine import TaskRunTimeoutError

    error = state.result(raise_on_failure=False, _sync=True)  # with or without a running event loop
    return isinstance(error, BaseException) and not isinstance(error, TaskRunTimeoutError) and may_pass(error)


def may_pass(error: BaseException) -> bool:
    """True if an error, or one of its causes, is temporary: an external service did not respond.

    False in offline mode (``HF_HUB_OFFLINE``), where the hub never responds.

    Examples:
        >>> may_pass(ConnectionResetError()), may_pass(FileNotFoundError("captions.json"))
        (True, False)
    """
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    return any(map(_passes, chain)) and not any(type(link).__name__ == "OfflineModeIsEnabled" for link in chain)


def _passes(error: BaseException) -> bool:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(status, int):
        return status in _STATUS
    if isinstance(error, TimeoutError | socket.gaierror) or getattr(error, "errno", None) in _ERRNO:
        return True
    if not _CLASSES.isdisjoint(kind.__name__ for kind in type(error).__mro__):
        return True
    message = str(error).lower()
    return "lanceerror(io)" in message and any(words in message for words in _OBJECT_STORE)


@contextmanager
def shown_progress(overall: Overall) -> Iterator[None]:
    """Keep one progress artifact of the flow run up to date; earlier listeners are still called."""
    begun = time.monotonic()
    earlier = current_listener()
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
        now = time.monotonic()
        overall.listen(progress, now - begun)
        if not lost and now - shown >= EVERY_SECONDS:
            show(100 * min(overall.fraction, 1.0), f"progress of the run, now: {overall.now}")

    with listening(listen):
        yield
    if not lost:
        show(100.0, "progress of the run: done")


def artifact_key(kind: str, store_uri: str) -> str:
    """Return the key of an artifact of one workspace; Prefect's UI shows its versions on one page.

    Examples:
        >>> artifact_key("report", "/home/ada/My work/store"), artifact_key("report", "s3://KEY:SECRET@bucket/store")
        ('report-my-work-56c3', 'report-bucket-fd54')
    """
    return f"{kind}-{_workspace(store_uri)}"


def _workspace(store_uri: str) -> str:
    """Return the name of a workspace in Prefect's UI: its folder, and a digest that distinguishes equal folders."""
    workspace = without_credentials(store_uri).rstrip("/").removesuffix("/store")
    name = re.sub("[^a-z0-9]+", "-", workspace.rpartition("/")[2].rpartition("@")[2].lower()).strip("-")
    return f"{name or 'workspace'}-{digest16([workspace])[:4]}"


def show_table(key: str, rows: Sequence[dict[str, Any]], description: str) -> None:
    """Create a table artifact under this key; earlier versions are kept."""
    if in_a_run():
        create_table_artifact(table=list(rows), key=key, description=description)


def in_a_run() -> bool:
    """True if the caller is part of a run that a Prefect server knows."""
    return FlowRunContext.get() is not None or TaskRunContext.get() is not None


class _Redacted(logging.Formatter):
    """A log line and its traceback without local paths and without credentials."""

    def format(self, record: logging.LogRecord) -> str:
        return without_paths(super().format(record))


def hide_prefects_lines() -> None:
    """Keep Prefect's log lines off the terminal, unless ``--verbose``: an error is printed once, as a sentence."""
    if CONSOLE_LEVEL in os.environ:
        logging.raiseExceptions = False  # a handler without a server must not print that it has none
        for handler in logging.getLogger().handlers:
            handler.addFilter(lambda record: not record.name.startswith(("prefect", "EventsWorker", "APILogWorker")))


def send_logs() -> None:
    """Send capim's log lines inside a run, from INFO on, to the Prefect server; every process that runs tasks calls it.

    Everyone with access to the server sees these lines: they contain no credentials and no local paths.
    """
    logger = logging.getLogger("capim")
    if not any(isinstance(handler, APILogHandler) for handler in logger.handlers):
        ours = APILogHandler()
        ours.addFilter(lambda _: in_a_run())
        logger.addHandler(ours)
        logger.setLevel(logging.INFO)
    for name in ("capim", *_PREFECTS):
        for handler in logging.getLogger(name).handlers:
            if isinstance(handler, APILogHandler):
                handler.setFormatter(_Redacted())
