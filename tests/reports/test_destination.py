"""Reports in folders that several write to, and on object storage, against moto's server on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from capim.reports.destination import write_files
from capim.reports.write import write_report
from capim.store.files import replacing
from tests.deployments.object_storage import WORKSPACE, bucket
from tests.reports.stand_in import StandIn


def test_two_that_write_one_report_leave_the_unfinished_files_of_each_other(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    with replacing(tmp_path / "figures" / "a.svg") as unfinished:
        unfinished.write_text("of the other")
        write_files(tmp_path, {"figures/gone.svg": "old"})
        write_files(tmp_path, {"figures/b.svg": "new"}, replace_folder="figures")
    assert {file.name: file.read_text() for file in (tmp_path / "figures").iterdir()} == {
        "a.svg": "of the other", "b.svg": "new",
    }  # fmt: skip


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
        assert {"report.html", "report.md", "results.json", "figures/quality-cost.svg"} <= names
        assert "figures/gone.svg" not in names
        page = client.get_object(Bucket="capim", Key="work/run/report.html")
        assert page["Body"].read().startswith(b"<!doctype html>")
