"""The whole pipeline on object storage, a real S3 API on loopback (moto): store and report at s3://…, two writers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from capim.store import EmbeddingStore
from capim.tasks.runtime.references import this_host

CAPIM = str(Path(sys.executable).with_name("capim"))
WORKSPACE = "s3://capim/work"
SECRET = "not-to-be-told"
SUITE = """
encoders = ["{encoder}"]
replicates = 200
device = "cpu"
analyses = ["complexity", "hubs"]
[[corpus]]
name = "few"
reader = "shapes"
n_scenes = 8
"""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty bucket ``capim``, within reach of this process and of those that it starts."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    try:
        boto3.client("s3").create_bucket(Bucket="capim")
        yield
    finally:
        server.stop()


def run_at_once(commands: list[list[str]]) -> list[str]:
    """Runs ``capim`` with each of these words side by side; all have to end well. Gives their standard outputs."""
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    running = [
        subprocess.Popen([CAPIM, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for words in commands
    ]
    printed = []
    for process in running:
        out, said = process.communicate(timeout=500)
        assert process.returncode == 0, said
        assert SECRET not in out + said
        printed.append(out.strip())
    return printed


def check_reports(pages: list[str]) -> None:
    """Both reports are complete and in the bucket."""
    import boto3

    objects = boto3.client("s3")
    for page in pages:
        key = page.removeprefix("s3://capim/")
        assert objects.get_object(Bucket="capim", Key=key)["Body"].read().startswith(b"<!")
        assert objects.head_object(Bucket="capim", Key=key.replace("report.html", "results.json"))["ContentLength"]


def check_no_leak() -> None:
    """Neither the secret nor the name of the machine is in an object, or in a row, whose text may be compressed."""
    import boto3

    store = EmbeddingStore.open(f"{WORKSPACE}/store")
    rows = str([store.rows(table).to_pylist() for table in ("runs", "batches", "results", "comparisons", "slices")])
    hosts = {host for table in ("runs", "batches") for host in store.rows(table)["host"].to_pylist()}
    assert hosts == {this_host()}
    assert socket.gethostname() not in hosts
    assert SECRET not in rows
    objects = boto3.client("s3")
    for page in objects.get_paginator("list_objects_v2").paginate(Bucket="capim"):
        for found in page["Contents"]:
            body = objects.get_object(Bucket="capim", Key=found["Key"])["Body"].read()
            assert SECRET.encode() not in body, found["Key"]
            assert len(socket.gethostname()) < 6 or socket.gethostname().encode() not in body, found["Key"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("bucket")
def test_two_runs_write_one_store_and_their_reports_to_s3(tmp_path: Path) -> None:
    commands = []
    for encoder in ("tiny-clip", "tiny-clip-plain"):
        suite = tmp_path / f"{encoder}.toml"
        suite.write_text(SUITE.format(encoder=encoder))
        commands.append(["run", str(suite), "--workspace", WORKSPACE])
    check_reports(run_at_once(commands))
    store = EmbeddingStore.open(f"{WORKSPACE}/store")
    assert len(store.sealed_sets()) == 4
    assert set(store.rows("runs")["state"].to_pylist()) == {"completed"}
    check_no_leak()
    for encoder in ("tiny-clip", "tiny-clip-plain"):
        assert len(store.vectors(encoder=encoder, corpus="few", modality="caption").ids) == 40
