# ruff: noqa: F401 - names of this module
# mypy: implicit-reexport
"""What capim takes from Prefect; in a command that no server knows, stand-ins for it.

Such a command runs flows and tasks as plain functions (``flows.execution.start``), and importing Prefect would take a
third of its time.
"""

from __future__ import annotations

import ast
import os
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefect import Flow, State, Task, flow, tags
    from prefect.artifacts import (
        create_markdown_artifact,
        create_progress_artifact,
        create_table_artifact,
        update_progress_artifact,
    )
    from prefect.cache_policies import NO_CACHE, CacheKeyFnPolicy
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate
    from prefect.concurrency.sync import concurrency
    from prefect.context import FlowRunContext, TagsContext, TaskRunContext
    from prefect.deployments import run_deployment
    from prefect.events import emit_event
    from prefect.exceptions import (
        ObjectAlreadyExists,
        ObjectNotFound,
        PrefectException,
        PrefectHTTPStatusError,
        TerminationSignal,
    )
    from prefect.filesystems import LocalFileSystem
    from prefect.logging import get_run_logger
    from prefect.logging.handlers import APILogHandler
    from prefect.runtime import deployment, flow_run
    from prefect.settings import PREFECT_API_URL
    from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner
    from prefect.tasks import MaterializingTask

# name -> the module of Prefect that has it, as the imports above say: they are the only list
_WHERE = {
    name.name: str(each.module)
    for each in ast.walk(ast.parse(Path(__file__).read_text(encoding="utf-8")))
    if isinstance(each, ast.ImportFrom) and str(each.module).startswith("prefect")
    for name in each.names
}
_FILES = {".env": b"PREFECT_", "prefect.toml": b"", "pyproject.toml": b"[tool.prefect"}
_SETTINGS = ("PREFECT_API_URL", "PREFECT_PROFILE", "PREFECT_PROFILES_PATH")


class _Plain:
    """A flow or task: its function and its name."""

    def __init__(self, fn: Any, *, name: str, **_: object) -> None:
        self.fn, self.name = fn, name


_NO_RUN = SimpleNamespace(id=None, get=lambda: None, value=lambda: None)
_STAND_INS: dict[str, Any] = {
    **{name: type(name, (Exception,), {}) for name, module in _WHERE.items() if module == "prefect.exceptions"},
    **dict.fromkeys(("FlowRunContext", "TaskRunContext", "flow_run", "deployment", "PREFECT_API_URL"), _NO_RUN),
    **dict.fromkeys(("Flow", "Task", "MaterializingTask"), _Plain),
    "flow": lambda **options: lambda fn: _Plain(fn, **options),
    "CacheKeyFnPolicy": lambda **_: None,
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
