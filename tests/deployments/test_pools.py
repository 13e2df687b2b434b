"""Pools of containers: Prefect's own job templates, with the values of a pool in the places that they have for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import prefect
import pytest

from capim.deployments.pools import MOUNT, Kind, job_template

METADATA = Path(prefect.__file__).parent / "server" / "api" / "collections_data" / "views"
KINDS: tuple[Kind, ...] = ("docker", "kubernetes")


def default(kind: Kind) -> dict[str, Any]:
    """Prefect's base job template of a kind."""
    metadata = json.loads((METADATA / "aggregate-worker-metadata.json").read_text("utf-8"))
    found: dict[str, Any] = metadata[f"prefect-{kind}"][kind]["default_base_job_configuration"]
    return found


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("workspace", [None, "/srv/capim"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_template_has_valid_values_for_variables_that_prefect_has(
    kind: Kind, workspace: str | None, gpu: bool
) -> None:
    template = job_template(default(kind), kind, image="capim:cpu", workspace=workspace, gpu=gpu)
    assert template["variables"]["properties"].keys() == default(kind)["variables"]["properties"].keys()
    given = {
        name: value["default"] for name, value in template["variables"]["properties"].items() if value.get("default")
    }
    jsonschema.validate(given, template["variables"])
    assert given["image"] == "capim:cpu"
    job = json.dumps(template["job_configuration"])
    assert (MOUNT in job + json.dumps(given)) == bool(workspace)
    assert ("nvidia.com/gpu" in job or given.get("env") == {"NVIDIA_VISIBLE_DEVICES": "all"}) == gpu
