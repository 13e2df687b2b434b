"""`--isolated`: what runs in there has no network and a limited memory; where it cannot be, it says so."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from capim.flows.cli import main

IN_THERE = """
import os, socket, sys
from capim.tasks.runtime import isolation

begun = []
os.execv = lambda *words: begun.append(words)
try:
    isolation.begin_anew(["results", "--isolated"])
except isolation.RequestError as refused:
    sys.exit(f"not here: {refused}")
assert begun == [(sys.executable, [sys.executable, "-m", "capim.flows.cli", "results", "--isolated"])]
isolation.begin_anew(["results", "--isolated"])
assert len(begun) == 1, "it begins anew once"
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5)
except OSError as fault:
    print(fault)
try:
    bytearray(200 * 2**30)
except MemoryError:
    print("no memory")
"""


def test_what_runs_isolated_reaches_no_server_and_has_a_limit_of_memory() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        words = [sys.executable, "-c", IN_THERE, str(server.getsockname()[1])]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "not here" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[Errno 101] Network is unreachable", "no memory"]
    assert "isolated: no network, at most " in done.stderr


def test_where_it_cannot_be_the_command_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert main(["results", "--isolated"]) == 2
    assert "--isolated needs Linux, and this is darwin; run it in a container instead" in capsys.readouterr().err
