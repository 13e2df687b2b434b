# ruff: noqa: PLC0414 - names of this module
"""What capim takes from Prefect; in a command that no server knows, stand-ins for it.

Such a command runs flows and tasks as plain functions (``flows.execution.start``), and importing Prefect would take a
third of its time.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_MODULES = {
    "prefect": ("Flow", "State", "Task", "flow", "tags"),
    "prefect.artifacts": (
        "create_markdown_artifact", "create_progress_artifact", "create_table_artifact", "update_progress_artifact",
    ),
    "prefect.assets": ("add_asset_metadata",),
    "prefect.cache_policies": ("NO_CACHE",),
    "prefect.client.orchestration": ("get_client",),
    "prefect.concurrency.sync": ("concurrency",),
    "prefect.context": ("FlowRunContext", "TagsContext", "TaskRunContext"),
    "prefect.deployments": ("run_deployment",),
    "prefect.events": ("emit_event",),
    "prefect.exceptions": (
        "ObjectNotFound", "PrefectException", "PrefectHTTPStatusError", "TerminationSignal",
    ),
    "prefect.logging.handlers": ("APILogHandler",),
    "prefect.runtime": ("deployment", "flow_run"),
    "prefect.settings": ("PREFECT_API_URL", "PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "temporary_settings"),
    "prefect.task_runners": ("TaskRunner", "ThreadPoolTaskRunner"),
    "prefect.tasks": ("MaterializingTask",),
}  # fmt: skip
_WHERE = {name: module for module, names in _MODULES.items() for name in names}
_FILES = {".env": b"PREFECT_", "prefect.toml": b"", "pyproject.toml": b"[tool.prefect"}
_SETTINGS = ("PREFECT_API_URL", "PREFECT_PROFILE", "PREFECT_PROFILES_PATH")


class _Plain:
    """A flow or task: its function and its name."""

    def __init__(self, fn: Any, *, name: str, **_: object) -> None:
        self.fn, self.name = fn, name


_NO_RUN = SimpleNamespace(id=None, get=lambda: None, value=lambda: None)
_STAND_INS: dict[str, Any] = {
    **{name: type(name, (Exception,), {}) for name in _MODULES["prefect.exceptions"]},
    **dict.fromkeys(("FlowRunContext", "TaskRunContext", "flow_run", "deployment", "PREFECT_API_URL"), _NO_RUN),
    **dict.fromkeys(("Flow", "Task", "MaterializingTask"), _Plain),
    "flow": lambda **options: lambda fn: _Plain(fn, **options),
    "ThreadPoolTaskRunner": lambda **_: None,
}
"""Name -> what stands for it; None stands for the others, which only a run on a server uses."""
_left_out = False


def leave_prefect_out() -> None:
    """Have this process do without Prefect, unless something names a server, or Prefect is imported.

    A variable of the environment may name one, a profile, or a file in the working folder that Prefect reads. For the
    command line, before flows are imported; elsewhere flows are Prefect's.
    """
    global _left_out  # noqa: PLW0603 - what is imported is a state of the process
    home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
    named = any(map(os.environ.get, _SETTINGS)) or (home / "profiles.toml").exists()
    named = named or any(Path(file).is_file() and said in Path(file).read_bytes() for file, said in _FILES.items())
    _left_out = not named and "prefect" not in sys.modules


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _STAND_INS.get(name) if _left_out else getattr(import_module(_WHERE[name]), name)
