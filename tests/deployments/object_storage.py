"""A real S3 API on loopback (moto's server), and commands that write to it at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CAPIM = str(Path(sys.executable).with_name("capim"))
WORKSPACE = "s3://capim/work"


@contextmanager
def bucket() -> Iterator[dict[str, str]]:
    """An empty bucket ``capim``; gives what a process needs in its environment to reach it."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    reach = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "not-to-be-told",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
    }
    try:
        client = boto3.client("s3", endpoint_url=reach["AWS_ENDPOINT_URL"], region_name="us-east-1",
                              aws_access_key_id="testing", aws_secret_access_key="testing")  # fmt: skip
        client.create_bucket(Bucket="capim")
        yield reach
    finally:
        server.stop()


def run_at_once(commands: Sequence[Sequence[str]], reach: dict[str, str], *, seconds: float) -> list[str]:
    """Runs ``capim`` with each of these words side by side; all have to end well. Gives their standard outputs."""
    environment = {name: value for name, value in {**os.environ, **reach}.items() if name != "PREFECT_API_URL"}
    running = [
        subprocess.Popen([CAPIM, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for words in commands
    ]
    printed = []
    for process in running:
        out, said = process.communicate(timeout=seconds)
        if process.returncode:
            raise RuntimeError(said)
        if reach["AWS_SECRET_ACCESS_KEY"] in out + said:
            raise RuntimeError("the command prints the secret")
        printed.append(out.strip())
    return printed
