"""Reports on object storage, against moto's server on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from capim.reports import write_report
from capim.reports.destination import write_files
from tests.reports.stand_in import StandIn


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, object]]:
    """The address of an empty bucket, and a client to look into it."""
    boto3 = pytest.importorskip("boto3")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    environment = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=environment["AWS_ENDPOINT_URL"])
    client.create_bucket(Bucket="capim-reports")
    yield "s3://capim-reports/reports", client
    server.stop()


@pytest.mark.slow
def test_a_report_goes_to_a_bucket_whole_and_without_old_figures(
    demo_store: StandIn, bucket: tuple[str, object]
) -> None:
    address, client = bucket
    write_files(f"{address}/run", {"figures/gone.svg": "old"})
    assert write_report(demo_store, f"{address}/run") == f"{address}/run/report.html"
    found = client.list_objects_v2(Bucket="capim-reports")["Contents"]  # type: ignore[attr-defined]
    names = {item["Key"].removeprefix("reports/run/") for item in found}
    assert {"report.html", "report.md", "results.json", "figures/speed-shapes.svg"} <= names
    assert "figures/gone.svg" not in names
    page = client.get_object(Bucket="capim-reports", Key="reports/run/report.html")  # type: ignore[attr-defined]
    assert page["Body"].read().startswith(b"<!doctype html>")
