"""All flows on one machine, without a work pool: ``python -m capim.deployments.serve``.

Reads the same ``prefect.yaml`` that `make deploy` registers, so that schedules, triggers, limits and parameters are
written down once; the deployments are named ``served-…``, unlike those of pools. Runs as long as the process lives, and
continues where it stopped when it starts again; each run is a subprocess of its own, with this process' environment:
pools and their job variables (workspace, time limit, task runner) do not exist here.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, cast

import yaml
from prefect import Flow, serve
from prefect.client.schemas.objects import ConcurrencyLimitConfig
from prefect.deployments.runner import RunnerDeployment
from prefect.events import DeploymentEventTrigger
from prefect.flows import load_flow_from_entrypoint
from prefect.schedules import Cron
from prefect.settings import PREFECT_API_URL
from prefect.types.entrypoint import EntrypointType
from prefect.utilities.templating import apply_values

from capim.deployments.turns import FILE, take_turns
from capim.flows.config import FORM_VARIABLE, WORKSPACE_VARIABLE
from capim.store.errors import RequestError


def runner_deployments() -> list[RunnerDeployment]:
    """Return one for every entry of the file.

    Raises:
        RequestError: If a variable that the file reads from the environment is not set.
    """
    os.environ.setdefault(FORM_VARIABLE, os.environ.get(WORKSPACE_VARIABLE, ""))  # read when a flow is imported
    text = FILE.read_text(encoding="utf-8")
    if missing := sorted({name for name in re.findall(r"{{ \$(\w+) }}", text) if not os.environ.get(name)}):
        raise RequestError([f"{name} is not set (see deployments/README.md)" for name in missing])
    entries: list[dict[str, Any]] = yaml.safe_load(text)["deployments"]
    # {{ $VARIABLE }} from the environment, as `prefect deploy` does; {{ event… }} stays for Prefect
    filled = [apply_values(entry, dict(os.environ), remove_notset=False) for entry in entries]
    return [_runner_deployment(entry) for entry in filled if isinstance(entry, dict)]


def _runner_deployment(entry: dict[str, Any]) -> RunnerDeployment:
    limit = entry.get("concurrency_limit")
    flow: Flow[..., Any] = load_flow_from_entrypoint(entry["entrypoint"], use_placeholder_flow=False)
    deployment = flow.to_deployment(
        name=f"served-{entry['name']}",
        description=entry["description"],
        tags=entry["tags"],
        parameters=entry["parameters"],
        schedules=[Cron(schedule.pop("cron"), **schedule) for schedule in entry.get("schedules", [])],
        triggers=[DeploymentEventTrigger.model_validate(trigger) for trigger in entry.get("triggers", [])],
        entrypoint_type=EntrypointType.MODULE_PATH,
        concurrency_limit=ConcurrencyLimitConfig.model_validate(limit) if limit else None,
    )
    return cast("RunnerDeployment", deployment)  # a coroutine only inside an event loop


def main() -> int:
    """Serve until the process is stopped; return 2 for a wrong request."""
    try:
        if not PREFECT_API_URL.value():
            raise RequestError("PREFECT_API_URL is not set; run: export PREFECT_API_URL=http://127.0.0.1:4200/api")
        served = runner_deployments()
        for deployment in served:
            deployment.apply()
        take_turns([each.name for each in served if each.concurrency_limit])
    except RequestError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    serve(*served, pause_on_shutdown=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
