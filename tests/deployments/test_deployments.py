"""The deployment file cannot rot: every entrypoint is a flow, every parameter set is one that the flow takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect import Flow

DEPLOYMENTS: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).resolve().parents[2] / "deployments" / "prefect.yaml").read_text()
)["deployments"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda deployment: str(deployment["name"]))
def test_a_deployment_names_a_real_flow_with_valid_parameters(deployment: dict[str, Any]) -> None:
    from prefect.flows import load_flow_from_entrypoint

    # a placeholder flow, parsed from a broken module's source, would hide the fault
    flow: Flow[..., Any] = load_flow_from_entrypoint(deployment["entrypoint"], use_placeholder_flow=False)
    flow.validate_parameters(deployment["parameters"])


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda deployment: str(deployment["name"]))
def test_a_deployment_says_what_it_is_for_and_where_it_runs(deployment: dict[str, Any]) -> None:
    assert deployment["description"].endswith(".")
    assert deployment["tags"]
    assert deployment["work_pool"]["name"] in {"capim-cpu", "capim-gpu"}
    assert float(deployment["work_pool"]["job_variables"]["env"]["CAPIM_TIMEOUT_HOURS"]) > 0


def test_whatever_encodes_on_a_gpu_runs_one_at_a_time() -> None:
    for deployment in DEPLOYMENTS:
        # shards are there to run side by side: their workers take one run each (prefect worker start --limit 1)
        if deployment["work_pool"]["name"] == "capim-gpu" and deployment["name"] != "encode-shard":
            assert deployment["concurrency_limit"] == {"limit": 1, "collision_strategy": "ENQUEUE"}
