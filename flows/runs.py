"""The record of a run: where it came from, library versions, how it ended; and flow `prune`: how many are kept."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from prefect.context import FlowRunContext
from prefect.runtime import deployment, flow_run

from capim.flows.config import RunConfig
from capim.flows.execution import RUNNER_VARIABLE, deployed_fields, run_flow
from capim.reports.destination import folders_of, remove_folder
from capim.store import EmbeddingStore
from capim.store.errors import RequestError, WorkError, without_credentials
from capim.store.maintenance.removal import compact_store, discard_if_empty, plan_pruning
from capim.store.maintenance.removal import prune as remove
from capim.store.schema import RUNS
from capim.tasks.runtime.references import Missing, library_versions, this_host

_ENCODING = ("benchmark", "embed", "import", "watch")  # kinds of runs that create a store where there is none


@contextmanager
def recorded_run(config: RunConfig, kind: str) -> Iterator[str]:
    """Write a ``runs`` row with the state running, then completed, incomplete or failed; gives the id of the run.

    Ids sort by time: ``20261120T192233-benchmark-3f9a``. A run that called :func:`record_end` keeps what that wrote,
    unless an error follows. Runs of this host whose process has died become interrupted.
    """
    _check_workspace(config.workspace)
    started = datetime.now(UTC)
    run = f"{started:%Y%m%dT%H%M%S}-{kind}-{secrets.token_hex(2)}"
    store, is_new = _opened(config.store_uri, create=kind in _ENCODING)
    row = {
        "run": run,
        "name": config.name,
        "config": without_credentials(json.dumps(dataclasses.asdict(config))),
        "command": without_credentials(_command()),
        "versions": json.dumps(library_versions()),
        "host": this_host(),
        "started": started,
        "finished": None,
        "state": "running",
        "message": None,
        "pid": os.getpid(),
        "flow_run": flow_run.id,
        "deployment": _deployment(),
    }
    _end_the_dead(store)

    def write(**changes: object) -> None:
        store.write_rows("runs", pa.Table.from_pylist([{**row, **changes}], schema=RUNS), replace="run")

    write()
    try:
        yield run
    except IncompleteError as error:
        _end(store, run, error.missing)
        raise
    except BaseException as error:
        message = without_credentials(" ".join(str(error).split()))
        write(state="failed", finished=datetime.now(UTC), message=f"{type(error).__name__}: {message}")
        if is_new and isinstance(error, RequestError):
            discard_if_empty(store)
        raise
    _end(store, run, ())


def _opened(store_uri: str, *, create: bool) -> tuple[EmbeddingStore, bool]:
    """The store, and whether it was made just now."""
    try:
        return EmbeddingStore.open(store_uri), False
    except RequestError:
        if not create:
            raise
    return EmbeddingStore.open(store_uri, create=True), True


class IncompleteError(WorkError):
    """Some encoders of a run failed, the others have what they should; carries what the run would have returned."""

    def __init__(self, done: object, missing: Sequence[Missing]) -> None:
        self.done = done
        self.missing = tuple(missing)
        super().__init__("\n  - ".join([f"{_failures(missing)}; the others are complete:", *_reasons(missing)]))

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.done, self.missing))


def record_end(config: RunConfig, run: str, missing: Sequence[Missing]) -> None:
    """Write into the record of a run how it ended and which of its encoders failed, before its report is made."""
    _end(EmbeddingStore.open(config.store_uri), run, missing)


def _end(store: EmbeddingStore, run: str, missing: Sequence[Missing]) -> None:
    """Write how a run ended, unless that is written."""
    [row] = store.rows("runs", run=run).to_pylist()
    if row["state"] in ("running", "interrupted"):  # taken for dead by a process with other numbers, in a container
        message = f"{_failures(missing)}: {'; '.join(_reasons(missing))}"
        row |= {"state": "incomplete", "message": message} if missing else {"state": "completed"}
        row["finished"] = datetime.now(UTC)
        store.write_rows("runs", pa.Table.from_pylist([row], schema=RUNS), replace="run")


def _failures(missing: Sequence[Missing]) -> str:
    subjects = len({each.subject for each in missing})
    return f"{subjects} encoder{'s' if subjects > 1 else ''} failed"


def _reasons(missing: Sequence[Missing]) -> list[str]:
    return [f"{each.subject}: {each.reason}" for each in missing]


def _end_the_dead(store: EmbeddingStore) -> None:
    """Write that a run was interrupted if its process, on this host, is no more."""
    running = store.rows("runs", state="running", host=this_host()).to_pylist()
    if dead := [row for row in running if not _is_alive(row["pid"], row["started"])]:
        ended = {"state": "interrupted", "finished": datetime.now(UTC), "message": "its process died"}
        store.write_rows("runs", pa.Table.from_pylist([row | ended for row in dead], schema=RUNS), replace="run")


def _is_alive(pid: int, since: datetime) -> bool:
    """Whether a process of this host lives; one that began after ``since`` is another one with the same number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it lives, and is another user's
        pass
    if not Path("/proc/stat").exists():  # macOS
        return True
    ticks = int(Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[19])
    [booted] = [line.split()[1] for line in Path("/proc/stat").read_text("utf-8").splitlines() if line[:5] == "btime"]
    return int(booted) + ticks / os.sysconf("SC_CLK_TCK") <= since.timestamp() + 1


