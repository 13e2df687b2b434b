"""Stored results as runs of MLflow or of Weights & Biases, where these are installed: one run for each encoder.

A run has the encoder's identity as parameters, every result as a metric, ``CORPUS/PROTOCOL/METRIC`` with ``.low`` and
``.high`` for its interval, and the folder of a report. Absolute paths and passwords in addresses are cut out, as in a
report. Keys and tokens are those that the two libraries find in their own places; nothing of them passes through here.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from capim.reports.rows.report_data import ReportData, without_paths
from capim.store.errors import RequestError, WorkError

EXPERIMENT = "capim"
_BATCH = 1000  # metrics that MLflow's servers take at once


class TrackedRun(NamedTuple):
    """The parameters and metrics logged for one encoder."""

    name: str
    params: dict[str, str]
    metrics: dict[str, float]
    tags: dict[str, str]


def tracked_runs(data: ReportData) -> Iterator[TrackedRun]:
    """Yield one run for each encoder, in the order of their names."""
    corpora = {f"corpus.{name}": corpus.fingerprint for name, corpus in sorted(data.corpora.items())}
    for encoder, spec in sorted(data.specs.items()):
        identity: dict[str, Any] = {**spec.identity(), "fingerprint": spec.fingerprint}
        identity |= {f"options.{name}": value for name, value in identity.pop("options").items()}
        metrics: dict[str, float] = {}
        for row in data.results:
            if row.encoder == encoder:
                name = _metric_name(f"{row.corpus}/{row.protocol}/{row.metric}")
                ends = (("", row.value), (".low", row.ci_low), (".high", row.ci_high))
                metrics |= {name + end: value for end, value in ends if value is not None}
        yield TrackedRun(
            name=encoder,
            params={name: without_paths(str(value)) for name, value in identity.items()},
            metrics=metrics,
            tags={"capim_digest": data.digest, **corpora},
        )


def _metric_name(name: str) -> str:
    """Return a name that both programs accept.

    Examples:
        >>> _metric_name("coco/t2i/all+i2t/any/R@1")
        'coco/t2i/all_i2t/any/R_at_1'
    """
    return re.sub(r"[^\w/.: -]", "_", name.replace("@", "_at_"))


def log_to_mlflow(data: ReportData, target: str, report: Path | None) -> list[str]:
    """Log to an MLflow tracking URI (a server, ``sqlite:///…``, a folder); return a line for each run.

    Raises:
        RequestError: MLflow is not installed, or it does not take the target.
        WorkError: A run that was begun could not be completed; it is marked as failed.
    """
    mlflow = _installed("mlflow", "mlflow-skinny")
    try:
        client = mlflow.MlflowClient(tracking_uri=target)
        known = client.get_experiment_by_name(EXPERIMENT)
        experiment = client.create_experiment(EXPERIMENT) if known is None else known.experiment_id
        return [_to_mlflow(client, experiment, run, report) for run in tracked_runs(data)]
    except mlflow.exceptions.MlflowException as fault:
        raise RequestError(f"MLflow does not take {without_paths(target)!r}: {without_paths(str(fault))}") from fault


def _to_mlflow(client: Any, experiment: str, run: TrackedRun, report: Path | None) -> str:
    entities = importlib.import_module("mlflow.entities")
    created = client.create_run(experiment, run_name=run.name, tags=run.tags)
    key, now = created.info.run_id, created.info.start_time
    metrics = [entities.Metric(name, value, now, 0) for name, value in run.metrics.items()]
    said = f"{run.name}: run {key} of experiment {EXPERIMENT}"
    try:
        for start in range(0, len(metrics), _BATCH):
            client.log_batch(key, metrics=metrics[start : start + _BATCH])
        client.log_batch(key, params=[entities.Param(name, value) for name, value in run.params.items()])
        if report is not None:
            client.log_artifacts(key, str(report), "report")
    except BaseException as fault:
        with suppress(Exception):  # the first error has the cause
            client.set_terminated(key, status="FAILED")
        if not isinstance(fault, Exception):
            raise
        problem = f"{said} is incomplete, and marked as failed: {without_paths(str(fault))}"
        raise WorkError(problem, remedy="Run the same command again") from fault
    client.set_terminated(key)
    return said


def log_to_wandb(data: ReportData, target: str, report: Path | None) -> list[str]:
    """Log to a project of Weights & Biases; return a line for each run. ``WANDB_MODE=offline`` keeps them local.

    The library's own record of the machine, the command line, the code and its output is switched off.

    Raises:
        RequestError: wandb is not installed.
    """
    wandb = _installed("wandb", "wandb")
    unrecorded = ("disable_code", "disable_git", "x_disable_machine_info", "x_disable_meta", "x_disable_stats")
    settings = wandb.Settings(console="off", silent=True, save_code=False, **dict.fromkeys(unrecorded, True))
    lines = []
    for run in tracked_runs(data):
        with wandb.init(
            project=target, name=run.name, config={**run.params, **run.tags}, job_type="evaluation", settings=settings
        ) as started:
            started.summary.update(run.metrics)
            if report is not None:
                artifact = wandb.Artifact("report", type="report")
                artifact.add_dir(str(report))
                started.log_artifact(artifact)
            lines.append(f"{run.name}: run {started.id} of project {target}")
    return lines


def _installed(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as fault:
        raise RequestError(f"{module} is not installed: pip install {package}") from fault


TRACKERS: Mapping[str, Callable[[ReportData, str, Path | None], list[str]]] = {
    "mlflow": log_to_mlflow,
    "wandb": log_to_wandb,
}
