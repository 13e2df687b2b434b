"""A package's metric whose lowest value is the best, and a metric whose code changes: what every place says of them."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import capim
from capim.store import EmbeddingStore
from capim.store.schema import TABLES
from capim.tasks import derive
from capim.tasks.corpora.description import open_corpus
from capim.tasks.metrics import METRICS
from capim.tasks.results import summary
from capim.tasks.statistics import VERSION
from tests.command import command, json_rows
from tests.packaging.conftest import Packages, on_the_path
from tests.reports.app.stores import asking
from tests.reports.pages import cells

pytestmark = pytest.mark.slow  # whole suites of commands

METRIC = """
from capim.tasks.metrics import Metric

both = frozenset({{"t2i", "i2t"}})
METRIC = Metric(name="depth", title="items above", directions=both, higher_is_better=False, unit="percent",
                values=lambda outcomes, ties: (outcomes.rank_worst - 1) * {factor} / 100)
"""
Install = Callable[[str, float], None]
SAME = "--replicates 100 --quiet"


def installing(packages: Packages, version: str, factor: float) -> None:
    """Install the package in a version; version "" takes it away."""
    points = {"capim.metrics": "depth = depth_metric:METRIC"} if version else {}
    packages("capim-depth", version or "0", points, depth_metric=METRIC.format(factor=factor))


@pytest.fixture
def install(packages: Packages) -> Install:
    return partial(installing, packages)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outcomes of two models: ``near`` is at rank 1 or 2, ``far`` at rank 3 to 7; with results and comparisons."""
    folder = tmp_path_factory.mktemp("depth")
    with on_the_path(folder / "site") as packages:
        installing(packages, "1.0", 1.0)
        imported(folder, "near", lambda n: 1 + n % 2)
        imported(folder, "far", lambda n: 3 + n % 5)
        command(f"compare {SAME}", folder / "workspace")
    return folder / "workspace"


