"""The record of a run: its configuration, library versions and how it ended; and flow `prune`: how many are kept."""

from __future__ import annotations

import dataclasses
import json
import secrets
import shlex
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from prefect import flow
from prefect.runtime import deployment

from flows.config import RunConfig
from flows.execution import timeout_seconds
from reports.destination import folders_of, remove_folder
from store import EmbeddingStore
from store.errors import RequestError, WorkError, without_credentials
from store.maintenance.cleaning import compact_store
from store.maintenance.removal import discard_if_empty
from store.maintenance.retention import plan_pruning
from store.maintenance.retention import prune as remove
from store.schema import RUNS
from tasks.runtime.references import Missing
from tasks.runtime.versions import library_versions

_ENCODING = ("benchmark", "embed", "import", "watch")  # kinds of runs that create a store where there is none


@contextmanager
def recorded_run(config: RunConfig, kind: str) -> Iterator[str]:
    """Write a ``runs`` row with the state running, then completed, incomplete or failed; gives the id of the run.

    Ids sort by time: ``20261120T192233-benchmark-3f9a``. A run that called :func:`record_end` keeps what that wrote,
    unless an error follows.
    """
    _check_workspace(config.workspace)
    started = datetime.now(UTC)
    run = f"{started:%Y%m%dT%H%M%S}-{kind}-{secrets.token_hex(2)}"
    store, is_new = _opened(config.store_uri, create=kind in _ENCODING)
    row = {
        "run": run,
        "name": config.name,
        "config": without_credentials(json.dumps(dataclasses.asdict(config))),
        "command": without_credentials(shlex.join(["capim", *sys.argv[1:]])),
        "versions": json.dumps(library_versions()),
        "host": socket.gethostname(),
        "started": started,
        "finished": None,
        "state": "running",
        "message": None,
    }

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
    if row["state"] == "running":
        row |= {"state": "incomplete", "message": _message(missing)} if missing else {"state": "completed"}
        row["finished"] = datetime.now(UTC)
        store.write_rows("runs", pa.Table.from_pylist([row], schema=RUNS), replace="run")


def _message(missing: Sequence[Missing]) -> str:
    return f"{_failures(missing)}: {'; '.join(_reasons(missing))}"


def _failures(missing: Sequence[Missing]) -> str:
    subjects = len({each.subject for each in missing})
    return f"{subjects} encoder{'s' if subjects > 1 else ''} failed"


def _reasons(missing: Sequence[Missing]) -> list[str]:
    return [f"{each.subject}: {each.reason}" for each in missing]


def _check_workspace(workspace: str) -> None:
    """Refuse a relative workspace in a deployment, whose worker runs in a temporary folder that is deleted."""
    if deployment.id is not None and "://" not in workspace and not Path(workspace).is_absolute():
        raise RequestError(
            f"workspace {workspace!r} is relative, but a deployment runs in a temporary folder; give an absolute path "
            "or a URI in the parameters of the deployment (config.workspace)"
        )


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """What went, or would go.

    Attributes:
        rows: Table -> number of rows.
        tables: Embedding sets and corpora.
        reports: Folders of older runs' reports.
        freed: Table -> bytes; empty for a plan.
    """

    rows: dict[str, int]
    tables: tuple[str, ...]
    reports: tuple[str, ...]
    freed: dict[str, int]


@flow(name="prune", flow_run_name="prune {config.title}", timeout_seconds=timeout_seconds(24))
def prune(config: RunConfig, keep: int = 30, done: bool = True) -> Pruned:
    """Keep what reports show, the newest runs and the baselines of watches; remove the rest and compact.

    Args:
        config: The workspace; nothing else of it counts.
        keep: How many of the newest runs are kept, with their reports.
        done: False: only say what would go.
    """
    store = EmbeddingStore.open(config.store_uri)
    plan = plan_pruning(store, keep=keep)
    reports = tuple(name for name in folders_of(config.reports_uri) if name < plan.runs[0]) if plan.runs else ()
    freed: dict[str, int] = {}
    if done:
        remove(store, plan)
        for name in reports:
            remove_folder(f"{config.reports_uri}/{name}")
        freed = compact_store(store)
    return Pruned(
        rows={table: n for table, (_, _, n) in plan.rows.items()}, tables=plan.tables, reports=reports, freed=freed
    )
