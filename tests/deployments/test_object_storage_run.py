"""The whole pipeline on object storage: store and report at s3://…, two writers at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from store import EmbeddingStore

CAPIM = str(Path(sys.executable).with_name("capim"))
SUITE = """
encoders = ["{encoder}"]
replicates = 200
device = "cpu"
corpora = ["shapes-winoground"]
[[corpus]]
name = "few"
reader = "shapes"
n_scenes = 12
"""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty bucket on moto's server, which speaks S3 on loopback."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
    }.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3").create_bucket(Bucket="capim")
    yield "s3://capim/work"
    server.stop()


@pytest.mark.slow
def test_two_runs_write_one_store_and_their_reports_to_s3(bucket: str, tmp_path: Path) -> None:
    import boto3

    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    running = []
    for encoder in ("tiny-clip", "tiny-clip-plain"):
        suite = tmp_path / f"{encoder}.toml"
        suite.write_text(SUITE.format(encoder=encoder))
        words = [CAPIM, "run", str(suite), "--workspace", bucket]
        running.append(
            subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    pages = []
    for process in running:
        page, said = process.communicate(timeout=250)
        assert process.returncode == 0, said
        pages.append(page.strip())
    objects = boto3.client("s3")
    for page in pages:
        key = page.removeprefix("s3://capim/")
        assert objects.get_object(Bucket="capim", Key=key)["Body"].read().startswith(b"<!")
        assert objects.head_object(Bucket="capim", Key=key.replace("report.html", "results.json"))["ContentLength"]
    store = EmbeddingStore.open(f"{bucket}/store")
    assert len(store.sealed_sets()) == 8
    assert set(store.rows("runs")["state"].to_pylist()) == {"completed"}
    for encoder in ("tiny-clip", "tiny-clip-plain"):
        assert len(store.vectors(encoder=encoder, corpus="few", modality="caption").ids) == 60