@pytest.fixture
def workspace(compared: Path, tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to change, with the package that it was made with."""
    install("1.0", 1.0)
    monkeypatch.setenv("CAPIM_WORKSPACE", str(tmp_path / "workspace"))
    return Path(shutil.copytree(compared, tmp_path / "workspace"))


def imported(folder: Path, encoder: str, rank: Callable[[int], int]) -> None:
    """Import the ranks of a model by the positions of the captions."""
    captions = open_corpus("shapes").captions["id"].to_pylist()
    lines = [f"t2i/all,{caption},{rank(n)}\n" for n, caption in enumerate(captions)]
    (folder / "ranks.csv").write_text("".join(["protocol,query,rank\n", *lines]))
    words = f"import --outcomes {folder}/ranks.csv --encoder {encoder} --corpus shapes --replicates 100"
    command(words, folder / "workspace")


def rows(workspace: Path, table: str, **equals: str) -> list[Mapping[str, Any]]:
    """The current rows."""
    store = EmbeddingStore.open(workspace / "store")
    return [vars(row) for row in store.current(TABLES[table].row, **equals)]


# --- its direction ---------------------------------------------------------------------------------------------------
def test_a_packages_metric_whose_lowest_value_is_best_is_so_in_every_place_also_without_the_package(
    workspace: Path, install: Install
) -> None:
    value = {row["encoder"]: row["value"] for row in rows(workspace, "results", metric="depth")}
    assert value["near"] < 0.01 < 0.03 < value["far"]
    frame = capim.compare("near", "far", replicates=100)
    [state] = frame[frame["metric"] == "depth"]["state"]
    assert state == "better"
    install("", 1.0)
    assert "depth" not in METRICS
    assert {row["lower_is_better"] for row in rows(workspace, "results", metric="depth")} == {True}
    [pair] = rows(workspace, "comparisons", metric="depth")
    assert pair["lower_is_better"]
    assert pair["p_adjusted"] < 0.01
    assert [row["encoder"] for row in json_rows("results --metric depth")] == ["near", "far"]

    folder = command("report --markdown whole").page.parent
    [line] = [row for row in csv.DictReader((folder / "comparisons.csv").open()) if row["metric"] == "depth"]
    assert (line["encoder_a"], line["encoder_b"]) == (pair["encoder_a"], pair["encoder_b"])
    assert abs(float(line["difference"])) == pytest.approx(0.035, abs=0.0005)
    assert "depth" in {cell["text"] for cell in cells((folder / "report.html").read_text())}
    for name in ("results.csv", "comparisons.csv"):
        found = list(csv.DictReader((folder / name).open()))
        assert {row["metric"]: row["lower_is_better"] for row in found}["depth"] == "True"
    document = json.loads((folder / "results.json").read_text())
    assert {row["lower_is_better"] for row in document["results"] if row["metric"] == "depth"} == {True}

    out = folder / "exports"
    command(f"export results --to {out}/all.csv")
    exported = list(csv.DictReader((out / "all.csv").open()))
    assert {row["lower_is_better"] for row in exported if row["metric"] == "depth"} == {"True"}
    assert {row["lower_is_better"] for row in exported if row["metric"] == "R@1"} == {"False"}
    command(f"export results --format mteb --to {out}/mteb")
    files = [json.loads(file.read_text()) for file in (out / "mteb").rglob("capim-*.json")]
    assert files
    assert all("depth" not in entry for file in files for entry in file["scores"]["test"])  # higher is better there


def test_the_application_says_which_encoder_is_better_by_such_a_metric(workspace: Path, install: Install) -> None:
    install("", 1.0)
    with asking(EmbeddingStore.open(workspace / "store")) as client:
        page = client.get("/queries?corpus=shapes&protocol=t2i/all&encoders=near,far").text
    [line] = re.findall(r"<tr>(?:(?!</tr>).)*>depth<.*?</tr>", page, re.DOTALL)
    assert "3.5 points better" in line


# --- its version -----------------------------------------------------------------------------------------------------
def depths(workspace: Path) -> dict[str, tuple[float, str]]:
    """Encoder to its value and the version that gave it."""
    found = rows(workspace, "results", metric="depth")
    return {row["encoder"]: (round(row["value"], 6), row["metric_version"]) for row in found}


def differences(workspace: Path) -> list[tuple[float, str]]:
    found = rows(workspace, "comparisons", metric="depth")
    return [(round(abs(row["difference"]), 6), row["metric_version"]) for row in found]


def test_after_an_upgrade_of_a_package_its_metric_is_computed_anew_and_nothing_old_is_compared(
    workspace: Path, install: Install
) -> None:
    old, new = "1 of capim-depth 1.0", "1 of capim-depth 2.0"
    assert depths(workspace) == {"near": (0.005, old), "far": (0.04, old)}
    assert differences(workspace) == [(0.035, old)]
    others = [row for row in rows(workspace, "results") if row["metric"] != "depth"]
    install("2.0", 0.5)
    said = command(f"evaluate --encoders near {SAME}").err
    assert "1 were already stored; 1 results computed from stored outcomes" in said
    assert depths(workspace) == {"near": (0.0025, new)}
    assert differences(workspace) == []
    text = command("report --markdown whole").page.with_name("report.md").read_text()
    assert (
        "Left out of this report: depth of far on shapes by another version of the metric (1 of capim-depth 1" in text
    )
    said = command(f"compare {SAME}").err
    assert "far on shapes: results of an older version of a metric were recomputed\n" in said
    assert depths(workspace) == {"near": (0.0025, new), "far": (0.02, new)}
    assert differences(workspace) == [(0.0175, new)]
    assert [row for row in rows(workspace, "results") if row["metric"] != "depth"] == others
    assert command(f"evaluate {SAME}").err.endswith("2 were already stored\n")
    assert "another version" not in command("report --markdown whole").page.with_name("report.md").read_text()


def test_a_family_of_more_encoders_does_not_outlive_the_version_that_it_was_compared_by(
    workspace: Path, install: Install, tmp_path: Path
) -> None:
    imported(tmp_path, "middle", lambda n: 2 + n % 3)
    command(f"compare {SAME}")
    install("2.0", 0.5)
    command(f"compare --encoders near,far {SAME}")
    assert differences(workspace) == [(0.0175, "1 of capim-depth 2.0")]
    assert len(rows(workspace, "comparisons", metric="R@1")) == 3  # those of three encoders are still current


def test_results_of_a_package_that_is_not_installed_stay(workspace: Path, install: Install) -> None:
    before = depths(workspace), differences(workspace)
    install("", 1.0)
    command(f"evaluate {SAME}")
    command(f"compare {SAME}")
    assert (depths(workspace), differences(workspace)) == before


def test_another_version_of_the_statistics_computes_every_result_anew(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = rows(workspace, "results")
    for module in (derive, summary):
        monkeypatch.setattr(module, "VERSION", VERSION + 1)
    assert f"; {len(found)} results computed from stored outcomes" in command(f"evaluate {SAME}").err
    now = rows(workspace, "results")
    assert len(now) == len(found)
    assert {row["statistics_version"] for row in now} == {VERSION + 1}
