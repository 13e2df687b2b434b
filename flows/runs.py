"""The record of a run: its configuration, library versions and how it ended."""

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

_ENCODING = ("benchmark", "embed", "import", "watch")  # kinds of runs that create a store where there is none


@contextmanager
def recorded_run(config: RunConfig, kind: str) -> Iterator[str]:
    """Write a ``runs`` row with the state running, then completed or failed; gives the id of the run.

    Ids sort by time: ``20261120T192233-benchmark-3f9a``.
    """
    _check_workspace(config.workspace)
    started = datetime.now(UTC)
    run = f"{started:%Y%m%dT%H%M%S}-{kind}-{secrets.token_hex(2)}"
    store = EmbeddingStore.open(config.store_uri, create=kind in _ENCODING)
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
        first_line = str(error).partition("\n")[0]
        write(state="failed", finished=datetime.now(UTC), message=f"{type(error).__name__}: {first_line}")
        raise
    write(state="completed", finished=datetime.now(UTC))


def _check_workspace(workspace: str) -> None:
    """Refuse a relative workspace in a deployment, whose worker runs in a temporary folder that is deleted."""
    if deployment.id is not None and "://" not in workspace and not Path(workspace).is_absolute():
        raise RequestError(
            f"workspace {workspace!r} is relative, but a deployment runs in a temporary folder; give an absolute path "
            "or a URI in the parameters of the deployment (config.workspace)"
        )
