"""The decorator of all tasks: retries, the tag of encode tasks, time limits, no result cache."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE

from capim.tasks.runtime.artifacts import in_a_run, send_logs

# --- Decides which failed tasks are retried: a hub or object store did not answer, never a wrong request.


DELAYS_SECONDS = [2.0, 10.0, 60.0]
JITTER = 0.3  # so that many workers that lost the same service do not come back to it at once

_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_ERRNO = frozenset(
    {errno.EIO, errno.ESTALE, errno.EAGAIN, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH}
)
_CLASSES = frozenset({"ConnectionError", "TransportError"})  # of requests, and of httpx under whatever name it comes
_OBJECT_STORE = ("error sending request", "timed out", "service unavailable", "slow down", "internal server error")


def may_help(_task: object, _run: object, state: Any) -> bool:
    """Whether a failed task should be tried again (Prefect's ``retry_condition_fn``).

    A task that reached its time limit is not retried.
    """
    from prefect.task_engine import TaskRunTimeoutError

    error = state.result(raise_on_failure=False, _sync=True)  # whether or not an event loop runs
    return isinstance(error, BaseException) and not isinstance(error, TaskRunTimeoutError) and may_pass(error)


def may_pass(error: BaseException) -> bool:
    """Whether an error, or one of its causes, is temporary: an outside service did not answer.

    False in offline mode (``HF_HUB_OFFLINE``), where the hub never answers.

    Examples:
        >>> may_pass(ConnectionResetError()), may_pass(FileNotFoundError("captions.json"))
        (True, False)
    """
    chain = list(_with_causes(error))
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


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


P = ParamSpec("P")
R = TypeVar("R")


def shell(
    name: str, *, encodes: bool = False, run_name: str | None = None, timeout_hours: float | None = None
) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Make a function a Prefect task that can be repeated; its results are kept in the store only.

    Args:
        name: Name of the task.
        encodes: Whether ``prefect concurrency-limit create capim-encode 1`` limits it together with all others that
            encode: it gets this tag, without which ``flows.execution`` runs it where there is no such limit.
        run_name: Name of its runs, a template over the parameters.
        timeout_hours: A run that takes longer fails. Only for tasks that flows call in their own thread: Prefect
            cannot interrupt others in the middle of a system call.
    """

    def declare(function: Callable[P, R]) -> Task[P, R]:
        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            if in_a_run():  # perhaps in a process of its own
                send_logs()
            return function(*args, **kwargs)

        return task(
            name=name,
            task_run_name=run_name,
            tags=["capim-encode"] if encodes else None,
            cache_policy=NO_CACHE,
            retries=len(DELAYS_SECONDS),
            retry_delay_seconds=DELAYS_SECONDS,
            retry_jitter_factor=JITTER,
            retry_condition_fn=may_help,
            timeout_seconds=None if timeout_hours is None else 3600 * timeout_hours,
        )(run)

    return declare
