# ruff: noqa: PLC0414, N802, N818 - the names are Prefect's
"""The names that capim uses of Prefect, or substitutes in a command without a server.

Such a command runs flows and tasks as plain functions (``flows.execution.start``), because importing Prefect would take
a third of its time.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from capim.tasks import prefects

if TYPE_CHECKING or not prefects.left_out:
    from prefect import Flow as Flow
    from prefect import State as State
    from prefect import Task as Task
    from prefect import flow as flow
    from prefect import tags as tags
    from prefect.artifacts import create_markdown_artifact as create_markdown_artifact
    from prefect.artifacts import create_progress_artifact as create_progress_artifact
    from prefect.artifacts import create_table_artifact as create_table_artifact
    from prefect.artifacts import update_progress_artifact as update_progress_artifact
    from prefect.assets import add_asset_metadata as add_asset_metadata
    from prefect.cache_policies import NO_CACHE as NO_CACHE
    from prefect.client.orchestration import get_client as get_client
    from prefect.concurrency.sync import concurrency as concurrency
    from prefect.context import FlowRunContext as FlowRunContext
    from prefect.context import TagsContext as TagsContext
    from prefect.context import TaskRunContext as TaskRunContext
    from prefect.deployments import run_deployment as run_deployment
    from prefect.events import emit_event as emit_event
    from prefect.exceptions import ObjectNotFound as ObjectNotFound
    from prefect.exceptions import PrefectException as PrefectException
    from prefect.exceptions import PrefectHTTPStatusError as PrefectHTTPStatusError
    from prefect.exceptions import TerminationSignal as TerminationSignal
    from prefect.logging.handlers import APILogHandler as APILogHandler
    from prefect.runtime import deployment as deployment
    from prefect.runtime import flow_run as flow_run
    from prefect.settings import PREFECT_API_URL as PREFECT_API_URL
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY as PREFECT_FLOWS_HEARTBEAT_FREQUENCY
    from prefect.settings import temporary_settings as temporary_settings
    from prefect.task_runners import TaskRunner as TaskRunner
    from prefect.task_runners import ThreadPoolTaskRunner as ThreadPoolTaskRunner
    from prefect.tasks import MaterializingTask as MaterializingTask
else:

    class Task:
        """A flow or task: its function and its name."""

        def __init__(self, fn: Any, *, name: str, **_: object) -> None:
            self.fn, self.name = fn, name

    class PrefectException(Exception):
        """Never raised."""

    def flow(**options: Any) -> Any:
        """Return a decorator that makes a function a :class:`Task`."""
        return lambda fn: Task(fn, **options)

    Flow = MaterializingTask = Task
    ObjectNotFound = PrefectHTTPStatusError = TerminationSignal = PrefectException
    FlowRunContext = TaskRunContext = flow_run = deployment = SimpleNamespace(id=None, get=lambda: None)
    PREFECT_API_URL = SimpleNamespace(value=lambda: None)

    def ThreadPoolTaskRunner(**_: object) -> None:
        """Return no task runner: nothing is submitted to one."""

    def __getattr__(name: str) -> None:
        """Return None for the other names, which only a run on a server uses."""
        if name.startswith("__"):
            raise AttributeError(name)
