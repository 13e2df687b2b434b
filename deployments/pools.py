"""Work pools that run containers: ``python -m capim.deployments.pools docker|kubernetes --image IMAGE``.

Makes the pools ``capim-cpu`` and ``capim-gpu`` of ``prefect.yaml`` on the server that ``PREFECT_API_URL`` names, in
place of those with the same names: Prefect's own job templates with the image, the workspace and the GPU
filled in. The deployments are those of process workers.
"""

from __future__ import annotations

import argparse
import sys
from copy import deepcopy
from typing import Any, Literal

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.settings import PREFECT_API_URL

Kind = Literal["docker", "kubernetes"]
MOUNT = "/workspace"  # where containers find a workspace that is not at an address
SECRET = "capim"  # noqa: S105 - the name of the Kubernetes secret, with AWS_ACCESS_KEY_ID and the like


def job_template(
    default: dict[str, Any], kind: Kind, *, image: str, workspace: str | None, gpu: bool
) -> dict[str, Any]:
    """Return Prefect's base job template of a kind with the values of one pool.

    Args:
        default: As the server has it.
        kind: Of the pool.
        image: Made with ``deployments/Dockerfile``.
        workspace: A folder of the Docker host, or a Kubernetes volume claim, that is mounted at ``/workspace``; None:
            the workspace is at an address such as ``s3://bucket/capim``.
        gpu: Whether each run gets an NVIDIA GPU.
    """
    template = deepcopy(default)
    values = template["variables"]["properties"]
    values["image"]["default"] = image
    if kind == "docker":
        values["volumes"]["default"] = [f"{workspace}:{MOUNT}"] if workspace else []
        # the runtime of NVIDIA's container toolkit, as the default of the Docker daemon, gives these GPUs
        values["env"]["default"] = {"NVIDIA_VISIBLE_DEVICES": "all" if gpu else "none"}
        return template
    pod = template["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    container["envFrom"] = [{"secretRef": {"name": SECRET, "optional": True}}]
    if gpu:
        container["resources"]["limits"]["nvidia.com/gpu"] = 1
    if workspace:
        pod["volumes"] = [{"name": "workspace", "persistentVolumeClaim": {"claimName": workspace}}]
        container["volumeMounts"] = [{"name": "workspace", "mountPath": MOUNT}]
    return template


def main(argv: list[str] | None = None) -> int:
    """Make both pools; return 2 for a wrong request."""
    parser = argparse.ArgumentParser(prog="python -m capim.deployments.pools", description=__doc__)
    parser.add_argument("kind", choices=("docker", "kubernetes"))
    parser.add_argument("--image", required=True, help="image of the CPU pool")
    parser.add_argument("--gpu-image", metavar="IMAGE", help="image of the GPU pool (default: that of the CPU pool)")
    parser.add_argument("--workspace", metavar="W", help=f"folder (docker) or claim (kubernetes) to mount at {MOUNT}")
    args = parser.parse_args(argv)
    if not PREFECT_API_URL.value():
        parser.error("PREFECT_API_URL is not set; run: export PREFECT_API_URL=http://127.0.0.1:4200/api")
    with get_client(sync_client=True) as client:
        view = {"view": "aggregate-worker-metadata"}
        metadata = client.request("GET", "/collections/views/{view}", path_params=view).json()
        default = metadata[f"prefect-{args.kind}"][args.kind]["default_base_job_configuration"]
        for name, image in (("capim-cpu", args.image), ("capim-gpu", args.gpu_image or args.image)):
            gpu = name == "capim-gpu"
            template = job_template(default, args.kind, image=image, workspace=args.workspace, gpu=gpu)
            pool = WorkPoolCreate(name=name, type=args.kind, base_job_template=template)
            client.create_work_pool(pool, overwrite=True)
            sys.stdout.write(f"made {name!r}: {args.kind}, {image}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
