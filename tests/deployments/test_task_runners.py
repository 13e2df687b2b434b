"""The same evaluation on threads, on a Dask cluster and without any engine gives the same rows."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flows.execution import RUNNER_VARIABLE, task_runner
from store import EmbeddingStore
from store.errors import RequestError

CAPIM = str(Path(sys.executable).with_name("capim"))
COMPARED = ["encoder", "corpus", "protocol", "metric", "value", "low", "high", "n_queries", "n_clusters"]


def test_an_unknown_task_runner_is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUNNER_VARIABLE, "spark")
    with pytest.raises(RequestError, match="dask:tcp://host:8786"):
        task_runner()


def rows(workspace: Path) -> list[dict[str, Any]]:
    found = EmbeddingStore.open(str(workspace / "store")).rows("results").select(COMPARED)
    return found.sort_by([(name, "ascending") for name in COMPARED[:4]]).to_pylist()


@pytest.mark.prefect
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_dask_with_a_worker_killed_gives_the_rows_of_threads_and_of_plain_functions(
    installation: Any, tmp_path: Path
) -> None:
    from distributed import LocalCluster

    encoded = tmp_path / "encoded"
    suite = tmp_path / "suite.toml"
    suite.write_text(
        'encoders = ["tiny-clip", "tiny-clip-plain"]\nreplicates = 300\ndevice = "cpu"\n'
        'corpora = ["shapes-winoground"]\n[[corpus]]\nname = "few"\nreader = "shapes"\nn_scenes = 20\n'
    )
    alone = {name: value for name, value in installation.env.items() if name != "PREFECT_API_URL"}
    subprocess.run([CAPIM, "embed", str(suite), "--workspace", str(encoded)], env=alone, check=True, timeout=200)
    found = {}
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        for name, runner in (("plain", None), ("threads", "threads:2"), ("dask", f"dask:{cluster.scheduler_address}")):
            workspace = tmp_path / name
            shutil.copytree(encoded, workspace)
            env = alone if runner is None else {**installation.env, RUNNER_VARIABLE: runner}
            words = [CAPIM, "evaluate", str(suite), "--workspace", str(workspace)]
            process = subprocess.Popen(words, env=env)
            if name == "dask":
                store = EmbeddingStore.open(str(workspace / "store"))
                installation.until("a task is done", lambda store=store: store.rows("results").num_rows)
                os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
            assert process.wait(timeout=200) == 0
            found[name] = rows(workspace)
    assert found["plain"]
    assert found["plain"] == found["threads"] == found["dask"]
