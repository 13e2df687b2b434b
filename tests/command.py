"""Runs a command in this process, and gives what it printed."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from capim.flows.cli import main


class Printed(NamedTuple):
    """What a command wrote to standard output and to standard error."""

    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows that were printed as JSON."""
        listed: list[dict[str, Any]] = json.loads(self.out)
        return listed

    @property
    def page(self) -> Path:
        """The report whose path was printed."""
        return Path(self.out.strip())


def command(words: str, workspace: Path | None = None, *, code: int = 0) -> Printed:
    """Run ``capim WORDS``, in a workspace if one is named; it has to end with this exit code."""
    place = [] if workspace is None else ["--workspace", str(workspace)]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            ended = main([*shlex.split(words), *place])
        except SystemExit as stop:  # of the parser
            ended = int(stop.code or 0)
    printed = Printed(out.getvalue(), err.getvalue())
    assert ended == code, printed.err
    return printed


def json_rows(words: str, workspace: Path | None = None) -> list[dict[str, Any]]:
    """The rows that ``capim WORDS --format json`` prints."""
    return command(f"{words} --format json", workspace).rows
