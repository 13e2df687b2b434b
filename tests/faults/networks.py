"""Networks that go away: an object store that stops answering, a hub and a server that cannot be reached."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.deployments.object_storage import serve
from tests.faults.fault import NotTried, Scene, expect, faults
from tests.faults.process import FIXED, LONGEST_SECONDS, Done, Failed

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
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else a line for every request
        self.server = serve(self.port)
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
    keys = {name.lower(): SECRETS[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys)
    client.create_bucket(Bucket=made.name)
    scene.workspace = f"s3://{made.name}/work"
    scene.capim = replace(scene.capim, environment={**SECRETS, "AWS_ENDPOINT_URL": endpoint})
    return made


def cut(scene: Scene, *words: str, before: str = "", seconds: float | None = None) -> str:
    """The object store is away for some seconds, or until the command has given up."""
    made = bucket(scene)
    if before:
        scene.run(before).must(0)
    n = made.n_objects() + scene.random.randint(1, 60 if words == ("embed",) else 20)
    running = scene.start(*words)
    if not running.works_until(lambda: made.n_objects() >= n):
        return f"ended before object {n}: {running.wait().must(0).code}"
    made.down()
    if seconds is not None:
        time.sleep(seconds)
        made.up()
        done = running.wait().must(0, 1)
    else:
        done = running.wait().must(1)
        made.up()
    return f"cut at object {n}, ended with {done.code}: {done.said}"


def kill_writer(scene: Scene) -> str:
    """``kill -9`` of an encode into an object store."""
    made = bucket(scene)
    n = scene.random.randint(2, 60)
    killed = scene.start("embed").kill_when(lambda: made.n_objects() >= n)
    return f"killed at object {n}" if killed else f"ended before object {n}"


def _alone(scene: Scene, *words: str, environment: dict[str, str], apart: bool = True) -> Done:
    """``capim`` from its beginning, where there is no network at all."""
    if apart and (os.geteuid() != 0 or shutil.which("unshare") is None):
        raise NotTried("a process without network needs root and unshare")
    command = [*(["unshare", "--net"] if apart else []), CAPIM, *words, "--workspace", scene.workspace]
    kept = {name: value for name, value in os.environ.items() if name not in {"HF_HUB_OFFLINE", "HF_HOME"}}
    run = partial(subprocess.run, command, capture_output=True, text=True, timeout=LONGEST_SECONDS)
    try:
        done = run(env={**kept, **environment}, check=False)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"`capim {' '.join(words)}` did not end without a network: {error.stderr!r:.500}") from error
    return Done(words, done.returncode, done.stdout, done.stderr)


def without_network(scene: Scene) -> str:
    """The tiny models need no network."""
    scene.begin_from()
    _alone(scene, "run", str(scene.ground.suite), "--quiet", environment=FIXED).must(0)
    return "done"


def orchestrator_away(scene: Scene) -> str:
    """A run that should show itself on a Prefect server that is not there says so and leaves the store as it was."""
    scene.begin_from("embedded")
    environment = {**FIXED, "PREFECT_API_URL": "http://127.0.0.1:9/api", "PREFECT_HOME": str(scene.folder / "prefect")}
    done = _alone(scene, "run", str(scene.ground.suite), "--quiet", environment=environment, apart=False)
    expect(done.code in (0, 1), f"ended with {done.code}: {done.err[-600:]}")
    expect("Traceback" not in done.err, f"no words for users: {done.err[-900:]}")
    return f"exit {done.code}: {done.said}"


FAULTS = faults(
    "network cuts",
    {
        "object store away until the encode gives up": lambda s: cut(s, "embed"),
        "object store away for a second, encoding": lambda s: cut(s, "embed", seconds=1),
        "object store away, scoring": lambda s: cut(s, "evaluate", before="embed"),
        "object store away, reporting": lambda s: cut(s, "report", before="run"),
        "an encode into an object store killed": kill_writer,
        "no network at all": without_network,
        "the Prefect server away": orchestrator_away,
    },
)
