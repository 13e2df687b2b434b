"""Reports on object storage, against moto's server on this machine."""

from __future__ import annotations

import pytest

from capim.reports.destination import write_files
from capim.reports.write import write_report
from tests.deployments.object_storage import WORKSPACE, bucket
from tests.reports.stand_in import StandIn


@pytest.mark.slow
def test_a_report_goes_to_a_bucket_whole_and_without_old_figures(
    demo_store: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    boto3, _ = pytest.importorskip("boto3"), pytest.importorskip("moto.server")
    with bucket() as reach:
        for name, value in reach.items():
            monkeypatch.setenv(name, value)
        write_files(f"{WORKSPACE}/run", {"figures/gone.svg": "old"})
        assert write_report(demo_store, f"{WORKSPACE}/run") == f"{WORKSPACE}/run/report.html"
        client = boto3.client("s3")
        names = {item["Key"].removeprefix("work/run/") for item in client.list_objects_v2(Bucket="capim")["Contents"]}
        assert {"report.html", "report.md", "results.json", "figures/speed-shapes.svg"} <= names
        assert "figures/gone.svg" not in names
        page = client.get_object(Bucket="capim", Key="work/run/report.html")
        assert page["Body"].read().startswith(b"<!doctype html>")
