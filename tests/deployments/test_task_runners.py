"""The same benchmark on threads, on a Dask cluster and without any engine gives the same rows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from asyncio import CancelledError
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.context import FlowRunContext
from prefect.exceptions import TerminationSignal

from capim.flows.execution import (
    RUNNER_VARIABLE,
    TIMEOUT_VARIABLE,
    TimeLimitError,
    attempt,
    task_runner,
    timeout_seconds,
    within_limit,
)
from capim.store import EmbeddingStore
from capim.store.errors import RequestError, WorkError
from tests.command import command
from tests.deployments.conftest import suite_of
from tests.encoders.own_module import own_encoder

CAPIM = str(Path(sys.executable).with_name("capim"))
KEYS = {"results": "result", "comparisons": "comparison", "slices": "slice"}
OF_THIS_RUN = {"run", "created", "image_tag", "caption_tag"}


@pytest.mark.parametrize("runner", ["spark", "threads:0", "dask:0"])
def test_an_unknown_task_runner_is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch, runner: str) -> None:
    monkeypatch.setenv(RUNNER_VARIABLE, runner)
    with pytest.raises(RequestError, match="dask:tcp://host:8786"):
        task_runner()


def test_a_time_limit_is_hours_from_the_environment_or_the_flows_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TIMEOUT_VARIABLE, raising=False)
    assert timeout_seconds(24) == 24 * 3600
    monkeypatch.setenv(TIMEOUT_VARIABLE, "0.5")
    assert timeout_seconds(24) == 1800
    for wrong in ("never", "0", "-1", "nan", "inf"):
        monkeypatch.setenv(TIMEOUT_VARIABLE, wrong)
        with pytest.raises(RequestError, match="is not a number of hours above 0"):
            timeout_seconds(24)


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), CancelledError(), TerminationSignal(signal.SIGTERM)], ids=repr)
def test_what_stops_a_run_is_no_failure_of_one_encoder(stop: BaseException) -> None:
    def work() -> None:
        raise stop

    with pytest.raises(type(stop)):
        attempt(work)


@pytest.mark.parametrize(("seconds", "error"), [(3, TimeLimitError), (60, WorkError)])
def test_an_error_after_the_time_limit_is_the_limits(
    monkeypatch: pytest.MonkeyPatch, seconds: float, error: type[Exception]
) -> None:
    began = SimpleNamespace(start_time=datetime.now(UTC) - timedelta(seconds=5))
    monkeypatch.setattr(FlowRunContext, "get", lambda: began)
    with pytest.raises(error), within_limit(seconds):
        raise WorkError("writing table 'results': the cancelled rows")  # what Lance makes of a cancelled iterator


def rows(workspace: Path) -> dict[str, list[dict[str, Any]]]:
    """Everything that the benchmark computed from the vectors, without whose run it was and what the clock said."""
    store = EmbeddingStore.open(str(workspace / "store"))
    found = {}
    for table, key in KEYS.items():
        listed = store.rows(table).sort_by(key).to_pylist()
        found[table] = [{name: row[name] for name in row.keys() - OF_THIS_RUN} for row in listed]
    return found


def n_results(uri: str) -> int:
    try:
        return EmbeddingStore.open(uri).rows("results").num_rows
    except RequestError:  # there is no store yet
        return 0


@pytest.mark.prefect
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_dask_with_a_worker_killed_gives_the_rows_of_threads_and_of_plain_functions(
    installation: Any, tmp_path: Path
) -> None:
    from distributed import LocalCluster

    settings = 'replicates = 100\nshards = 2\nanalyses = ["complexity", "errors", "tags"]\n'
    settings += '[[corpus]]\nname = "pairs"\nreader = "shapes-winoground"\nn_quadruples = 12\n'
    encoders = [own_encoder(tmp_path / name, seed=seed) for seed, name in enumerate(("one", "other"))]
    suite = suite_of(tmp_path / "suite.toml", *encoders, n_scenes=12, settings=settings)

    def begun(name: str, env: dict[str, str], *more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([CAPIM, "run", str(suite), "--workspace", str(tmp_path / name), *more], env=env)

    parts = ("--parts", "3")  # as many pieces of the gallery: the rows are the same
    threads = begun("threads", {**installation.env, RUNNER_VARIABLE: "threads:2"}, *parts)
    command(f"run {suite} --quiet", tmp_path / "plain")
    assert threads.wait(timeout=600) == 0
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        dask = begun("dask", {**installation.env, RUNNER_VARIABLE: f"dask:{cluster.scheduler_address}"}, *parts)
        installation.until("a task is done", lambda: n_results(str(tmp_path / "dask" / "store")))
        os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
        assert dask.wait(timeout=300) == 0
    found = {name: rows(tmp_path / name) for name in ("plain", "threads", "dask")}
    assert all(found["plain"].values())
    assert found["plain"] == found["threads"] == found["dask"]
