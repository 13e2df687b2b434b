"""One real Prefect server for the session, and workers, as the processes that an installation has."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.encoders.own_module import encoder_table

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = float(os.environ.get("CAPIM_TEST_PATIENCE") or 3)  # a longer wait costs nothing where all is well
PREFECT = str(Path(sys.executable).with_name("prefect"))


def suite_of(file: Path, *encoders: dict[str, Any], corpus: str = "few", n_scenes: int = 8, settings: str = "") -> Path:
    """Writes a suite of encoders and of rendered scenes, with these settings."""
    scenes = f'[[corpus]]\nname = "{corpus}"\nreader = "shapes"\nn_scenes = {n_scenes}\n'
    file.write_text(f'device = "cpu"\n{settings}{"".join(map(encoder_table, encoders))}{scenes}')
    return file


def until(what: str, look: Callable[[], Any], *, seconds: float = 120) -> Any:
    """Ask again until the answer is not empty."""
    end = time.monotonic() + PATIENCE * seconds
    while time.monotonic() < end:
        with suppress(httpx.TransportError):
            if answer := look():
                return answer
        time.sleep(0.5)
    raise TimeoutError(f"not after {seconds} s: {what}")


def kill(process: subprocess.Popen[bytes]) -> None:
    """``kill -9`` of a process and of everything that it started."""
    with suppress(psutil.NoSuchProcess):
        for each in (*psutil.Process(process.pid).children(recursive=True), process):
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                os.kill(each.pid, signal.SIGKILL)
    process.wait(timeout=30)


@dataclass
class Installation:
    """A Prefect server with its own home on a free port, and a workspace."""

    home: Path
    workspace: Path
    port: int
    server: subprocess.Popen[bytes] | None = None
    env: dict[str, str] = field(default_factory=dict)

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    until = staticmethod(until)
    kill = staticmethod(kill)

    def start_server(self) -> None:
        log = (self.home / "server.log").open("ab")
        words = [PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(self.port)]
        self.server = server = subprocess.Popen(words, env=self.env, stdout=log, stderr=log, start_new_session=True)

        def answers() -> bool:
            assert server.poll() is None, (self.home / "server.log").read_text()
            return httpx.get(f"{self.api}/health").is_success

        until("the server answers", answers, seconds=150)

    def stop_server(self) -> None:
        if self.server is not None:
            kill(self.server)
            self.server = None

    def shell(self, *words: str, seconds: float = 150) -> str:
        """What a command says, standard error after standard output; it has to end well."""
        done = subprocess.run(
            words, env=self.env, cwd=ROOT, check=False, capture_output=True, text=True, timeout=PATIENCE * seconds
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def prefect(self, *words: str) -> str:
        return self.shell(PREFECT, "--no-prompt", *words)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The server's answer."""
        return self._answer("POST", path, body).json()

    def emit(self, event: dict[str, Any]) -> None:
        self._answer("POST", "/events", [event])

    def _answer(self, method: Any, path: Any, body: Any = None) -> httpx.Response:
        """What Prefect's own client gets, which asks again while the server's database is busy."""
        from prefect.client.orchestration import get_client
        from prefect.settings import PREFECT_API_URL, temporary_settings

        with temporary_settings({PREFECT_API_URL: self.api}), get_client(sync_client=True) as client:
            return client.request(method, path, json=body)

    def get(self, path: str) -> Any:
        return self._answer("GET", path).json()

    def patch(self, path: str, body: dict[str, Any]) -> None:
        self._answer("PATCH", path, body)

    def delete(self, path: str) -> None:
        self._answer("DELETE", path)

    def runs(self, deployment: str) -> list[dict[str, Any]]:
        """Runs of a deployment (``flow/name``), the oldest first."""
        found = self.get(f"/deployments/name/{deployment}")
        filters = {"deployments": {"id": {"any_": [found["id"]]}}, "sort": "EXPECTED_START_TIME_ASC"}
        return list(self.post("/flow_runs/filter", filters))

    def begin(self, deployment: str, config: dict[str, Any]) -> str:
        """A run of a deployment with these fields of its configuration; returns its id."""
        found = self.get(f"/deployments/name/{deployment}")
        asked = {"parameters": {"config": config}}
        return str(self.post(f"/deployments/{found['id']}/create_flow_run", asked)["id"])

    def state(self, run: str) -> str | None:
        """The state that a run ended in; None while it goes on."""
        state = self.get(f"/flow_runs/{run}")["state"]
        return str(state["type"]) if state["type"] in {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"} else None

    def ended(self, run: str, *, seconds: float = 120) -> str:
        """The state that a run ended in."""
        return str(until(f"run {run} ends", lambda: self.state(run), seconds=seconds))

    def artifacts(self, run: str) -> list[dict[str, Any]]:
        filters = {"artifacts": {"flow_run_id": {"any_": [run]}}}
        return list(self.post("/artifacts/filter", filters))

    @contextmanager
    def worker(self, pool: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        log = (self.home / f"worker-{pool}.log").open("ab")
        words = [PREFECT, "worker", "start", "--pool", pool, *options]
        process = subprocess.Popen(words, env=self.env, cwd=self.home, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            kill(process)


def installation_at(home: Path, workspace: Path) -> Installation:
    """A server that is not started yet, on a free port, that looks at its work every few seconds."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        made = Installation(home=home, workspace=workspace, port=free.getsockname()[1])
    settings = (ROOT / "deployments" / "server.env").read_text().splitlines()
    made.env = {
        **os.environ,
        **dict(line.split("=", 1) for line in settings if not line.startswith("#")),
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": made.api,
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_RUNNER_POLL_FREQUENCY": "1",
        "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "3",
        "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "3",
        "PREFECT_CLI_COLORS": "false",
        "PYTHONPATH": str(ROOT),
        "CAPIM_WORKSPACE": str(workspace),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    return made


@pytest.fixture
def installation(installed: Installation) -> Installation:
    """The session's server and deployments; started again if an earlier test took it down."""
    if installed.server is None:
        installed.start_server()
    return installed


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A server with both pools and everything of ``prefect.yaml`` deployed."""
    from prefect.workers.process import ProcessWorker

    made = installation_at(tmp_path_factory.mktemp("prefect"), tmp_path_factory.mktemp("workspace"))
    try:
        made.start_server()
        template = ProcessWorker.get_default_base_job_template()
        for pool in ("capim-cpu", "capim-gpu"):
            made.post("/work_pools/", {"name": pool, "type": "process", "base_job_template": template})
        made.prefect("deploy", "--prefect-file", "deployments/prefect.yaml", "--all")
        made.shell(sys.executable, "-m", "capim.deployments.turns")
        yield made
    finally:
        made.stop_server()
