"""The record of a run: what was asked, with which versions, and how it ended."""

from __future__ import annotations

import dataclasses
import json
import secrets
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from prefect.runtime import deployment

from flows.config import RunConfig
from store import EmbeddingStore
from store.errors import RequestError
from store.schema import RUNS
from tasks.runtime.versions import library_versions

_WRITING = ("benchmark", "embed", "import")  # kinds of runs that may begin with an empty store


@contextmanager
def recorded_run(config: RunConfig, kind: str, run: str | None = None) -> Iterator[str]:
    """Write a ``runs`` row that says running, then completed or failed; gives the run's id.

    A step inside a larger run passes that run's id and writes nothing: the larger one keeps the record. Ids sort
    by time: ``20261120T192233-benchmark-3f9a``.
    """
    if run is not None:
        yield run
        return
    _check_lasting(config.workspace)
    started = datetime.now(UTC)
    run = f"{started:%Y%m%dT%H%M%S}-{kind}-{secrets.token_hex(2)}"
    store = EmbeddingStore.open(config.store_uri, create=kind in _WRITING)
    row = {
        "run": run,
        "name": config.name,
        "config": json.dumps(dataclasses.asdict(config)),
        "command": shlex.join(["capim", *sys.argv[1:]]),
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
    except BaseException as error:
        first = str(error).splitlines()[:1]
        write(state="failed", finished=datetime.now(UTC), message=f"{type(error).__name__}: {' '.join(first)}")
        raise
    write(state="completed", finished=datetime.now(UTC))


def _check_lasting(workspace: str) -> None:
    """A worker runs a deployment in a temporary folder: what a relative workspace keeps there is lost with it."""
    if deployment.id is not None and "://" not in workspace and not Path(workspace).is_absolute():
        raise RequestError(
            f"workspace {workspace!r} is relative, and a deployment runs in a temporary folder; give an absolute path "
            "or a URI in the deployment's parameters (config.workspace)"
        )