def _deployment() -> str | None:
    """``FLOW/NAME`` of the deployment that this run is of."""
    return f"{flow_run.flow_name}/{deployment.name}" if deployment.id is not None else None


def _command() -> str:
    """What makes this run again: the words that were typed, or of a deployment those that start it."""
    name = _deployment()
    context = FlowRunContext.get()
    if name is not None and context is not None and context.flow_run is not None:
        parameters = dict(context.flow_run.parameters)
        deployed = deployed_fields(deployment_id) if (deployment_id := context.flow_run.deployment_id) else {}
        own = {k: v for k, v in (parameters.pop("config", None) or {}).items() if deployed.get(k) != v}
        given = {**({"config": own} if own else {}), **{k: v for k, v in parameters.items() if v is not None}}
        words = [word for key, value in given.items() for word in ("--param", f"{key}={json.dumps(value)}")]
        return shlex.join(["prefect", "deployment", "run", name, *words])
    program = Path(sys.argv[0]).name
    if program in ("capim", "cli.py"):
        return shlex.join(["capim", *sys.argv[1:]])
    return "a notebook" if program.startswith("ipykernel") else shlex.join(["python", program, *sys.argv[1:]])


def _check_workspace(workspace: str) -> None:
    """Refuse a relative workspace where other processes with other folders have to find it.

    These are the workers of a deployment, which run in a temporary folder that is deleted, and of a Dask cluster.
    """
    elsewhere = "a deployment runs in a temporary folder" if deployment.id is not None else ""
    if FlowRunContext.get() is not None and "://" in os.environ.get(RUNNER_VARIABLE, ""):
        elsewhere = elsewhere or f"the workers of {os.environ[RUNNER_VARIABLE]} have folders of their own"
    if elsewhere and "://" not in workspace and not Path(workspace).is_absolute():
        raise RequestError(
            f"workspace {workspace!r} is relative, but {elsewhere}; give an absolute path or a URI (CAPIM_WORKSPACE "
            "or --workspace; in a deployment config.workspace)"
        )


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """What went, or would go.

    Attributes:
        rows: Table -> number of rows.
        tables: Embedding sets and corpora.
        reports: Folders of older runs' reports.
        freed: Table -> bytes; empty for a plan.
        running: Ids of the runs that have not ended: what they may use stays.
    """

    rows: dict[str, int]
    tables: tuple[str, ...]
    reports: tuple[str, ...]
    freed: dict[str, int]
    running: tuple[str, ...]


@run_flow("prune", hours=24)
def prune(config: RunConfig, keep: int = 30, done: bool = True) -> Pruned:
    """Keep what reports show, the newest runs, the baselines of watches and what running runs use; remove the rest.

    Args:
        config: The workspace; nothing else of it counts.
        keep: How many of the newest runs are kept, with their reports.
        done: False: only say what would go.
    """
    store = EmbeddingStore.open(config.store_uri)
    if done:
        _end_the_dead(store)
    plan = plan_pruning(store, keep=keep)
    reports = tuple(name for name in folders_of(config.reports_uri) if name < plan.runs[0]) if plan.runs else ()
    freed: dict[str, int] = {}
    if done:
        plan = remove(store, plan)
        for name in reports:
            remove_folder(f"{config.reports_uri}/{name}")
        freed = compact_store(store)
    return Pruned(
        rows={table: n for table, (_, _, n) in plan.rows.items()},
        tables=plan.tables,
        reports=reports,
        freed=freed,
        running=plan.running,
    )
