"""Networks that go away: an object store that stops answering, a hub and a server that cannot be reached."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.faults.fault import Failed, Fault, NotTried, Scene, expect
from tests.faults.process import FIXED, LONGEST_SECONDS, Running

CAPIM = str(Path(sys.executable).with_name("capim"))
ACCOUNT = "123456789012"
SECRETS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    # A cut connection is given up after seconds, not after the minutes that suit a real object store.
    "OBJECT_STORE_CLIENT_MAX_RETRIES": "3",
    "OBJECT_STORE_CLIENT_RETRY_TIMEOUT": "5",
}


@dataclass
class Bucket:
    """A bucket on moto's server, whose contents outlast the server."""

    name: str
    port: int = 0
    server: Any = None

    def up(self) -> None:
        """Answer, on the same port as before."""
        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else a line for every request
        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self.server.start()
        self.port = self.server.get_host_and_port()[1]

    def down(self) -> None:
        """Refuse connections."""
        if self.server is not None:
            self.server.stop()
        self.server = None

    def n_objects(self) -> int:
        """How much is in it."""
        from moto.backends import get_backend

        return len(get_backend("s3")[ACCOUNT]["aws"].buckets[self.name].keys)


def bucket(scene: Scene) -> Bucket:
    """The workspace at ``s3://…`` in a bucket of its own."""
    import boto3  # type: ignore[import-untyped]

    made = Bucket(f"capim-{secrets.token_hex(4)}")
    made.up()
    scene.stack.callback(made.down)
    endpoint = f"http://127.0.0.1:{made.port}"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
    client.create_bucket(Bucket=made.name)
    scene.workspace = f"s3://{made.name}/work"
    scene.capim = replace(scene.capim, environment={**SECRETS, "AWS_ENDPOINT_URL": endpoint})
    return made


def cut(scene: Scene, *words: str, before: tuple[str, ...], seconds: float | None) -> str:
    """The object store is away for some seconds, or until the command has given up."""
    made = bucket(scene)
    if before:
        scene.run(*before).must(0)
    n = made.n_objects() + scene.random.randint(1, 60 if words == ("embed",) else 20)
    running = scene.start(*words)
    if not _at_work(running, lambda: made.n_objects() >= n):
        return f"ended before object {n}: {running.wait().must(0).code}"
    made.down()
    if seconds is not None:
        time.sleep(seconds)
        made.up()
        done = running.wait().must(0, 1)
    else:
        done = running.wait().must(1)
        made.up()
    return f"cut at object {n}, ended with {done.code}: {done.err.strip().splitlines()[-1][:110]}"


def kill_writer(scene: Scene) -> str:
    """``kill -9`` of an encode into an object store."""
    made = bucket(scene)
    n = scene.random.randint(2, 60)
    killed = scene.start("embed").kill_when(lambda: made.n_objects() >= n)
    return f"killed at object {n}" if killed else f"ended before object {n}"


def two_writers(scene: Scene) -> str:
    """Two runs of one suite into an object store."""
    bucket(scene)
    for running in [scene.start("run"), scene.start("run")]:
        running.wait().must(0)
    return "both ended well"


def _at_work(running: Running, look: Callable[[], bool]) -> bool:
    ends = time.monotonic() + LONGEST_SECONDS
    while running.process.exitcode is None and time.monotonic() < ends:
        if look():
            return True
        time.sleep(0.005)
    return False


def _alone(scene: Scene, *words: str, environment: dict[str, str], apart: bool = True) -> tuple[int, str, float]:
    """``capim`` from its beginning, where there is no network at all; how it ended, its words, its seconds."""
    unshare = ["unshare", "--net"] if apart else []
    if apart and (os.geteuid() != 0 or shutil.which("unshare") is None):
        raise NotTried("a process without network needs root and unshare")
    kept = {name: value for name, value in os.environ.items() if name not in {"HF_HUB_OFFLINE", "HF_HOME"}}
    begun = time.monotonic()
    try:
        done = subprocess.run(
            [*unshare, CAPIM, *words, "--workspace", scene.workspace],
            env={**kept, **environment},
            capture_output=True,
            text=True,
            timeout=LONGEST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"`capim {' '.join(words)}` did not end without a network: {error.stderr!r:.500}") from error
    return done.returncode, done.stderr, time.monotonic() - begun


def without_network(scene: Scene) -> str:
    """The tiny models need no network."""
    scene.begin_from(None)
    code, said, seconds = _alone(scene, "run", str(scene.ground.suite), "--quiet", environment=FIXED)
    expect(code == 0, f"ended with {code}: {said[-600:]}")
    return f"done in {seconds:.0f} s"


def hub_away(scene: Scene) -> str:
    """A model of the hub is refused with the reason, and nothing of it is in the store."""
    scene.begin_from(scene.ground.whole)
    environment = {**FIXED, "HF_HOME": str(scene.folder / "hub")}
    del environment["HF_HUB_OFFLINE"]
    words = ("run", "--corpora", "shapes", "--encoders", "openai-clip-l-336,tiny-clip", "--quiet")
    code, said, seconds = _alone(scene, *words, environment=environment)
    expect(code in (1, 2), f"ended with {code}: {said[-600:]}")
    expect("Traceback" not in said and "unexpected" not in said, f"no words for users: {said[-900:]}")
    expect("clip-vit-large-patch14-336" in said, f"the message does not name the model: {said[-600:]}")
    return f"exit {code} in {seconds:.0f} s: {said.strip().splitlines()[-1][:140]}"


def orchestrator_away(scene: Scene) -> str:
    """A run that should show itself on a Prefect server that is not there says so and leaves the store as it was."""
    scene.begin_from(scene.ground.embedded)
    environment = {**FIXED, "PREFECT_API_URL": "http://127.0.0.1:9/api", "PREFECT_HOME": str(scene.folder / "prefect")}
    words = ("run", str(scene.ground.suite), "--quiet")
    code, said, seconds = _alone(scene, *words, environment=environment, apart=False)
    expect(code in (0, 1), f"ended with {code}: {said[-600:]}")
    expect("Traceback" not in said, f"no words for users: {said[-900:]}")
    return f"exit {code} in {seconds:.0f} s: {said.strip().splitlines()[-1][:140]}"


FAULTS = [
    Fault(
        "network cuts",
        "object store away until the encode gives up",
        lambda s: cut(s, "embed", before=(), seconds=None),
    ),
    Fault("network cuts", "object store away for a second, encoding", lambda s: cut(s, "embed", before=(), seconds=1)),
    Fault("network cuts", "object store away, scoring", lambda s: cut(s, "evaluate", before=("embed",), seconds=None)),
    Fault("network cuts", "object store away, reporting", lambda s: cut(s, "report", before=("run",), seconds=None)),
    Fault("network cuts", "an encode into an object store killed", kill_writer),
    Fault("network cuts", "two runs into an object store", two_writers),
    Fault("network cuts", "no network at all", without_network),
    Fault("network cuts", "the hub away", hub_away),
    Fault("network cuts", "the Prefect server away", orchestrator_away),
]
