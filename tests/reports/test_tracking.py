"""Stored results in MLflow and Weights & Biases: what is logged, through stand-ins for both libraries."""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from capim.reports.exports.tracking import log_to_mlflow, log_to_wandb, tracked_runs
from capim.reports.rows.reading import read_report_data
from capim.store.errors import RequestError, WorkError
from tests.reports.stand_in import StandIn


def test_what_trackers_get_has_every_figure_and_no_path_of_the_machine(demo_store: StandIn) -> None:
    local = replace(demo_store.specs["tiny-clip"], checkpoint="/home/ada/models/tiny", options={"prompt": "a"})
    specs = {**demo_store.specs, "tiny-clip": local}
    runs = {run.name: run for run in tracked_runs(replace(read_report_data(demo_store), specs=specs))}
    assert runs.keys() == demo_store.specs.keys()
    run = runs["tiny-clip"]
    assert run.params["checkpoint"] == "…/tiny"
    assert run.params["options.prompt"] == "a"
    rows = [r for r in demo_store.tables["results"] if r["encoder"] == "tiny-clip" and r["metric"] == "R@1"]
    for row in rows:
        name = f"{row['corpus']}/{row['protocol']}/R_at_1"
        assert (run.metrics[name], run.metrics[f"{name}.low"]) == (row["value"], row["ci_low"])
    assert rows
    assert not any(set("@+*") & set(name) for name in run.metrics)


class FakeMlflow(ModuleType):
    """As much of MLflow as is called; keeps what is logged."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.logged: dict[str, Any] = {}
        self.exceptions = SimpleNamespace(MlflowException=type("MlflowException", (Exception,), {}))

    def MlflowClient(self, tracking_uri: str) -> FakeMlflow:
        if tracking_uri == "nowhere":
            raise self.exceptions.MlflowException("no /home/ada/secret here")
        return self

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id=name)

    def create_run(self, experiment: str, *, run_name: str, tags: dict[str, str]) -> Any:
        self.logged[run_name] = {"metrics": {}, "params": {}, "tags": tags}
        return SimpleNamespace(info=SimpleNamespace(run_id=run_name, start_time=7))

    def log_batch(self, run: str, **batch: list[Any]) -> None:
        for kind, entries in batch.items():
            assert len(entries) <= {"metrics": 1000, "params": 100}[kind]  # MLflow's own limits
            self.logged[run][kind] |= {entry[0]: entry[1] for entry in entries}

    def log_artifacts(self, run: str, folder: str, at: str) -> None:
        if folder == "nowhere":
            raise PermissionError("/home/ada/mlruns is not writable")
        self.logged[run][at] = folder

    def set_terminated(self, run: str, status: str = "FINISHED") -> None:
        self.logged[run]["ended"] = status


def test_mlflow_and_wandb_get_one_run_for_each_encoder_with_the_report(
    demo_store: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, mlflow = read_report_data(demo_store), FakeMlflow()
    entities = SimpleNamespace(Metric=lambda *values: values, Param=lambda *values: values)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    lines = log_to_mlflow(data, "sqlite:///x.db", tmp_path)
    assert lines[0].startswith("tiny-clip: run tiny-clip of experiment capim")
    for run in tracked_runs(data):
        expected = {"metrics": run.metrics, "params": run.params, "tags": run.tags}
        assert mlflow.logged[run.name] == {**expected, "report": str(tmp_path), "ended": "FINISHED"}
    with pytest.raises(
        WorkError, match="run tiny-clip of experiment capim is incomplete, and marked as failed: …/mlruns"
    ):
        log_to_mlflow(data, "sqlite:///x.db", Path("nowhere"))
    assert mlflow.logged["tiny-clip"]["ended"] == "FAILED"
    with pytest.raises(RequestError, match=re.escape("does not take 'nowhere': no …/secret here")):
        log_to_mlflow(data, "nowhere", None)

    seen: list[dict[str, Any]] = []

    def init(**given: Any) -> Any:
        seen.append({**given, "summary": {}, "artifacts": []})
        run = SimpleNamespace(id="1", summary=seen[-1]["summary"], log_artifact=seen[-1]["artifacts"].append)
        return nullcontext(run)

    artifact = SimpleNamespace(add_dir=lambda folder: None)
    wandb = SimpleNamespace(init=init, Settings=dict, Artifact=lambda name, **kind: artifact)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    assert log_to_wandb(data, "project", tmp_path)[0] == "tiny-clip: run 1 of project project"
    for run, given in zip(tracked_runs(data), seen, strict=True):
        assert (given["name"], given["project"], given["summary"]) == (run.name, "project", run.metrics)
        assert given["artifacts"] == [artifact]
        assert given["settings"]["disable_git"] and given["settings"]["x_disable_meta"]

    for name, package, log in (("mlflow", "mlflow-skinny", log_to_mlflow), ("wandb", "wandb", log_to_wandb)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(RequestError, match=f"{name} is not installed: pip install {package}"):
            log(data, "x", None)
