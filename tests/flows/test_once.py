"""What was derived is not derived again: unchanged runs, runs with settings of their own, pages by what they show."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from capim.store import EmbeddingStore
from capim.store.schema import Result, texts
from capim.store.upkeep.inventory import disk_bytes
from capim.tasks import compare, report
from capim.tasks.corpora.readers.shapes import read_shapes
from capim.tasks.corpora.subset import sample_corpus
from capim.tasks.results import figures
from tests.command import command, json_rows
from tests.flows.conftest import RUN, empty_pages
from tests.random_store import random_store

pytestmark = pytest.mark.slow  # whole suites of runs

QUICK = (
    "run --corpora shapes --encoders tiny-clip,tiny-colpali --analyses errors --protocols t2i/all --device cpu --quiet"
)
OTHER_SAMPLE = f"{QUICK} --sample 9 --replicates 100"
OTHER_SETTINGS = f"{QUICK} --sample 12 --replicates 100 --level 0.9"


def pages(workspace: Path) -> list[Path]:
    """The report of every run, oldest first."""
    return [folder.resolve() for folder in sorted((workspace / "reports").glob("2*"))]


def versions(workspace: Path) -> dict[str, int]:
    """Table -> its version, of all but the records of runs."""
    connection = EmbeddingStore.open(workspace / "store").connection
    return {name: connection.find(name).version for name in connection.names() if name != "runs"}  # type: ignore[union-attr]


def test_a_run_that_changes_nothing_computes_nothing_and_writes_its_record_alone(
    own_demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, size = versions(own_demo), disk_bytes(own_demo)
    for module, name in ((figures, "result_rows"), (compare, "figure_rows"), (report, "slices_of")):
        monkeypatch.setattr(module, name, None)
    for module, name in ((compare, "read_outcomes"), (compare, "read_all_outcomes"), (report, "read_all_outcomes")):
        monkeypatch.setattr(module, name, None)  # no outcomes are read
    assert command(RUN, own_demo).err.count(": 0 items encoded, ") == 6
    assert versions(own_demo) == before
    assert disk_bytes(own_demo) - size < 20_000
    first, second = pages(own_demo)
    assert first == second


HEAVY = ("torch", "transformers", "scipy.stats", "scipy.special", "scipy.sparse", "jinja2", "lancedb")
IMPORTED = f"""\
import sys
import capim
print(capim.main(), *(name for name in ("prefect", *{HEAVY}) if name in sys.modules), file=sys.stderr)
"""


def test_such_a_run_imports_no_library_that_it_does_not_need_and_prefect_where_a_server_may_be_named(
    own_demo: Path, tmp_path: Path
) -> None:
    (tmp_path / "place").mkdir()
    settings = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    words = [sys.executable, "-c", IMPORTED, *shlex.split(RUN), "--workspace", str(own_demo)]

    def imported() -> str:
        done = subprocess.run(
            words,
            cwd=tmp_path / "place",
            env={**settings, "PREFECT_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stderr.splitlines()[-1]

    assert imported() == "0"
    (tmp_path / "place" / "prefect.toml").write_text("")
    assert {*imported().split()} & {"0", "prefect", "torch"} == {"0", "prefect"}


def test_another_sample_and_other_settings_change_no_later_report(
    own_demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty_pages(monkeypatch)
    shown = json_rows("results", own_demo)
    for words in (OTHER_SAMPLE, OTHER_SETTINGS, RUN):
        command(words, own_demo)
    first, sample, settings, again = pages(own_demo)
    assert first == again
    assert len({first, sample, settings}) == 3
    for page, n_images, level in ((sample, 9, 0.95), (settings, 12, 0.9)):
        found = json.loads((page / "results.json").read_text("utf-8"))
        assert [corpus["images"] for corpus in found["corpora"].values()] == [n_images]
        assert {row["level"] for row in found["results"]} == {level}
    now = json_rows("results", own_demo)
    assert [row for row in now if row in shown] == shown
    assert {row["corpus"] for row in now if row not in shown} == {"shapes-sample9"}


def test_a_run_that_made_nothing_is_a_baseline_an_export_and_a_report(own_demo: Path) -> None:
    command(RUN, own_demo)
    store = EmbeddingStore.open(own_demo / "store")
    made, found = sorted(texts(store.rows("runs")["run"]))
    assert store.keys_of(made) == store.keys_of(found)
    assert {row.run for row in store.rows_of_run(Result, found)} == {made}
    said = command(
        f"watch --corpora shapes-sample12 --encoders tiny-clip --protocols t2i/all --baseline {found} --replicates 100",
        own_demo,
    )
    assert found in said.out + said.err
    command("store prune --keep 1 --yes", own_demo)
    assert {row["run"] for row in json_rows("results", own_demo)} == {made}
    assert len(pages(own_demo)) == 0  # the watch is the newest run


def test_pages_go_when_no_run_points_to_them(own_demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty_pages(monkeypatch)
    command(OTHER_SETTINGS, own_demo)
    assert len({*pages(own_demo)}) == len([*(own_demo / "reports" / "pages").iterdir()]) == 2
    command("store prune --keep 1 --yes", own_demo)
    [page] = pages(own_demo)
    assert [*(own_demo / "reports" / "pages").iterdir()] == [page]
    assert (page / "report.html").is_file()


def test_a_report_of_the_store_has_samples_beside_whole_corpora_only_with_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty_pages(monkeypatch)
    whole = read_shapes(n_scenes=12)
    for corpus in (whole, replace(sample_corpus(whole, 6, seed=0), draw=(6, 0))):
        random_store(tmp_path / "store", corpus)
    command("evaluate --device cpu --replicates 100 --protocols t2i/all --quiet", tmp_path)
    for words, shown in (("", {"shapes"}), ("--all", {"shapes", "shapes-sample6"})):
        page = command(f"report {words}", tmp_path).page
        assert json.loads(page.with_name("results.json").read_text("utf-8"))["corpora"].keys() == shown
