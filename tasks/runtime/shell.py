"""The decorator of all tasks: retries, the tag of encode tasks, time limits, no result cache."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE

from capim.tasks.runtime.artifacts import in_a_run, send_logs
from capim.tasks.runtime.retries import DELAYS_SECONDS, JITTER, may_help

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
