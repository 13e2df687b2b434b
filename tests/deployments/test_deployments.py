"""The deployment file cannot rot: every entrypoint is a flow, every parameter set is one that the flow takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect import Flow

from capim.deployments.automations import SILENCE
from capim.flows import HEARTBEAT_SECONDS, set_environment

DEPLOYMENTS: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).resolve().parents[2] / "deployments" / "prefect.yaml").read_text()
)["deployments"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda deployment: str(deployment["name"]))
def test_a_deployment_names_a_real_flow_with_valid_parameters_tags_and_a_time_limit(deployment: dict[str, Any]) -> None:
    from prefect.flows import load_flow_from_entrypoint

    # a placeholder flow, parsed from a broken module's source, would hide the fault
    flow: Flow[..., Any] = load_flow_from_entrypoint(deployment["entrypoint"], use_placeholder_flow=False)
    flow.validate_parameters(deployment["parameters"])
    assert deployment["tags"]
    assert float(deployment["work_pool"]["job_variables"]["env"]["CAPIM_TIMEOUT_HOURS"]) > 0


def test_whatever_encodes_on_a_gpu_runs_one_at_a_time() -> None:
    for deployment in DEPLOYMENTS:
        # shards are there to run side by side: their workers take one run each (prefect worker start --limit 1)
        if deployment["work_pool"]["name"] == "capim-gpu" and deployment["name"] != "encode-shard":
            assert deployment["concurrency_limit"] == {"limit": 1, "collision_strategy": "ENQUEUE"}


def test_runs_send_three_heartbeats_in_the_time_after_which_they_are_taken_for_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", raising=False)
    set_environment()
    of_workers = {
        each["work_pool"]["job_variables"]["env"]["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] for each in DEPLOYMENTS
    }
    assert of_workers == {os.environ["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"]} == {str(HEARTBEAT_SECONDS)}
    assert SILENCE.total_seconds() == 3 * HEARTBEAT_SECONDS


def test_so_do_runs_of_a_program_that_imported_prefect_before_capim() -> None:
    program = """
from functools import partial
from types import SimpleNamespace
from prefect.settings import get_current_settings
import capim
from capim.flows.execution import start
heartbeat = lambda: get_current_settings().flows.heartbeat_frequency
result = lambda raise_on_failure, found: found
run = lambda return_state: SimpleNamespace(name="Completed", result=partial(result, found=heartbeat()))
print(heartbeat(), start(run))
"""
    env = {name: value for name, value in os.environ.items() if name != "PREFECT_FLOWS_HEARTBEAT_FREQUENCY"}
    env |= {"PREFECT_API_URL": "http://127.0.0.1:1/api"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["180", str(HEARTBEAT_SECONDS)]  # 180: Prefect's own
