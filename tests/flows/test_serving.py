"""`capim serve`: the address that it prints, how it ends, and ports that it cannot have."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from capim.flows.cli import main
from capim.store import EmbeddingStore
from tests.command import command


def test_the_printed_address_opens_the_pages_of_this_store_and_ctrl_c_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    EmbeddingStore.open(tmp_path / "store", create=True)
    answers: list[Any] = []

    def run(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
        [listener] = sockets
        host, port = listener.getsockname()
        assert host == "127.0.0.1", "no other machine"
        client = TestClient(server.config.app, base_url=f"http://{host}:{port}")  # type: ignore[arg-type]
        [printed] = re.findall(r"http://\S+", capsys.readouterr().out)
        answers.extend([client.get("/"), client.get(printed)])
        raise KeyboardInterrupt

    monkeypatch.setattr(uvicorn.Server, "run", run)
    assert main(["serve", "--workspace", str(tmp_path)]) == 0
    refused, shown = answers
    assert refused.status_code == 403
    assert (shown.status_code, "run `capim run`" in shown.text) == (400, True), "an empty store says what to do"
    assert str(tmp_path) in shown.text


def serve(workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The address that `capim serve` prints."""
    monkeypatch.setattr(uvicorn.Server, "run", lambda *_, **__: None)
    assert main(["serve", "--workspace", str(workspace), *words]) == 0
    return str(re.findall(r"http://\S+", capsys.readouterr().out)[0])


def test_a_workspace_keeps_its_address_and_nobody_else_can_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    EmbeddingStore.open(tmp_path / "store", create=True)
    first = serve(tmp_path, monkeypatch, capsys)
    kept = tmp_path / "serve.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert serve(tmp_path, monkeypatch, capsys) == first
    port = int(re.findall(r":(\d+)/", first)[0])
    with socket.create_server(("127.0.0.1", port)):
        meanwhile = serve(tmp_path, monkeypatch, capsys)
    assert meanwhile.partition("token")[2] == first.partition("token")[2]
    assert meanwhile != first, "the port is another's now"
    assert serve(tmp_path, monkeypatch, capsys) == first, "and is used again when it is free"
    kept.chmod(0o644)
    assert serve(tmp_path, monkeypatch, capsys).partition("token")[2] != first.partition("token")[2]
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.write_text("[")
    assert serve(tmp_path, monkeypatch, capsys) != first


def test_a_port_that_cannot_be_had_is_a_wrong_request(tmp_path: Path) -> None:
    EmbeddingStore.open(tmp_path / "store", create=True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for wrong in (str(port), "70000"):
            assert f"port {wrong} cannot be used" in command(f"serve --port {wrong}", tmp_path, code=2).err
