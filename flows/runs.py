"""The record of a run: its configuration, library versions and how it ended."""

from __future__ import annotations

import dataclasses
import json
import secrets
import shlex
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from prefect.runtime import deployment

from flows.config import RunConfig
from store import EmbeddingStore
from store.errors import RequestError, WorkError, without_credentials
from store.maintenance.removal import discard_if_empty
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
