"""What stops a run stops it in every kind of step: a cancel, the time limit, and Ctrl-C; and nothing else does.

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
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import psutil
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from capim.deployments.automations import HEARTBEAT, SILENCE
from capim.deployments.automations import main as apply_automations
from capim.flows import HEARTBEAT_SECONDS
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
LIMIT = 60.0 * PATIENCE / 3  # seconds, in which the held step has to begin; another case takes longer
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


@dataclass
class Case:
    """A run that is held in one step.

    Attributes:
        seconds: From the stop to the end of the process.
        soon: Seconds in which it has to end: more, while more processes are ready to run than there are processors.
        code: What the process ended with; None of a worker's run.
    """

    name: str
    step: str
    folder: Path
    held_seconds: float = 600.0
    process: subprocess.Popen[bytes] | None = None
    run: str = ""
    stopped: float = 0.0
    seconds: float = 0.0
    soon: float = SOON
    code: int | None = None

    @property
    def workspace(self) -> Path:
        return self.folder / f"{self.name}-{self.step}"

    @property
    def env(self) -> dict[str, str]:
        """What holds the run, and where it works."""
        held = {"HELD": self.step, "HELD_FILE": f"{self.workspace}.held", "HELD_SECONDS": str(self.held_seconds)}
        return {**held, "PYTHONPATH": f"{self.folder}:{ROOT}", "CAPIM_WORKSPACE": str(self.workspace)}

    @property
    def told(self) -> list[str]:
        """The process that is held, and what woke it."""
        file = Path(f"{self.workspace}.held")
        return file.read_text().split() if file.exists() else []

    @property
    def row(self) -> Run:
        """Of the run that was held; those after it, and the one that made the workspace, have other numbers."""
        [pid, *_] = self.told
        rows = EmbeddingStore.open(f"{self.workspace}/store").all(Run)
        [row] = [row for row in rows if row.pid == int(pid)]
        return row

    def is_over(self) -> bool:
        if self.process is not None:
            self.code = self.process.poll()
            return self.code is not None
        return not psutil.pid_exists(int(self.told[0]))


def from_a_shell(installation: Any, case: Case, **more: str) -> None:
    words = [sys.executable, "-m", "capim", "run", str(case.folder / "suite.toml")]
    log = (case.folder / f"{case.workspace.name}.log").open("wb")
    case.process = subprocess.Popen(words, env={**installation.env, **case.env, **more}, stdout=log, stderr=log)


def run_on_the_server(installation: Any, case: Case) -> dict[str, Any]:
    """The server's record of a run that has ended, and so have its tasks."""
    run = str(case.row.flow_run)
    tasks = installation.post("/task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
    assert {task["state_name"] for task in tasks} == {"Completed"} | ({"Crashed"} if len(case.told) > 1 else set())
    return dict(installation.get(f"/flow_runs/{run}"))


def without_a_limit_of_runs(installation: Any) -> str:
    """A deployment of the benchmark that several runs of may go on at once; returns its id."""
    found = installation.get("/deployments/name/benchmark/nightly-benchmark")
    same = ("flow_id", "entrypoint", "work_pool_name", "work_queue_name", "job_variables", "pull_steps", "tags")
    made = {"name": "held", "enforce_parameter_schema": False, **{name: found[name] for name in same}}
    return str(installation.post("/deployments/", made)["id"])


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``suite.toml``, and a workspace ``before`` in which fewer replicates of it were run."""
    folder = tmp_path_factory.mktemp("held")
    encoders = [own_encoder(folder / name, seed=seed) for seed, name in enumerate(("one", "other"))]
    few = 'protocols = ["t2i/all"]\nanalyses = ["complexity"]\n'
    for name, replicates in (("suite", 200), ("before", 100)):
        suite_of(folder / f"{name}.toml", *encoders, settings=f"replicates = {replicates}\n{few}")
    command(f"run {folder / 'before.toml'} --quiet", folder / "before")
    return folder


@pytest.fixture(scope="module")
def cases(installed: Any, before: Path) -> Iterator[dict[str, Case]]:
    """How a run ends -> the run, which has ended."""
    if installed.server is None:
        installed.start_server()
    (before / "sitecustomize.py").write_text(HOLD)
    with temporary_settings({PREFECT_API_URL: installed.api}):
        assert apply_automations([]) == 0
    made = [Case("limit", "score", before), Case("cancel", "publish", before)]
    made.append(Case("long", "score", before, held_seconds=SILENCE.total_seconds() + 10))
    for case in made:
        shutil.copytree(before / "before", case.workspace)
    deployment = without_a_limit_of_runs(installed)
    try:
        with installed.worker("capim-cpu"):
            end_all(installed, made, deployment)
        yield {case.name: case for case in made}
    finally:
        for case in made:
            if case.process is not None:
                installed.kill(case.process)


def begin(installed: Any, case: Case, deployment: str) -> None:
    if case.name == "cancel":
        suite = tomllib.loads((case.folder / "suite.toml").read_text())
        config = {"corpora": suite.pop("corpus"), "encoders": suite.pop("encoder"), **suite}
        asked = {"parameters": {"config": config}, "job_variables": {"env": case.env}}
        case.run = installed.post(f"/deployments/{deployment}/create_flow_run", asked)["id"]
    else:
        more = {TIMEOUT_VARIABLE: str(LIMIT / 3600)} if case.name == "limit" else {}
        from_a_shell(installed, case, **more)


def end_all(installed: Any, made: list[Case], deployment: str) -> None:
    """Begin every run, stop it as soon as it is held, and note when its process has ended."""
    for case in made:
        begin(installed, case, deployment)
    for case in made:
        installed.until(f"{case.name} is held", lambda case=case: case.told)
        case.stopped = time.time()
        case.soon = SOON * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        if case.name == "cancel":
            cancelling = {"type": "CANCELLING", "name": "Cancelling"}
            installed.post(f"/flow_runs/{case.run}/set_state", {"state": cancelling})
    going = [*made]

    def over() -> bool:
        for case in [*going]:
            if case.is_over():
                case.seconds = time.time() - case.stopped
                going.remove(case)
        return not going

    installed.until("every run has ended", over, seconds=500)


def test_a_run_is_ended_by_its_time_limit(cases: Any, installation: Any) -> None:
    case = cases["limit"]
    assert case.told[1:] == ["CancelledError"]
    found = run_on_the_server(installation, case)
    begun = datetime.fromisoformat(found["start_time"]).timestamp()
    assert case.stopped + case.seconds - begun < LIMIT + case.soon
    assert (case.code, case.row.state, case.row.message) == (1, "failed", f"TimeLimitError: {LATE}")
    assert found["state"]["name"] == "TimedOut"
    log = (case.folder / f"{case.workspace.name}.log").read_text()
    assert "the run took longer than its time limit" in " ".join(log.split())


def test_a_run_is_cancelled_on_the_server(cases: Any, installation: Any) -> None:
    case = cases["cancel"]
    assert case.told[1:] == ["TerminationSignal"]
    assert case.seconds < case.soon
    assert installation.ended(case.run, seconds=30) == "CANCELLED"
    assert run_on_the_server(installation, case)["id"] == case.run
    assert (case.row.state, case.row.message) == ("cancelled", None)


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


def test_a_run_longer_than_the_silence_of_a_lost_one_is_left_alone(cases: Any, installation: Any) -> None:
    """The automation takes a run without a heartbeat for 90 seconds for lost."""
    case = cases["long"]
    assert case.seconds > SILENCE.total_seconds()
    assert (case.code, case.row.state) == (0, "completed")
    found = run_on_the_server(installation, case)
    assert found["state"]["type"] == "COMPLETED"
    history = installation.get(f"/flow_run_states/?flow_run_id={found['id']}")
    assert "CRASHED" not in {state["type"] for state in history}
    run = {"id": [f"prefect.flow-run.{found['id']}"]}
    sent = installation.post("/events/filter", {"filter": {"event": {"name": [HEARTBEAT]}, "resource": run}})["events"]
    assert len(sent) >= SILENCE.total_seconds() // HEARTBEAT_SECONDS
