"""A real S3 API on loopback (moto's server), and commands that write to it at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moto.server import ThreadedMotoServer

CAPIM = str(Path(sys.executable).with_name("capim"))
WORKSPACE = "s3://capim/work"


def serve(port: int = 0) -> ThreadedMotoServer:
    """Return moto's server, which answers on this port of the machine, or on a free one."""
    from moto.server import ThreadedMotoServer

    _write_atomically()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    return server


@cache
def _write_atomically() -> None:
    """Let moto store one object at a time, from now on.

    S3 refuses all but one of the writers that create the same key, on which Lance's commits rest. moto 5.2.5 looks for
    the key and stores it in two steps: two of six writers at once succeeded with 5 of 150 keys.
    """
    from moto.s3.responses import S3Response

    one_at_a_time = threading.RLock()

    def locked(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def alone(*arguments: Any, **named: Any) -> Any:
            with one_at_a_time:
                return method(*arguments, **named)

        return alone

    for name in ("_key_response_put", "_key_response_post"):
        setattr(S3Response, name, locked(getattr(S3Response, name)))


@contextmanager
def bucket() -> Iterator[dict[str, str]]:
    """An empty bucket ``capim``; gives what a process needs in its environment to reach it."""
    import boto3

    server = serve()
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
