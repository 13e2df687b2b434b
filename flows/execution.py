"""Running a step with Prefect or without it.

Inside a flow run every step is a Prefect flow or task run, with its state, its retries and its place in the UI.
Outside one the same step is an ordinary function call: ``capim run`` on a laptop starts no server (a temporary
one takes 10-20 s to come up) and gives the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from prefect import Flow, Task
from prefect.context import FlowRunContext
from prefect.events import emit_event
from prefect.settings import PREFECT_API_URL

P = ParamSpec("P")
R = TypeVar("R")


def call(step: Flow[P, R] | Task[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a flow or task: under Prefect inside a flow run, as the plain function outside one."""
    if FlowRunContext.get() is None:
        return step.fn(*args, **kwargs)
    return cast("Callable[P, R]", step)(*args, **kwargs)


def announce(event: str, workspace: str, **payload: str | int | float) -> None:
    """Emit an event about a workspace that automations can wait for; nothing outside a flow run."""
    if FlowRunContext.get() is not None:
        resource = {"prefect.resource.id": f"capim.workspace.{workspace}"}
        emit_event(event, resource=resource, payload={"workspace": workspace, **payload})


def start(flow: Flow[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a flow from the command line: as a Prefect run where an API is configured, else as plain functions.

    Raises:
        Exception: Whatever broke inside the flow, as it was raised there.
    """
    if PREFECT_API_URL.value() is None:
        return flow.fn(*args, **kwargs)
    state = cast("Callable[..., Any]", flow)(*args, **kwargs, return_state=True)
    return cast("R", state.result(raise_on_failure=True))
