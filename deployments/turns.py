"""One run of a workspace at a time: ``python -m capim.deployments.turns``, which `make deploy` runs after deploying.

Every deployment with a ``concurrency_limit`` gets the same global concurrency limit in place of one of its own, which
Prefect's deployment file has no field for. A run that has to wait is AwaitingConcurrencySlot: it holds no process, and
begins up to 30 seconds after the slot is free (``PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS`` of the
server). The slot is free when the process of the previous run has ended.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName, DeploymentFilterTags
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.settings import PREFECT_API_URL

from capim.flows.config import run_config
from capim.tasks.prefects.task import artifact_key

FILE = Path(__file__).with_name("prefect.yaml")


def take_turns(names: Collection[str]) -> str:
    """Give deployments of these names one limit for the workspace ``$CAPIM_WORKSPACE``; return the limit's name."""
    limit = artifact_key("capim", run_config({}).store_uri)
    # the server lists 200 deployments at most, and those of other projects may have such names
    ours = DeploymentFilter(name=DeploymentFilterName(any_=[*names]), tags=DeploymentFilterTags(all_=["capim"]))
    with get_client(sync_client=True) as client:
        with suppress(ObjectAlreadyExists):
            client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=limit, limit=1))
        shared = {"global_concurrency_limit_id": str(client.read_global_concurrency_limit_by_name(limit).id)}
        for deployment in client.read_deployments(deployment_filter=ours):
            client.request("PATCH", "/deployments/{id}", path_params={"id": deployment.id}, json=shared)
            with suppress(ObjectNotFound):  # its own, which nothing uses any more
                client.delete_global_concurrency_limit_by_name(f"deployment:{deployment.id}")
    return limit


def main() -> int:
    """Share the limit among the deployments of the file; return 2 without a server."""
    if not PREFECT_API_URL.value():
        sys.stderr.write("PREFECT_API_URL is not set; run: export PREFECT_API_URL=http://127.0.0.1:4200/api\n")
        return 2
    entries = yaml.safe_load(FILE.read_text(encoding="utf-8"))["deployments"]
    names = [entry["name"] for entry in entries if "concurrency_limit" in entry]
    sys.stdout.write(f"{', '.join(names)} take turns (concurrency limit {take_turns(names)})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
