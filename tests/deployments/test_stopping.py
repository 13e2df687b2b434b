"""What stops a run stops it in every kind of step: a cancel, the time limit, and Ctrl-C.

The time limit is tried with a real `capim run` and a cancel with a worker's run, held in one step, asleep. In every
kind of step, a run of this process is interrupted: all three ways raise an error in the thread of the step that is no
``Exception``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from datetime import datetime
from functools import wraps
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import psutil
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from capim.flows.execution import LATE, TIMEOUT_VARIABLE
from capim.store import EmbeddingStore
from capim.store.schema import Run
from tests.command import command
from tests.deployments.conftest import PATIENCE, ROOT, suite_of
from tests.encoders.own_module import own_encoder

pytestmark = [pytest.mark.prefect, pytest.mark.slow, pytest.mark.timeout(2400)]
STEPS = (
    *("embed:embed_corpora", "evaluate:score", "compare:compare_corpus"),
    *("report:diagnose_corpus", "report:publish_report"),
)
LIMIT = 60.0 * PATIENCE / 3  # seconds, in which the held step has to begin
SOON = 10.0 * PATIENCE / 3  # seconds, while the processors have nothing else to do
HOLD = """
import functools, os, time

if "HELD" in os.environ:
    import capim.tasks.prefects.task as module

    declare = module.task

    def task(name, **options):
        def held(function):
            @functools.wraps(function)
            def run(*args, **kwargs):
                with open(os.environ["HELD_FILE"], "w", buffering=1) as file:
                    print(os.getpid(), file=file)
                    try:
                        end = time.monotonic() + float(os.environ.pop("HELD_SECONDS", 0))  # only the first of its name
                        while time.monotonic() < end:
                            time.sleep(0.2)
                    except BaseException as error:
                        print(type(error).__name__, file=file)
                        raise
                return function(*args, **kwargs)

            return declare(name, **options)(run if name == os.environ["HELD"] else function)

        return held

    module.task = task
"""
"""``sitecustomize.py`` of the runs: a task of one name sleeps before it does anything, and writes what wakes it."""


def held(workspace: Path, task: str) -> dict[str, str]:
    """What holds a run of a workspace in one task."""
    return {"HELD": task, "HELD_FILE": f"{workspace}.held", "HELD_SECONDS": "600", "CAPIM_WORKSPACE": str(workspace)}


def told(workspace: Path) -> list[str]:
    """The process that is held, and what woke it."""
    file = Path(f"{workspace}.held")
    return file.read_text().split() if file.exists() else []


def record(installation: Any, workspace: Path) -> tuple[Run, dict[str, Any]]:
    """The row of the run that was held, and the server's record of it; its tasks have ended, too."""
    [pid, *_] = told(workspace)
    [row] = [row for row in EmbeddingStore.open(f"{workspace}/store").all(Run) if row.pid == int(pid)]
    tasks = installation.post("/task_runs/filter", {"flow_runs": {"id": {"any_": [str(row.flow_run)]}}})
    assert {task["state_name"] for task in tasks} == {"Completed", "Crashed"}
    return row, installation.get(f"/flow_runs/{row.flow_run}")


