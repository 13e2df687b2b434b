"""A broken encoder under Prefect: a failed task in a failed flow run, and everything of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from tests.command import command
from tests.flows.test_incomplete import SOUND, check, suite_of


@pytest.mark.slow
@pytest.mark.prefect
@pytest.mark.timeout(600)
def test_a_broken_encoder_is_a_failed_task_and_the_others_are_complete(installation: Any, tmp_path: Path) -> None:
    suite = suite_of(tmp_path, (), ("checkpoint",))
    with temporary_settings({PREFECT_API_URL: installation.api}):
        done = command(f"run {suite} --quiet", tmp_path / "workspace", code=1)
    assert "  - broken-checkpoint: " in done.err
    named = {"flow_runs": {"name": {"any_": ["benchmark run: tiny-clip +2 on few"]}}}
    [run] = installation.post("/flow_runs/filter", named)
    assert run["state_type"] == "FAILED"
    tasks = installation.post("/task_runs/filter", {"flow_runs": {"id": {"any_": [run["id"]]}}})
    states = {task["name"]: task["state_type"] for task in tasks}
    assert states["embed-broken-checkpoint"] == "FAILED"
    for name in (*(f"embed-{one}" for one in SOUND), *(f"score-{one}-few" for one in SOUND), "diagnose-few"):
        assert states[name] == "COMPLETED"
    check(tmp_path / "workspace", {"broken-checkpoint"})
