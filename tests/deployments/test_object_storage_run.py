"""The whole pipeline on object storage: store and report at s3://…, two writers at once."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from capim.store import EmbeddingStore
from capim.tasks.references import this_host
from tests.deployments.conftest import suite_of
from tests.deployments.object_storage import WORKSPACE, bucket, run_at_once
from tests.encoders.own_module import own_encoder


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """An empty bucket, within reach of this process too."""
    with bucket() as found:
        for name, value in found.items():
            monkeypatch.setenv(name, value)
        yield found


def check_reports(pages: list[str]) -> None:
    """Both reports are complete and in the bucket."""
    import boto3

    objects = boto3.client("s3")
    for page in pages:
        key = page.removeprefix("s3://capim/")
        assert objects.get_object(Bucket="capim", Key=key)["Body"].read().startswith(b"<!")
        assert objects.head_object(Bucket="capim", Key=key.replace("report.html", "results.json"))["ContentLength"]


def check_no_leak(secret: str) -> None:
    """Neither the secret nor the name of the machine is in an object, or in a row, whose text may be compressed."""
    import boto3

    store = EmbeddingStore.open(f"{WORKSPACE}/store")
    rows = str([store.rows(table).to_pylist() for table in ("runs", "batches", "results", "comparisons", "slices")])
    hosts = {host for table in ("runs", "batches") for host in store.rows(table)["host"].to_pylist()}
    assert hosts == {this_host()}
    assert socket.gethostname() not in hosts
    assert secret not in rows
    objects = boto3.client("s3")
    for page in objects.get_paginator("list_objects_v2").paginate(Bucket="capim"):
        for found in page["Contents"]:
            body = objects.get_object(Bucket="capim", Key=found["Key"])["Body"].read()
            assert secret.encode() not in body, found["Key"]
            assert len(socket.gethostname()) < 6 or socket.gethostname().encode() not in body, found["Key"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_runs_write_one_store_and_their_reports_to_s3(reach: dict[str, str], tmp_path: Path) -> None:
    commands = []
    for seed, encoder in enumerate(("one", "other")):
        settings = 'replicates = 200\nanalyses = ["errors"]\n'
        suite = suite_of(tmp_path / f"{encoder}.toml", own_encoder(tmp_path / encoder, seed=seed), settings=settings)
        commands.append(["run", str(suite), "--workspace", WORKSPACE])
    check_reports(run_at_once(commands, reach, seconds=500))
    store = EmbeddingStore.open(f"{WORKSPACE}/store")
    assert len(store.sealed_sets()) == 4
    assert set(store.rows("runs")["state"].to_pylist()) == {"completed"}
    check_no_leak(reach["AWS_SECRET_ACCESS_KEY"])
    for encoder in ("one", "other"):
        assert len(store.vectors(encoder=encoder, corpus="few", modality="caption").ids) == 40