def soon() -> float:
    """Seconds in which a run has to end: more, while more processes are ready to run than there are processors."""
    return SOON * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``suite.toml``, and a workspace ``before`` in which fewer replicates of it were run."""
    folder = tmp_path_factory.mktemp("held")
    encoders = [own_encoder(folder / name, seed=seed) for seed, name in enumerate(("one", "other"))]
    few = 'protocols = ["t2i/all"]\nanalyses = ["complexity"]\n'
    for name, replicates in (("suite", 200), ("before", 100)):
        suite_of(folder / f"{name}.toml", *encoders, settings=f"replicates = {replicates}\n{few}")
    command(f"run {folder / 'before.toml'} --quiet", folder / "before")
    (folder / "sitecustomize.py").write_text(HOLD)
    return folder


def test_a_run_is_ended_by_its_time_limit(before: Path, installation: Any, tmp_path: Path) -> None:
    workspace = Path(shutil.copytree(before / "before", tmp_path / "limit"))
    env = {**installation.env, **held(workspace, "score"), "PYTHONPATH": f"{before}:{ROOT}"}
    words = [sys.executable, "-m", "capim", "run", str(before / "suite.toml")]
    process = subprocess.Popen(words, env={**env, TIMEOUT_VARIABLE: str(LIMIT / 3600)}, stderr=subprocess.PIPE)
    _, said = process.communicate(timeout=10 * LIMIT)
    ended = time.time()
    assert told(workspace)[1:] == ["CancelledError"]
    row, found = record(installation, workspace)
    assert ended - datetime.fromisoformat(found["start_time"]).timestamp() < LIMIT + soon()
    assert (process.returncode, row.state, row.message) == (1, "failed", f"TimeLimitError: {LATE}")
    assert found["state"]["name"] == "TimedOut"
    assert "the run took longer than its time limit" in " ".join(said.decode().split())


def test_a_run_is_cancelled_on_the_server(before: Path, installation: Any, tmp_path: Path) -> None:
    workspace = Path(shutil.copytree(before / "before", tmp_path / "cancel"))
    suite = tomllib.loads((before / "suite.toml").read_text())
    config = {"corpora": suite.pop("corpus"), "encoders": suite.pop("encoder"), **suite}
    env = {**held(workspace, "publish"), "PYTHONPATH": f"{before}:{ROOT}"}
    nightly = installation.get("/deployments/name/benchmark/nightly-benchmark")["id"]
    asked = {"parameters": {"config": config}, "job_variables": {"env": env}}
    with installation.worker("capim-cpu"):
        run = installation.post(f"/deployments/{nightly}/create_flow_run", asked)["id"]
        [pid] = installation.until("it is held", lambda: told(workspace), seconds=200)
        cancelled, limit = time.time(), soon()
        cancelling = {"type": "CANCELLING", "name": "Cancelling"}
        installation.post(f"/flow_runs/{run}/set_state", {"state": cancelling})
        installation.until("its process has ended", lambda: not psutil.pid_exists(int(pid)))
        assert time.time() - cancelled < limit
        assert installation.ended(run, seconds=30) == "CANCELLED"
    assert told(workspace)[1:] == ["TerminationSignal"]
    row, found = record(installation, workspace)
    assert found["id"] == run
    assert (row.state, row.message) == ("cancelled", None)


@pytest.mark.parametrize("step", STEPS)
def test_a_run_is_interrupted_in_every_kind_of_step(
    step: str, before: Path, installation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = resolve_name(f"capim.tasks.{step}")
    woken: list[str] = []

    @wraps(task.fn)
    def interrupted(*_: object, **__: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except BaseException as error:
            woken.append(type(error).__name__)
            raise

    monkeypatch.setattr(task, "fn", interrupted)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background of a shell ignores it
    shutil.copytree(before / "before", tmp_path / "workspace")
    with temporary_settings({PREFECT_API_URL: installation.api}):
        command(f"run {before / 'suite.toml'} --quiet", tmp_path / "workspace", code=130)
    assert woken == ["KeyboardInterrupt"]
    row = max(EmbeddingStore.open(tmp_path / "workspace" / "store").all(Run), key=lambda run: run.started)
    assert (row.state, row.message) == ("interrupted", None)

    def states() -> set[str]:
        tasks = installation.post("/task_runs/filter", {"flow_runs": {"id": {"any_": [str(row.flow_run)]}}})
        names = {task["state_name"] for task in tasks}
        return names if "Crashed" in names else set()

    assert installation.until("its tasks have ended", states, seconds=20) == {"Completed", "Crashed"}
    assert installation.state(str(row.flow_run)) in ("CRASHED", "CANCELLED")
